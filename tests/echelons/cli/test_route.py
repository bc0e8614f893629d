"""``echelons capabilities`` and ``echelons route``: a team is looked at, and nothing runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Call = Callable[..., Result]


def test_the_capabilities_of_a_team_are_a_tree(echelons: Call) -> None:
    assert echelons("capabilities", "trips:asking").stdout == (
        "head: head (0.8, derived)\n└── clerk: clerk (0.8, derived), confirm (0.8, derived)\n"
    )


def test_the_capabilities_of_a_team_are_data_for_programs(echelons: Call) -> None:
    known = json.loads(echelons("capabilities", "travel", "--json").stdout)

    assert (known["agent"], known["total_depth"]) == ("head", 2)
    assert known["subordinates"][0]["capabilities"]["flights"]["confidence"] == 0.95


def test_a_task_is_routed_with_its_reasons_and_split(echelons: Call) -> None:
    done = echelons("route", "travel", "Plan a trip to Italy with great food")

    assert done.exit_code == 0
    assert "head/experiences/restaurants" in done.stdout
    assert "words: food" in done.stdout
    assert "3 requests: flights (trip), hotels (trip), restaurants (food)" in done.stdout


def test_a_ranking_is_data_for_programs(echelons: Call) -> None:
    found = json.loads(echelons("route", "travel", "-", "--json", given="See an opera").stdout)

    assert found["candidates"][0]["path"] == "head/experiences/events"
    assert found["parts"] == [{"task": "opera", "agent": "events"}]


def test_the_receiver_and_the_threshold_may_be_named(echelons: Call) -> None:
    words = ("route", "travel", "See an opera", "--at", "experiences", "--threshold", "0.99")
    done = echelons(*words)

    assert done.exit_code == 0
    assert done.stdout.startswith('at head/experiences, for "See an opera": nobody')
    assert "below the threshold 0.99" in done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["travel", " "], "no task"),
        (["travel", "food", "--at", "nobody"], "no agent 'nobody'"),
        (["travel", "food", "--threshold", "7"], "no threshold"),
        (["travle", "food"], "travle"),
    ],
)
def test_what_cannot_be_routed_is_refused(echelons: Call, words: list[str], why: str) -> None:
    done = echelons("route", *words)

    assert done.exit_code == 3
    assert why in done.stderr


def test_routing_makes_no_database(echelons: Call, folder: Path) -> None:
    before = set(folder.iterdir())
    echelons("route", "trips:asking", "confirm it")

    assert set(folder.iterdir()) - {folder / "__pycache__"} == before
