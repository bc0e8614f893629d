"""`Breakers`: the circuit breakers of a tree's agents, kept in the ledger.

The graph's state would not do: parallel tasks do not see each other's, and would let through any
number of failing calls. Every change is one transaction, so of a thousand concurrent callers
exactly one is the probe, in any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import NamedTuple, TypeVar

from echelons.checkpoints.clock import Clock, now
from echelons.checkpoints.ledger import Ledger, Transaction
from echelons.errors import NoCircuit
from echelons.guards.circuit_breaker import (
    Admission,
    Breaking,
    Circuit,
    CircuitState,
    End,
    Intensity,
)

T = TypeVar("T")
PREFIX = "breaker"
INTENSITY = "intensity"


class Standing(NamedTuple):
    """The current status of an agent's circuit, for display.

    Attributes:
        tree: Name of the tree's root.
        agent: Name of the agent.
        state: Whether the circuit is open.
        failures: Consecutive failures.
        wait: Seconds until the agent is tried again.
    """

    tree: str
    agent: str
    state: CircuitState
    failures: int
    wait: float


class Breakers:
    """The circuits of one tree.

    Args:
        ledger: The ledger they are kept in.
        tree: Name of the tree's root; threads of the same tree share its circuits.
        rules: When circuits open.
        clock: Tells the time.
    """

    def __init__(
        self, ledger: Ledger, tree: str, rules: Breaking | None = None, clock: Clock = now
    ) -> None:
        self._ledger = ledger
        self._tree = tree
        self._rules = rules or Breaking()
        self._clock = clock

    def admit(self, agent: str) -> Admission:
        """Return whether an agent may be called now.

        Raises:
            StorageError: The ledger could not be read or written.
        """
        name = self._key(agent)
        # Most circuits are closed, and then no write is needed.
        circuit = self._ledger.look(lambda open_: _load(open_, name))
        if circuit.opened_at is None:
            return Admission(admitted=True, failures=circuit.failures)
        return self._ledger.commit(
            lambda open_: _change(
                open_, name, lambda before: before.admit(self._rules, self._now())
            )
        )

    def note(
        self, agent: str, superior: str, admission: Admission, came_to: End
    ) -> Intensity | None:
        """Record the outcome of an admitted call.

        Args:
            agent: Name of the agent.
            superior: Path of its superior.
            admission: The admission of the call.
            came_to: The call's outcome.

        Returns:
            The failures below the superior, if they exceed its limit.

        Raises:
            StorageError: The ledger could not be read or written.
        """
        if came_to is End.FAILED:
            return self._failed(agent, superior, admission.probe)
        # Most calls go well, and then there is no failure to clear.
        if came_to is End.ANSWERED and (admission.failures or admission.probe):
            self._note(agent, lambda circuit: circuit.succeeded(admission.probe))
        elif came_to is End.NOTHING and admission.probe:
            self._note(agent, lambda circuit: circuit.given_back(admission.probe))
        return None

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; all of it again if the ledger was busy."""
        return await self._ledger.arun(work)

    def _failed(self, agent: str, superior: str, probe: int) -> Intensity | None:
        at = self._now()

        def note(open_: Transaction) -> int:
            _change(
                open_,
                self._key(agent),
                lambda circuit: (circuit.failed(self._rules, at, probe), None),
            )
            return self._count(open_, superior, at)

        failures = self._ledger.commit(note)
        return Intensity(failures, self._rules.period) if failures else None

    def _note(self, agent: str, change: Callable[[Circuit], Circuit]) -> None:
        name = self._key(agent)
        self._ledger.commit(
            lambda open_: _change(open_, name, lambda before: (change(before), None))
        )

    def _count(self, open_: Transaction, superior: str, at: float) -> int:
        if self._rules.intensity is None:
            return 0
        name = "/".join((INTENSITY, self._tree, superior))
        found = open_.get(name)
        known = found.value if found else []
        recent = [then for then in known if abs(at - then) < self._rules.period]
        recent = [*recent, at][-self._rules.intensity - 1 :]
        open_.compare_and_set(name, found.version if found else None, recent)
        return len(recent) if len(recent) > self._rules.intensity else 0

    def _key(self, agent: str) -> str:
        return "/".join((PREFIX, self._tree, agent))

    def _now(self) -> float:
        return self._clock().timestamp()


def standings(ledger: Ledger, clock: Clock = now) -> list[Standing]:
    """Return the circuits of a ledger, by tree and agent.

    Each is judged by the rules that opened it: the tree's own rules are not known here.

    Raises:
        StorageError: The ledger could not be read.
    """
    at = clock().timestamp()
    found: list[Standing] = []
    for name in ledger.keys(f"{PREFIX}/"):
        circuit = ledger.look(lambda open_, name=name: _load(open_, name))  # type: ignore[misc]
        rules = Breaking(seconds=circuit.seconds)
        _, admission = circuit.admit(rules, at)
        _, tree, agent = name.split("/", 2)
        state = circuit.state(rules, at)
        found.append(Standing(tree, agent, state, circuit.failures, admission.wait))
    return found


def close_circuits(ledger: Ledger, agent: str) -> None:
    """Close the circuit of an agent by hand, in every tree of a ledger.

    Raises:
        NoCircuit: It has none, for it has not failed since its last answer.
        StorageError: The ledger could not be read or written.
    """

    def close(open_: Transaction) -> None:
        names = [name for name in open_.keys(f"{PREFIX}/") if name.split("/", 2)[2] == agent]
        for name in names:
            found = open_.get(name)
            if found:
                open_.delete(name, found.version)
        if not names:
            known = sorted(name.split("/", 2)[2] for name in open_.keys(f"{PREFIX}/"))
            raise NoCircuit(agent, known)

    ledger.commit(close)


def _load(open_: Transaction, name: str) -> Circuit:
    found = open_.get(name)
    return Circuit(**found.value) if found else Circuit()


def _change(open_: Transaction, name: str, change: Callable[[Circuit], tuple[Circuit, T]]) -> T:
    found = open_.get(name)
    before = Circuit(**found.value) if found else Circuit()
    after, result = change(before)
    if after != before:
        open_.compare_and_set(name, found.version if found else None, asdict(after))
    return result
