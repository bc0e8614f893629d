"""The first answer of a race is stored once, and every reader sees the same winner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from echelons import SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import TreeRaces, plan_has_lost
from echelons.checkpoints.ledger import Ledger, MemoryLedger, build_key
from echelons.checkpoints.queries import run_plan
from echelons.delegation.join import RaceEntry
from echelons.errors import LeaseLost, UnreadableRecord


def entrant(group: int, enough: int = 1, race: str = "r") -> RaceEntry:
    return RaceEntry(race, group, enough)


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A ledger of each kind."""
    if request.param == "memory":
        yield MemoryLedger()
    else:
        with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
            yield saver.ledger


def races(ledger: Ledger, turn: str = "turn", **more: Any) -> TreeRaces:
    return TreeRaces(ledger, "thread", turn, **more)


def stored(ledger: Ledger, turn: str = "turn", race: str = "r") -> list[int]:
    found = ledger.get(f"{build_key('thread', 'race', turn)}/{race}")
    return list(found.value) if found else []


# Places


def test_places_are_in_the_order_of_the_ends(ledger: Ledger) -> None:
    run = races(ledger)

    assert [run.place(entrant(group, 2)) for group in (3, 1, 2)] == [1, 2, 3]
    assert stored(ledger) == [3, 1, 2]


def test_entrant_keeps_its_place(ledger: Ledger) -> None:
    run = races(ledger)
    run.place(entrant(1, 2))
    run.place(entrant(2, 2))

    assert run.place(entrant(1, 2)) == 1
    assert races(ledger).place(entrant(2, 2)) == 2, "also for who comes after a crash"
    assert stored(ledger) == [1, 2]


def test_of_many_at_the_same_time_each_has_a_place_of_its_own(ledger: Ledger) -> None:
    run, start = races(ledger), Barrier(8)

    def come_in(group: int) -> int:
        start.wait()
        return run.place(entrant(group, 8))

    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(come_in, range(8)))

    assert sorted(places) == list(range(1, 9))
    assert [places[group] for group in stored(ledger)] == list(range(1, 9))


async def test_in_an_event_loop_it_is_the_same(ledger: Ledger) -> None:
    run = races(ledger)

    assert not await run.arun(lambda: run.has_lost(entrant(1)))
    assert await run.arun(lambda: run.place(entrant(2))) == 1
    assert await run.arun(lambda: run.has_lost(entrant(1)))


def test_agent_without_lease_wins_nothing(ledger: Ledger) -> None:
    with ledger.lease(build_key("thread")) as lease:
        fence = lease.fence
    with ledger.lease(build_key("thread")), pytest.raises(LeaseLost):
        races(ledger, fence=fence).place(entrant(1))

    assert stored(ledger) == []


# Losers


def test_late_entrant_has_lost_when_enough_are_in(ledger: Ledger) -> None:
    run = races(ledger)
    lost: list[bool] = []
    for group in (1, 2):
        run.place(entrant(group, 2))
        lost.append(run.has_lost(entrant(3, 2)))

    assert lost == [False, True]
    assert not run.has_lost(entrant(1, 2))


def test_another_run_knows_the_losers(ledger: Ledger) -> None:
    races(ledger).place(entrant(1))

    assert races(ledger).has_lost(entrant(2))
    assert not races(ledger).has_lost(entrant(1))


@pytest.mark.parametrize("other", [{"race": "s"}, {"enough": 2}, {"enough": 0}])
def test_a_race_decides_nothing_else(ledger: Ledger, other: dict[str, Any]) -> None:
    run = races(ledger)
    run.place(entrant(1))

    assert not run.has_lost(entrant(2, **{"enough": 1, **other}))


def test_a_race_ends_with_its_turn(ledger: Ledger) -> None:
    races(ledger, "one").place(entrant(1))

    assert not races(ledger, "two").has_lost(entrant(2))


class Slow(MemoryLedger):
    """A ledger whose first commit tells what came of it late."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.told = Event(), Event()

    def commit(self, work: Callable[[Any], Any]) -> Any:
        result = super().commit(work)
        if not self.written.is_set():
            self.written.set()
            self.told.wait(30)
        return result


def test_late_place_does_not_undo_a_later_one() -> None:
    ledger = Slow()
    run = races(ledger)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run.place, entrant(1, 2))
        ledger.written.wait(30)
        assert run.place(entrant(2, 2)) == 2
        ledger.told.set()
        assert first.result() == 1

    assert run.has_lost(entrant(3, 2))


# Who waits, and who listens


def test_race_that_ends_makes_waits_of_others_moot(ledger: Ledger) -> None:
    run = races(ledger)
    assert [run.has_obsolete_interrupt, run.register_waiting(entrant(1))] == [False, True]

    run.place(entrant(2))

    assert [run.has_obsolete_interrupt, run.register_waiting(entrant(1))] == [True, False]


def test_wait_of_needed_agent_is_not_moot(ledger: Ledger) -> None:
    run = races(ledger)
    run.register_waiting(entrant(1, 2))

    run.place(entrant(2, 2))

    assert not run.has_obsolete_interrupt


def test_new_run_forgets_waiting_agents_of_the_previous_one(ledger: Ledger) -> None:
    run = races(ledger)
    run.register_waiting(entrant(1))
    run.place(entrant(2))

    run.begin()
    run.place(entrant(1, race="another"))

    assert not run.has_obsolete_interrupt
    assert run.has_lost(entrant(1)), "who has lost has lost"


def test_listener_hears_of_its_loss_once_and_nothing_after_leaving(ledger: Ledger) -> None:
    run, told = races(ledger), list[str]()
    run.listen(entrant(1), lambda: told.append("a"))
    leave = run.listen(entrant(3), lambda: told.append("c"))
    run.listen(entrant(2), lambda: told.append("b"))
    leave()

    run.place(entrant(2))

    assert told == ["a"]
    run.listen(entrant(4), lambda: told.append("d"))
    assert told == ["a", "d"], "who comes too late is told at once"


# What is stored


def test_stored_race_names_losers_without_a_run(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        races(saver.ledger).place(entrant(1))
        found = [
            run_plan(saver, plan_has_lost("thread", turn, each))
            for turn, each in [
                ("turn", entrant(1)),
                ("turn", entrant(2)),
                ("turn", entrant(2, 0)),
                ("turn", entrant(2, race="s")),
                ("other", entrant(2)),
            ]
        ]

    assert found == [False, True, False, False, False]


@pytest.mark.parametrize(
    "damaged", [None, "r", 5, [], ["r"], ["r", 1], ["r", "1", 1], [1, 1, 1], ["r", 1, 1, 1], {}]
)
def test_an_entrant_that_is_damaged_is_refused_by_name(damaged: Any) -> None:
    with pytest.raises(UnreadableRecord, match="RaceEntry"):
        RaceEntry.load(damaged)


def test_an_entrant_comes_back_as_it_was_stored() -> None:
    assert RaceEntry.load(entrant(2, 3).stored()) == entrant(2, 3)
