"""`TreeRaces`: the races of one run, kept in the ledger of the run's saver.

Only one process runs a thread, so each race is read once and then kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final, TypeVar

from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Fence, Ledger, Transaction
from echelons.checkpoints.queries import LedgerQuery, ReadPlan
from echelons.delegation.race import RaceEntry

T = TypeVar("T")
RACE: Final = Records[list[int]]("race", list[int], raw=2)
"""The groups that have fulfilled their task, in order, by the turn and the race."""


class TreeRaces:
    """Decides which of the subordinates asked at once have lost. Safe for any number of threads."""

    def __init__(
        self, ledger: Ledger, thread_id: str, turn: str, fence: Fence | None = None
    ) -> None:
        # Whether a race has ended while one of its entrants waited for a human's answer.
        self.has_obsolete_question = False
        self._ledger = ledger
        self._thread_id = thread_id
        self._turn = turn
        # Once the lease is lost, no entrant can win.
        self._fence = fence
        self._lock = Lock()
        self._places: dict[str, list[int]] = {}
        self._waiting: list[RaceEntry] = []
        self._listeners: dict[Callable[[], None], RaceEntry] = {}

    def begin(self) -> None:
        """Forget the waiting entrants: a run begins, in which they register again."""
        with self._lock:
            self.has_obsolete_question = False
            self._waiting.clear()

    def place(self, entrant: RaceEntry) -> int:
        """Record that an entrant has fulfilled its task; return its place, 1 for the first.

        Raises:
            LeaseLost: Another run has the thread now.
        """
        group = entrant.group

        def add(placed: list[int] | None) -> list[int]:
            placed = placed or []
            return placed if group in placed else [*placed, group]

        def record(open_: Transaction) -> list[int]:
            if self._fence:
                open_.require_lease(self._fence)
            return RACE.change(open_, add, self._thread_id, self._turn, entrant.race)

        placed = self._ledger.commit(record)
        with self._lock:
            # Of two that commit at the same time, the first may be the last to get here.
            earlier = self._places.get(entrant.race, [])
            self._places[entrant.race] = max(earlier, placed, key=len)
            self.has_obsolete_question = self.has_obsolete_question or any(
                map(self._is_lost, self._waiting)
            )
            losers = [tell for tell, entry in self._listeners.items() if self._is_lost(entry)]
        for tell in losers:
            tell()
        return placed.index(entrant.group) + 1

    def has_lost(self, entrant: RaceEntry) -> bool:
        """Return whether a race is over and an entrant has not won."""
        if entrant.enough and entrant.race not in self._places:
            name = self._thread_id, self._turn, entrant.race
            places = self._ledger.query(lambda open_: RACE.get(open_, *name))
            with self._lock:
                self._places.setdefault(entrant.race, places or [])
        with self._lock:
            return self._is_lost(entrant)

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; all of it again if the ledger was busy."""
        return await self._ledger.arun(work)

    def register_waiting(self, entrant: RaceEntry) -> bool:
        """Register that an entrant waits for a human's answer; return whether it still needs it."""
        with self._lock:
            self._waiting.append(entrant)
            return not self._is_lost(entrant)

    def listen(self, entrant: RaceEntry, callback: Callable[[], None]) -> Callable[[], None]:
        """Add a listener, called from any thread once an entrant has lost; return its removal."""

        # A new function each time, for a caller may add the same listener twice.
        def notify() -> None:
            callback()

        with self._lock:
            self._listeners[notify] = entrant
            lost = self._is_lost(entrant)
        if lost:
            notify()

        def remove() -> None:
            with self._lock:
                self._listeners.pop(notify, None)

        return remove

    def _is_lost(self, entrant: RaceEntry) -> bool:
        return entrant.has_lost(self._places.get(entrant.race, []))


def plan_has_lost(thread_id: str, turn: str, entrant: RaceEntry) -> ReadPlan[bool]:
    """Plan: whether a race of a stored run is over and an entrant has not won."""
    if not entrant.enough:
        return False
    places: list[int] | None = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: RACE.get(open_, thread_id, turn, entrant.race))
    )
    return entrant.has_lost(places or [])
