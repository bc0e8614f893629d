"""``echelons capabilities`` and ``echelons route``: a team is looked at, and nothing runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from echelons.testing import OpenAIServer

Call = Callable[..., Result]


def test_the_capabilities_of_a_team_are_a_tree(echelons: Call) -> None:
    assert echelons("capabilities", "trips:asking").stdout == (
        "head (derived)\n│   0.8   head\n└── clerk (derived)\n        0.8   clerk, confirm\n"
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_of_many_capabilities_the_best_are_shown_in_lines_that_fit(
    terminal: Callable[..., tuple[int, str]], columns: int
) -> None:
    _, best = terminal("capabilities", "travel", columns=columns)
    _, every = terminal("capabilities", "travel", "--all", columns=columns)

    lines = best.splitlines()
    assert "├── flights" in lines
    assert "│       0.95  flights, flying, fly, airports, flew, flown, round trip" in lines
    assert "│       and 13 more (--all)" in lines
    assert "and 13 more" not in every
    assert "trattoria" in every
    shown = [*lines, *every.splitlines()]
    assert columns - 20 < max(map(len, shown)) <= columns
    assert not re.search(r"[^,]\n[│ ]+ {8,}[a-z]", every.replace("\r", "")), "no name is broken"


def test_the_capabilities_of_a_team_are_data_for_programs(echelons: Call) -> None:
    known = json.loads(echelons("capabilities", "travel", "--json").stdout)

    assert (known["agent"], known["total_depth"]) == ("head", 2)
    assert known["subordinates"][0]["capabilities"]["flights"]["confidence"] == 0.95


def test_a_model_is_asked_about_agents_that_declare_nothing(
    echelons: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = '{"capabilities": [{"name": "table booking", "confidence": 0.7}]}'
    with OpenAIServer([says] * 4) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        shown = echelons("capabilities", "trips:asking", "--model", "openai:test-model")
        routed = echelons("route", "trips:asking", "book tables", "--model", "openai:test-model")

    assert "clerk (derived)\n        0.7   table booking" in shown.stdout
    assert "words: book, tables" in routed.stdout
    assert len(server.requests) == 4


def test_what_a_model_said_is_data_for_programs(
    echelons: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = '{"capabilities": [{"name": "refunds", "confidence": 0.7, "examples": ["pay me back"]}]}'
    with OpenAIServer([says] * 2) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        asked = ("--model", "openai:test-model", "--json")
        known = json.loads(echelons("capabilities", "trips:asking", *asked).stdout)

    clerk = known["subordinates"][0]
    assert clerk["derived"] is True
    assert clerk["capabilities"] == {"refunds": {"confidence": 0.7, "examples": ["pay me back"]}}


@pytest.mark.parametrize("words", [("capabilities", "travel"), ("route", "travel", "food")])
@pytest.mark.parametrize(
    ("model", "why"),
    [("nope", "unknown model 'nope'"), ("openai:some", "OPENAI_API_KEY is not set")],
)
def test_a_model_that_cannot_be_asked_is_refused(
    echelons: Call, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], model: str, why: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = echelons(*words, "--model", model)

    assert (done.exit_code, done.stdout) == (3, "")
    assert why in done.stderr


@pytest.mark.parametrize("command", ["capabilities", "route"])
def test_the_help_says_what_a_model_is_asked(echelons: Call, command: str) -> None:
    shown = " ".join(echelons(command, "--help").stdout.replace("│", " ").split())

    assert "capabilities for agents that declare none" in shown


def test_the_offline_planner_is_not_asked_what_agents_can_do(echelons: Call) -> None:
    shown = echelons("capabilities", "trips:asking", "--model", "offline")

    assert "clerk (derived)\n        0.8   clerk, confirm" in shown.stdout
    assert shown.stderr == ""


def test_a_task_is_routed_with_its_reasons_and_split(echelons: Call) -> None:
    done = echelons("route", "travel", "Plan a trip to Italy with great food")

    assert done.exit_code == 0
    assert "head/experiences/restaurants" in done.stdout
    assert "words: food" in done.stdout
    assert "3 requests: flights (trip), hotels (trip), restaurants (food)" in done.stdout


def test_a_ranking_is_data_for_programs(echelons: Call) -> None:
    found = json.loads(echelons("route", "travel", "-", "--json", given="See an opera").stdout)

    assert found["candidates"][0]["path"] == "head/experiences/events"
    assert found["parts"] == [{"task": "See an opera", "agent": "events"}]


@pytest.mark.parametrize("how", [(), ("--json",)], ids=["text", "json"])
def test_the_exit_code_says_whether_anybody_fits(echelons: Call, how: tuple[str, ...]) -> None:
    found = echelons("route", "travel", "See an opera", *how)
    nobody = echelons("route", "travel", "Repair my bicycle", *how)

    assert (found.exit_code, nobody.exit_code) == (0, 8)
    assert nobody.stdout, "it says who comes nearest all the same"
    assert nobody.stderr == ""


def test_the_help_says_how_a_script_knows_that_no_agent_fits(echelons: Call) -> None:
    shown = " ".join(echelons("route", "--help").stdout.split())

    assert "If no agent fits, the exit code is 8." in shown


def test_the_receiver_and_the_threshold_may_be_named(echelons: Call) -> None:
    words = ("route", "travel", "See an opera", "--at", "experiences", "--threshold", "0.99")
    done = echelons(*words)

    assert done.exit_code == 8
    assert done.stdout.startswith('at head/experiences, for "See an opera": no agent')
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


def test_a_task_goes_where_the_teams_own_matcher_sends_it(echelons: Call) -> None:
    routed = json.loads(echelons("route", "trips:contrary", "a room", "--json").stdout)
    echelons("run", "trips:contrary", "go")
    [asked] = json.loads(echelons("trace", "--json").stdout)["subordinates"]

    assert routed["candidates"][0]["path"] == "head/hotels"
    assert asked["agent"] == "hotels"
    assert asked["requests"][0]["why"].startswith("0.")


def test_the_teams_own_threshold_decides_unless_one_is_given(echelons: Call) -> None:
    own = echelons("route", "trips:strict", "a room")
    given = echelons("route", "trips:strict", "a room", "--threshold", "0.1")

    assert (own.exit_code, given.exit_code) == (8, 0)
    assert "below the threshold 0.95" in own.stdout


def test_the_agent_that_delegates_is_no_candidate(echelons: Call) -> None:
    shown = echelons("route", "travel", "Book restaurants", "--at", "restaurants")

    assert shown.exit_code == 8
    assert "no agent" in shown.stdout


def test_routing_makes_no_database(echelons: Call, folder: Path) -> None:
    before = set(folder.iterdir())
    echelons("route", "trips:asking", "confirm it")

    assert set(folder.iterdir()) - {folder / "__pycache__"} == before
