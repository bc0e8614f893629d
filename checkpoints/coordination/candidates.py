"""What decides between candidates: the breakers of a tree's agents, and the races of a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import cache, partial
from threading import Lock
from typing import Final, NamedTuple, TypeVar

from pydantic import FiniteFloat

from echelons.checkpoints.clock import Clock, utc_now
from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Fence, Json, Ledger, RecordKind, Transaction
from echelons.checkpoints.queries import LedgerQuery, ReadPlan
from echelons.delegation.join import RaceEntry
from echelons.errors import DelegationError, LedgerDamaged
from echelons.guards.circuit_breaker import (
    Admission,
    AttemptOutcome,
    BreakerPolicy,
    Circuit,
    Circuits,
    CircuitState,
    FailureIntensity,
)
from echelons.tree.names import PATH_SEPARATOR

T = TypeVar("T")
LOG = logging.getLogger(__name__)
CIRCUIT: Final[RecordKind[Circuit]] = RecordKind("circuit", Circuit)
"""The circuit of an agent; a damaged one counts as closed."""
INTENSITY: Final[RecordKind[list[float]]] = RecordKind("intensity", list[FiniteFloat])
"""The times of the latest failures below a superior, in seconds since 1970."""


class CircuitStatus(NamedTuple):
    """The current status of an agent's circuit, for display."""

    tree: str
    agent: str
    state: CircuitState
    failures: int
    # Seconds until the agent is tried again.
    wait: float
    # Begins with the tree's root.
    path: str
    # The `breaker_scope` of the tree.
    scope: str = ""


