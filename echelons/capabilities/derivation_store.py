"""Storage of derived capabilities, so that they need not be derived again in each process.

`ModelDeriver` uses it; `echelons.checkpoints.coordination.capability_cache` implements it in a
database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol, TypeVar

from echelons.capabilities.capability import Capability

T = TypeVar("T")


class Derivation(NamedTuple):
    """The capabilities derived for an agent, by name, with a fingerprint of its description."""

    fingerprint: str
    capabilities: Mapping[str, Capability]


class DerivationStore(Protocol):
    """The stored derivations of one tree, by agent name."""

    def read(self, agents: Collection[str], /) -> Mapping[str, Derivation]:
        """Return the stored derivations of some agents."""
        ...

    def write(self, derivations: Mapping[str, Derivation], /) -> None:
        """Store derivations, replacing earlier ones of the same agents."""

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; all of it again if the ledger was busy."""
        ...


class NoDerivationStore:
    """A store that stores nothing: derivations live as long as their deriver."""

    def read(self, _agents: Collection[str], /) -> Mapping[str, Derivation]:
        """Return no derivations."""
        return {}

    def write(self, derivations: Mapping[str, Derivation], /) -> None:
        """Do nothing."""

    async def arun(self, work: Callable[[], T]) -> T:
        """Call it at once: nothing here waits."""
        return work()
