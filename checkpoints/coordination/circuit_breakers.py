"""``Breakers``: the circuits of a tree's agents, in the ledger.

The graph's state would not do: tasks that run side by side do not see each other's, and let
through any number of failing calls. Every change is one transaction, so of a thousand who ask
at once exactly one is the probe, in however many processes.
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
    """A circuit, as people are shown it.

    Attributes:
        tree: Name of the tree's root.
        agent: Whose circuit it is.
        state: Whether it is asked.
        failures: Failures in a row.
        wait: Seconds until it is tried again.
    """

    tree: str
    agent: str
    state: CircuitState
    failures: int
    wait: float


class Breakers:
    """The circuits of one tree.

    Args:
        ledger: Keeps them.
        tree: Name of the tree's root; threads of the same tree share its circuits.
        rules: When they open.
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
        """Ask whether an agent may be asked.

        Raises:
            StorageError: The ledger could not be read or written.
        """
        name = self._key(agent)
        # Most circuits are closed, and then nothing has to be written.
        circuit = self._ledger.look(lambda open_: _load(open_, name))
        if circuit.opened_at is None:
            return Admission(admitted=True, failures=circuit.failures)
        return self._ledger.commit(
            lambda open_: _change(
                open_, name, lambda before: before.admit(self._rules, self._now())
            )
        )

    async def aadmit(self, agent: str) -> Admission:
        """Do what ``admit`` does in an event loop."""
        return await self._ledger.arun(lambda: self.admit(agent))

    def note(
        self, agent: str, superior: str, admission: Admission, came_to: End
    ) -> Intensity | None:
        """Note what came of an admission.

        Args:
            agent: Who was asked.
            superior: Path of who asked.
            admission: What was said then.
            came_to: What came of it.

        Returns:
            Failures below the superior, if there are more than it stands.

        Raises:
            StorageError: The ledger could not be read or written.
        """
        if came_to is End.FAILED:
            return self._failed(agent, superior, admission.probe)
        # Most calls go well, and then there is nothing to forget.
        if came_to is End.ANSWERED and (admission.failures or admission.probe):
            self._note(agent, lambda circuit: circuit.succeeded(admission.probe))
        elif came_to is End.NOTHING and admission.probe:
            self._note(agent, lambda circuit: circuit.given_back(admission.probe))
        return None

    async def anote(
        self, agent: str, superior: str, admission: Admission, came_to: End
    ) -> Intensity | None:
        """Do what ``note`` does in an event loop."""
        return await self._ledger.arun(lambda: self.note(agent, superior, admission, came_to))

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
    """Return the circuits that a ledger keeps, by tree and agent.

    Each is shown by the rules that opened it: no tree is at hand that could tell others.

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
        NoCircuit: It has none: it has not failed since it last answered.
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
    after, told = change(before)
    if after != before:
        open_.compare_and_set(name, found.version if found else None, asdict(after))
    return told
