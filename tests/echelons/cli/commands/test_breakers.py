"""``echelons breakers``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import TreeBreakers
from echelons.guards.circuit_breaker import AttemptOutcome

Call = Callable[..., Result]


def fail(path: str, times: int, scope: str = "") -> None:
    with SqliteCheckpointer("trips.sqlite") as saver:
        breakers = TreeBreakers(saver.ledger, scope)
        for _ in range(times):
            breakers.note(path, breakers.admit(path), AttemptOutcome.FAILED)


def test_failed_agent_is_listed_with_its_state(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")
    fail("head/clerk", 3)
    fail("head/lobby/porter", 1)
    fail("head/clerk", 2, "acme")

    told = echelons("breakers").stdout.splitlines()

    assert told[0].startswith("head/clerk: open, 3 failures in a row, tried again in ")
    assert told[1] == "head/lobby/porter: closed, 1 failure in a row"
    assert told[2] == "head/clerk (scope acme): closed, 2 failures in a row"


def test_programs_get_json_lines(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")
    fail("head/clerk", 3)

    fail("head/lobby/porter", 1, "acme")

    line, other = echelons("breakers", "--json").stdout.splitlines()

    told = json.loads(line)
    places = [(each["path"], each["scope"]) for each in (told, json.loads(other))]
    assert places == [("head/clerk", ""), ("head/lobby/porter", "acme")]
    assert (told["tree"], told["agent"], told["state"], told["failures"]) == (
        "head",
        "clerk",
        "open",
        3,
    )


def test_a_circuit_is_closed_by_hand(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")
    fail("head/clerk", 3)

    closed = echelons("breakers", "--close", "clerk")

    assert (closed.exit_code, closed.stdout) == (0, "")
    assert "every circuit is closed" in closed.stderr
    with SqliteCheckpointer("trips.sqlite") as saver:
        assert TreeBreakers(saver.ledger).admit("head/clerk").admitted


def test_of_two_circuits_of_one_name_one_is_closed_by_its_path(
    echelons: Call, folder: Path
) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")
    fail("head/north/clerk", 3)
    fail("head/south/clerk", 3)

    left = echelons("breakers", "--close", "head/north/clerk").stdout

    assert left.startswith("head/south/clerk: open")
    assert echelons("breakers", "--close", "clerk").stdout == ""


def test_a_circuit_that_there_is_not_is_refused(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")
    fail("head/clerk", 1)

    refused = echelons("breakers", "--close", "clerc")

    assert refused.exit_code == 3
    assert "'clerc'" in refused.stderr
    assert "clerk" in refused.stderr
