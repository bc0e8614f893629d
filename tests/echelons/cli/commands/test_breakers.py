"""``echelons breakers``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.circuit_breakers import TreeBreakers
from echelons.guards.circuit_breaker import AttemptOutcome

Call = Callable[..., Result]


def fail(agent: str, times: int) -> None:
    with SqliteCheckpointer("trips.sqlite") as saver:
        breakers = TreeBreakers(saver.ledger, "head")
        for _ in range(times):
            breakers.note(agent, "head", breakers.admit(agent), AttemptOutcome.FAILED)


def test_who_failed_is_listed_with_its_state(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")
    fail("clerk", 3)
    fail("porter", 1)

    told = echelons("breakers").stdout.splitlines()

    assert told[0].startswith("head/clerk: open, 3 failures in a row, tried again in ")
    assert told[1] == "head/porter: closed, 1 failure in a row"


def test_programs_get_json_lines(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")
    fail("clerk", 3)

    [line] = echelons("breakers", "--json").stdout.splitlines()

    told = json.loads(line)
    assert (told["tree"], told["agent"], told["state"], told["failures"]) == (
        "head",
        "clerk",
        "open",
        3,
    )


def test_a_circuit_is_closed_by_hand(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")
    fail("clerk", 3)

    closed = echelons("breakers", "--close", "clerk")

    assert (closed.exit_code, closed.stdout) == (0, "")
    assert "every circuit is closed" in closed.stderr
    with SqliteCheckpointer("trips.sqlite") as saver:
        assert TreeBreakers(saver.ledger, "head").admit("clerk").admitted


def test_a_circuit_that_there_is_not_is_refused(echelons: Call, folder: Path) -> None:
    echelons("run", "trips:unable", "A room", "--thread", "rome")
    fail("clerk", 1)

    refused = echelons("breakers", "--close", "clerc")

    assert refused.exit_code == 3
    assert "'clerc'" in refused.stderr
    assert "clerk" in refused.stderr
