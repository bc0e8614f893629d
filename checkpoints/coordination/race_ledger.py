"""``TreeRaces``: the races of one run, over the ledger that goes with the run's saver.

Only one process runs a thread, so what it has read once, and what it writes itself, is all
there is to know.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from echelons.checkpoints.ledger import Fence, Ledger, Transaction, key
from echelons.checkpoints.queries import InLedger, Plan
from echelons.delegation.race import Entrant


class TreeRaces:
    """Says who of those that were asked side by side has lost. Safe for any number of threads.

    Args:
        ledger: Keeps who has won.
        thread_id: LangGraph's id of the thread.
        turn: The root's turn; its races end with it.
        fence: The lease under which the run goes; without it nobody wins any more.

    Attributes:
        moot: Whether a race has ended while one of its entrants waited for an answer.
    """

    def __init__(
        self, ledger: Ledger, thread_id: str, turn: str, fence: Fence | None = None
    ) -> None:
        self.moot = False
        self._ledger = ledger
        self._thread_id = thread_id
        self._turn = turn
        self._fence = fence
        self._lock = Lock()
        self._placed: dict[str, list[int]] = {}
        self._waiting: list[Entrant] = []
        self._listeners: dict[Callable[[], None], Entrant] = {}

    def begin(self) -> None:
        """Forget who has waited: a run begins, and whoever still waits says so again."""
        with self._lock:
            self.moot = False
            self._waiting.clear()

    def place(self, entrant: Entrant) -> int:
        """Write down that an entrant has fulfilled its task; return its place, 1 for the first.

        Raises:
            LeaseLost: Somebody else runs the thread now.
            StorageError: The ledger could not be written.
        """
        placed = self._ledger.commit(lambda open_: self._written(open_, entrant))
        with self._lock:
            # Of two who come in at the same time, the first may be the last to get here.
            known = self._placed.get(entrant.race, [])
            self._placed[entrant.race] = max(known, placed, key=len)
            self.moot = self.moot or any(map(self._is_lost, self._waiting))
            told = [tell for tell, each in self._listeners.items() if self._is_lost(each)]
        for tell in told:
            tell()
        return placed.index(entrant.group) + 1

    async def aplace(self, entrant: Entrant) -> int:
        """Do what ``place`` does in an event loop."""
        return await self._ledger.arun(lambda: self.place(entrant))

    def has_lost(self, entrant: Entrant) -> bool:
        """Return whether a race is over, and without an entrant.

        Raises:
            StorageError: The ledger could not be read.
        """
        if entrant.enough and entrant.race not in self._placed:
            read = self._ledger.look(lambda open_: _read(open_, self._key(entrant.race)))
            with self._lock:
                self._placed.setdefault(entrant.race, read)
        with self._lock:
            return self._is_lost(entrant)

    async def ahas_lost(self, entrant: Entrant) -> bool:
        """Do what ``has_lost`` does in an event loop."""
        return await self._ledger.arun(lambda: self.has_lost(entrant))

    def waits(self, entrant: Entrant) -> bool:
        """Take note that an entrant waits for an answer; return whether it still has to."""
        with self._lock:
            self._waiting.append(entrant)
            return not self._is_lost(entrant)

    def listen(self, entrant: Entrant, told: Callable[[], None]) -> Callable[[], None]:
        """Have somebody told, from any thread, when an entrant has lost; return what ends that."""

        def tell() -> None:  # one of its own, for a caller may listen twice
            told()

        with self._lock:
            self._listeners[tell] = entrant
            lost = self._is_lost(entrant)
        if lost:
            tell()

        def leave() -> None:
            with self._lock:
                self._listeners.pop(tell, None)

        return leave

    def _is_lost(self, entrant: Entrant) -> bool:
        return entrant.has_lost(self._placed.get(entrant.race, []))

    def _written(self, open_: Transaction, entrant: Entrant) -> list[int]:
        if self._fence:
            open_.require(self._fence)
        name = self._key(entrant.race)
        found = open_.get(name)
        placed: list[int] = list(found.value) if found else []
        if entrant.group not in placed:
            placed.append(entrant.group)
            open_.compare_and_set(name, found.version if found else None, placed)
        return placed

    def _key(self, race: str) -> str:
        return _race_key(self._thread_id, self._turn, race)


def lost_plan(thread_id: str, turn: str, entrant: Entrant) -> Plan[bool]:
    """Return whether a race of a stored run is over, and without an entrant."""
    if not entrant.enough:
        return False
    name = _race_key(thread_id, turn, entrant.race)
    placed: list[int] = yield InLedger(lambda ledger: ledger.look(lambda open_: _read(open_, name)))
    return entrant.has_lost(placed)


def _race_key(thread_id: str, turn: str, race: str) -> str:
    return f"{key(thread_id, 'race', turn)}/{race}"


def _read(open_: Transaction, name: str) -> list[int]:
    found = open_.get(name)
    return list(found.value) if found else []