class TreeBreakers(Circuits):
    """The circuits of one tree, kept by the paths of its agents.

    All threads of a tree share its circuits, and an agent that is added changes no other's.
    """

    def __init__(
        self,
        ledger: Ledger,
        scope: str = "",
        rules: BreakerPolicy | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._ledger = ledger
        # Keeps them apart from those of other trees with the same paths.
        self._scope = scope
        self._rules = rules or BreakerPolicy()
        self._clock = clock

    def admit(self, path: str) -> Admission:
        """Return whether an agent may be called now."""
        name = self._build_key(path)
        # Most circuits are closed, and then no write is needed.
        circuit, _ = self._ledger.query(lambda open_: _load_record(open_, CIRCUIT, name, Circuit()))
        if circuit.opened_at is None:
            return Admission(admitted=True, failures=circuit.failures)
        return self._ledger.commit(
            lambda open_: _update_circuit(
                open_, name, lambda before: before.admit(self._rules, self._now())
            )
        )

    def note(
        self, path: str, admission: Admission, outcome: AttemptOutcome
    ) -> FailureIntensity | None:
        """Record the outcome of an admitted call; return failures beyond the superior's limit."""
        if outcome is AttemptOutcome.FAILED:
            at = self._now()

            def note(open_: Transaction) -> int:
                _update_circuit(
                    open_,
                    self._build_key(path),
                    lambda circuit: (
                        circuit.record_failure(self._rules, at, admission.probe),
                        None,
                    ),
                )
                return self._count_failure(open_, path.rpartition(PATH_SEPARATOR)[0], at)

            failures = self._ledger.commit(note)
            return FailureIntensity(failures, self._rules.period) if failures else None
        # Most calls go well, and then there is no failure to clear.
        if outcome is AttemptOutcome.ANSWERED and (admission.failures or admission.probe):
            self._update(path, lambda circuit: circuit.record_success(admission.probe))
        elif outcome is AttemptOutcome.NOTHING and admission.probe:
            self._update(path, lambda circuit: circuit.release_probe(admission.probe))
        return None

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; all of it again if the ledger was busy."""
        return await self._ledger.arun(work)

    def _update(self, path: str, change: Callable[[Circuit], Circuit]) -> None:
        name = self._build_key(path)
        self._ledger.commit(
            lambda open_: _update_circuit(open_, name, lambda before: (change(before), None))
        )

    def _count_failure(self, open_: Transaction, superior: str, at: float) -> int:
        if self._rules.intensity is None:
            return 0
        name = "/".join((INTENSITY.name, self._scope, superior))
        times, version = _load_record(open_, INTENSITY, name, [])
        recent = [then for then in times if abs(at - then) < self._rules.period]
        recent = [*recent, at][-self._rules.intensity - 1 :]
        _store_record(open_, name, version, recent)
        return len(recent) if len(recent) > self._rules.intensity else 0

    def _build_key(self, path: str) -> str:
        return "/".join((CIRCUIT.name, self._scope, path))

    def _now(self) -> float:
        return self._clock().timestamp()


def list_circuits(ledger: Ledger, clock: Clock = utc_now) -> list[CircuitStatus]:
    """Return the circuits of a ledger, by scope and path.

    Each is judged by the rules that opened it: the tree's own rules are not known here.
    """
    at = clock().timestamp()
    statuses: list[CircuitStatus] = []
    for name, (scope, path) in ledger.query(_list_places).items():
        circuit, _ = ledger.query(partial(_load_record, kind=CIRCUIT, name=name, empty=Circuit()))
        rules = BreakerPolicy(seconds=circuit.seconds)
        _, admission = circuit.admit(rules, at)
        names, state = path.split(PATH_SEPARATOR), circuit.get_state(rules, at)
        status = CircuitStatus(
            names[0], names[-1], state, circuit.failures, admission.wait, path, scope
        )
        statuses.append(status)
    return statuses


def close_circuits(ledger: Ledger, agent: str) -> None:
    """Close the circuit of an agent by hand, in every scope.

    Raises:
        DelegationError: It has none, for it has not failed since its last answer.
    """

    def close(open_: Transaction) -> None:
        paths = {name: path for name, (_, path) in _list_places(open_).items()}
        wanted = [
            name
            for name, path in paths.items()
            if agent in (path, path.rpartition(PATH_SEPARATOR)[2])
        ]
        if not wanted:
            raise DelegationError(
                "{agent:short} has not failed, so there is no circuit to close; those that have: "
                "{known}",
                code="no_circuit",
                agent=agent,
                known=(*sorted({*paths.values()}),),
            )
        for name in wanted:
            open_.discard(name)

    ledger.commit(close)


def _list_places(open_: Transaction) -> dict[str, tuple[str, str]]:
    """Return the scope and path of each circuit, by key."""
    places: dict[str, tuple[str, str]] = {}
    for name in open_.list_keys(f"{CIRCUIT.name}/"):
        match name.split("/", 2):
            case [_, scope, path]:
                places[name] = scope, path
    return places


def _load_record(
    open_: Transaction, kind: RecordKind[T], name: str, empty: T
) -> tuple[T, int | None]:
    """Return a record and its version; an empty one for one that is damaged.

    A circuit is shared by all threads of a tree, and none of them may end because of it.
    """
    try:
        record = open_.get_record(kind, name)
    except LedgerDamaged as error:
        _log_damage(str(error))
        record = None
    return (record.value, record.version) if record else (empty, None)


def _store_record(open_: Transaction, name: str, version: int | None, value: Json) -> None:
    if version is None:
        # One that is damaged counts as none.
        open_.discard(name)
    open_.compare_and_set(name, version, value)


@cache
def _log_damage(why: str) -> None:
    # Once: a circuit is read before each request.
    LOG.warning("a circuit counts as closed: %s", why)


def _update_circuit(
    open_: Transaction, name: str, change: Callable[[Circuit], tuple[Circuit, T]]
) -> T:
    before, version = _load_record(open_, CIRCUIT, name, Circuit())
    after, result = change(before)
    if after != before:
        _store_record(open_, name, version, asdict(after))
    return result


RACE: Final = Records[list[int]]("race", list[int], raw=2)
"""The groups that have fulfilled their task, in order, by the turn and the race."""


class TreeRaces:
    """Decides which of the subordinates asked at once have lost. Safe for any number of threads."""

    def __init__(
        self, ledger: Ledger, thread_id: str, turn: str, fence: Fence | None = None
    ) -> None:
        # Whether a race has ended while one of its entrants waited for a human's answer.
        self.has_obsolete_interrupt = False
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
            self.has_obsolete_interrupt = False
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
            self.has_obsolete_interrupt = self.has_obsolete_interrupt or any(
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
