"""The circuits of a tree are one for all who share its ledger, and outlive them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.circuit_breakers import (
    CircuitStatus,
    TreeBreakers,
    list_circuits,
)
from echelons.checkpoints.ledger import Ledger, MemoryLedger
from echelons.guards.circuit_breaker import (
    AttemptOutcome,
    BreakerPolicy,
    CircuitState,
    FailureIntensity,
)
from echelons.testing import FakeClock


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    if request.param == "memory":
        return MemoryLedger()
    return SqliteCheckpointer(tmp_path / "t.sqlite").ledger


class Calendar(FakeClock):
    """A clock that shows a date, as the ledger wants it."""

    def __call__(self) -> datetime:
        return datetime.fromtimestamp(self.now(), UTC)


@pytest.fixture
def clock() -> Calendar:
    return Calendar()


def fail(breakers: TreeBreakers, times: int = 3, agent: str = "eat") -> None:
    for _ in range(times):
        breakers.note(agent, "head", breakers.admit(agent), AttemptOutcome.FAILED)


def test_all_threads_of_a_tree_share_a_circuit_and_other_trees_do_not(
    ledger: Ledger, clock: Calendar
) -> None:
    fail(TreeBreakers(ledger, "travel", clock=clock))

    assert not TreeBreakers(ledger, "travel", clock=clock).admit("eat").admitted
    assert TreeBreakers(ledger, "travel", clock=clock).admit("walk").admitted
    assert TreeBreakers(ledger, "research", clock=clock).admit("eat").admitted


def test_of_a_thousand_who_ask_at_once_exactly_one_is_the_probe(
    ledger: Ledger, clock: Calendar
) -> None:
    breakers = TreeBreakers(ledger, "travel", clock=clock)
    fail(breakers)
    clock.advance(60)
    together = threading.Barrier(8)

    def ask(number: int) -> bool:
        if number < 8:
            together.wait(10)
        return breakers.admit("eat").admitted

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(1000))) == 1


def test_a_circuit_survives_the_death_of_its_process(tmp_path: Path, clock: Calendar) -> None:
    script = f"""
import os, signal
from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.circuit_breakers import TreeBreakers
from echelons.guards.circuit_breaker import AttemptOutcome
breakers = TreeBreakers(SqliteCheckpointer({str(tmp_path / "t.sqlite")!r}).ledger, "travel")
for _ in range(3):
    breakers.note("eat", "head", breakers.admit("eat"), AttemptOutcome.FAILED)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False, env={**os.environ})

    assert killed.returncode == -signal.SIGKILL
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        assert not TreeBreakers(saver.ledger, "travel").admit("eat").admitted


def test_a_success_writes_nothing_while_nothing_has_failed(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        breakers = TreeBreakers(saver.ledger, "travel")
        before = saver.conn.total_changes

        breakers.note("eat", "head", breakers.admit("eat"), AttemptOutcome.ANSWERED)

        assert saver.conn.total_changes == before


def test_an_end_that_says_nothing_gives_the_probe_back(ledger: Ledger, clock: Calendar) -> None:
    breakers = TreeBreakers(ledger, "travel", clock=clock)
    fail(breakers)
    clock.advance(60)
    breakers.note("eat", "head", breakers.admit("eat"), AttemptOutcome.NOTHING)

    assert breakers.admit("eat").admitted
    assert not breakers.admit("eat").admitted


def test_a_superior_gives_up_after_too_many_failures_within_a_time(
    ledger: Ledger, clock: Calendar
) -> None:
    rules = BreakerPolicy(failures=100, intensity=3, period=60)
    breakers = TreeBreakers(ledger, "travel", rules, clock)

    def failed(name: str, superior: str = "head") -> FailureIntensity | None:
        return breakers.note(name, superior, breakers.admit(name), AttemptOutcome.FAILED)

    counted = [failed(name) for name in ("a", "b", "c", "d")]
    elsewhere = failed("a", "head/north")
    clock.advance(61)

    assert counted == [None, None, None, FailureIntensity(4, 60)]
    assert elsewhere is None
    assert failed("a") is None


def test_without_an_intensity_nobody_gives_up(ledger: Ledger, clock: Calendar) -> None:
    breakers = TreeBreakers(ledger, "travel", BreakerPolicy(intensity=None), clock)

    for _ in range(50):
        assert breakers.note("a", "head", breakers.admit("a"), AttemptOutcome.FAILED) is None


def test_people_are_shown_every_circuit(ledger: Ledger, clock: Calendar) -> None:
    breakers = TreeBreakers(ledger, "travel", clock=clock)
    fail(breakers)
    fail(breakers, times=1, agent="walk")
    clock.advance(20)

    assert list_circuits(ledger, clock=clock) == [
        CircuitStatus("travel", "eat", CircuitState.OPEN, 3, 40.0),
        CircuitStatus("travel", "walk", CircuitState.CLOSED, 1, 0.0),
    ]


def test_people_are_shown_how_long_a_circuit_stays_open_by_its_own_rules(
    ledger: Ledger, clock: Calendar
) -> None:
    rules = BreakerPolicy(failures=1, seconds=600)
    breakers = TreeBreakers(ledger, "travel", rules, clock)
    fail(breakers, times=1)
    clock.advance(100)

    [shown] = list_circuits(ledger, clock=clock)

    asked = breakers.admit("eat")
    assert (shown.state, shown.wait) == (CircuitState.OPEN, 500.0)
    assert (asked.admitted, asked.wait) == (False, shown.wait), "what people see is what is done"
