"""The circuits of a tree are one for all who share its ledger, and outlive them."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import CircuitStatus, TreeBreakers, list_circuits
from echelons.checkpoints.ledger import Ledger, MemoryLedger
from echelons.guards.circuit_breaker import (
    AttemptOutcome,
    BreakerPolicy,
    CircuitState,
    FailureIntensity,
)
from echelons.testing import FakeClock
from tests.fork_server import ForkServer


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


def fail(breakers: TreeBreakers, times: int = 3, path: str = "head/eat") -> None:
    for _ in range(times):
        breakers.note(path, breakers.admit(path), AttemptOutcome.FAILED)


def test_all_threads_of_a_tree_share_a_circuit_and_other_trees_do_not(
    ledger: Ledger, clock: Calendar
) -> None:
    fail(TreeBreakers(ledger, clock=clock))

    again = TreeBreakers(ledger, clock=clock)
    assert not again.admit("head/eat").admitted
    assert again.admit("head/walk").admitted
    assert again.admit("research/eat").admitted


def test_agents_of_one_name_at_two_places_have_circuits_of_their_own(
    ledger: Ledger, clock: Calendar
) -> None:
    breakers = TreeBreakers(ledger, clock=clock)
    fail(breakers, path="head/north/eat")

    assert not breakers.admit("head/north/eat").admitted
    assert breakers.admit("head/south/eat").admitted


def test_trees_with_the_same_paths_are_kept_apart_by_their_scopes(
    ledger: Ledger, clock: Calendar
) -> None:
    rules = BreakerPolicy(intensity=3)
    fail(TreeBreakers(ledger, "acme", rules, clock))

    assert not TreeBreakers(ledger, "acme", rules, clock).admit("head/eat").admitted
    for scope in ("", "acme-2"):
        other = TreeBreakers(ledger, scope, rules, clock)
        admission = other.admit("head/eat")
        assert (admission.admitted, admission.failures) == (True, 0)
        assert other.note("head/walk", admission, AttemptOutcome.FAILED) is None


def test_exactly_one_of_a_thousand_requests_is_the_probe(ledger: Ledger, clock: Calendar) -> None:
    breakers = TreeBreakers(ledger, clock=clock)
    fail(breakers)
    clock.advance(60)
    together = threading.Barrier(8)

    def ask(number: int) -> bool:
        if number < 8:
            together.wait(120)
        return breakers.admit("head/eat").admitted

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(1000))) == 1


def test_a_circuit_survives_the_death_of_its_process(
    tmp_path: Path, clock: Calendar, fork_server: ForkServer
) -> None:
    script = f"""
import os, signal
from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import TreeBreakers
from echelons.guards.circuit_breaker import AttemptOutcome
breakers = TreeBreakers(SqliteCheckpointer({str(tmp_path / "t.sqlite")!r}).ledger)
for _ in range(3):
    breakers.note("head/eat", breakers.admit("head/eat"), AttemptOutcome.FAILED)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = fork_server.run("-c", script)

    assert killed.returncode == -signal.SIGKILL
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        assert not TreeBreakers(saver.ledger).admit("head/eat").admitted


def test_a_success_writes_nothing_while_nothing_has_failed(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        breakers = TreeBreakers(saver.ledger)
        before = saver.conn.total_changes

        breakers.note("head/eat", breakers.admit("head/eat"), AttemptOutcome.ANSWERED)

        assert saver.conn.total_changes == before


def test_an_end_that_says_nothing_gives_the_probe_back(ledger: Ledger, clock: Calendar) -> None:
    breakers = TreeBreakers(ledger, clock=clock)
    fail(breakers)
    clock.advance(60)
    breakers.note("head/eat", breakers.admit("head/eat"), AttemptOutcome.NOTHING)

    assert breakers.admit("head/eat").admitted
    assert not breakers.admit("head/eat").admitted


def test_a_superior_gives_up_after_too_many_failures_within_a_time(
    ledger: Ledger, clock: Calendar
) -> None:
    rules = BreakerPolicy(failures=100, intensity=3, period=60)
    breakers = TreeBreakers(ledger, "", rules, clock)

    def failed(path: str) -> FailureIntensity | None:
        return breakers.note(path, breakers.admit(path), AttemptOutcome.FAILED)

    counted = [failed(f"head/{name}") for name in ("a", "b", "c", "d")]
    elsewhere = failed("head/north/a")
    clock.advance(61)

    assert counted == [None, None, None, FailureIntensity(4, 60)]
    assert elsewhere is None
    assert failed("head/a") is None


def test_no_agent_gives_up_without_an_intensity(ledger: Ledger, clock: Calendar) -> None:
    breakers = TreeBreakers(ledger, "", BreakerPolicy(intensity=None), clock)

    for _ in range(50):
        assert breakers.note("head/a", breakers.admit("head/a"), AttemptOutcome.FAILED) is None


def test_people_are_shown_every_circuit(ledger: Ledger, clock: Calendar) -> None:
    breakers = TreeBreakers(ledger, clock=clock)
    fail(breakers)
    fail(breakers, times=1, path="head/north/walk")
    fail(TreeBreakers(ledger, "acme", clock=clock), times=2)
    clock.advance(20)

    assert list_circuits(ledger, clock=clock) == [
        CircuitStatus("head", "eat", CircuitState.OPEN, 3, 40.0, "head/eat"),
        CircuitStatus("head", "walk", CircuitState.CLOSED, 1, 0.0, "head/north/walk"),
        CircuitStatus("head", "eat", CircuitState.CLOSED, 2, 0.0, "head/eat", "acme"),
    ]


def test_people_are_shown_how_long_a_circuit_stays_open_by_its_own_rules(
    ledger: Ledger, clock: Calendar
) -> None:
    rules = BreakerPolicy(failures=1, seconds=600)
    breakers = TreeBreakers(ledger, "", rules, clock)
    fail(breakers, times=1)
    clock.advance(100)

    [shown] = list_circuits(ledger, clock=clock)

    asked = breakers.admit("head/eat")
    assert (shown.state, shown.wait) == (CircuitState.OPEN, 500.0)
    assert (asked.admitted, asked.wait) == (False, shown.wait), "what people see is what is done"
