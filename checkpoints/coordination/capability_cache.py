"""`CapabilityCache`: the capabilities that a model derived for a tree's agents, kept in the ledger.

`graphs.compiled_tree` passes it to a `ModelDeriver`, so that a model is asked about an agent once
for each database, and not once for each process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from echelons.capabilities import Capability, Derivation, check_capabilities
from echelons.checkpoints.ledger import Json, Ledger, RecordKind, Transaction
from echelons.errors import ConfigurationError, LedgerDamaged

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredCapability:
    """A capability as it is stored."""

    confidence: float
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredDerivation:
    """A derivation as it is stored."""

    fingerprint: str
    capabilities: dict[str, StoredCapability]


DERIVED: Final[RecordKind[StoredDerivation]] = RecordKind("derived", StoredDerivation)
"""The derived capabilities of an agent; they are derived again in place of damaged ones."""


class CapabilityCache:
    """The derivations of one tree.

    Args:
        ledger: The ledger they are kept in.
        tree: Name of the tree's root; threads of the same tree share them.

    Examples:
        >>> from echelons.checkpoints.ledger import MemoryLedger
        >>> kept = CapabilityCache(MemoryLedger(), "travel")
        >>> kept.write({"eat": Derivation("a1b2", {"dining": Capability(0.8)})})
        >>> kept.read(["eat", "fly"])["eat"].capabilities
        mappingproxy({'dining': Capability(confidence=0.8, examples=())})
    """

    def __init__(self, ledger: Ledger, tree: str) -> None:
        self._ledger = ledger
        self._tree = tree

    def read(self, agents: Collection[str], /) -> Mapping[str, Derivation]:
        """Return the stored derivations of some agents, by name."""
        keys = {agent: self._build_key(agent) for agent in agents}
        read = self._ledger.query(
            lambda open_: {agent: _load_derivation(open_, key) for agent, key in keys.items()}
        )
        return {agent: derivation for agent, derivation in read.items() if derivation}

    def write(self, derivations: Mapping[str, Derivation], /) -> None:
        """Store some derivations, replacing earlier ones."""

        def store(open_: Transaction) -> None:
            for agent, derivation in derivations.items():
                open_.discard(self._build_key(agent))
                open_.compare_and_set(self._build_key(agent), None, _to_json(derivation))

        if derivations:
            self._ledger.commit(store)

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; all of it again if the ledger was busy."""
        return await self._ledger.arun(work)

    def _build_key(self, agent: str) -> str:
        return "/".join((DERIVED.name, self._tree, agent))


def _to_json(derivation: Derivation) -> Json:
    return {
        "fingerprint": derivation.fingerprint,
        "capabilities": {
            name: {"confidence": capability.confidence, "examples": list(capability.examples)}
            for name, capability in derivation.capabilities.items()
        },
    }


def _load_derivation(open_: Transaction, key: str) -> Derivation | None:
    """Return a stored derivation, `None` if it is missing or damaged: then it is derived again."""
    try:
        if not (stored := open_.get_record(DERIVED, key)):
            return None
        capabilities = {
            name: Capability(capability.confidence, capability.examples)
            for name, capability in stored.value.capabilities.items()
        }
        return Derivation(stored.value.fingerprint, check_capabilities("", capabilities).full)
    except (LedgerDamaged, ConfigurationError):
        return None
