"""`CapabilityCache`: the capabilities that a model derived for a tree's agents, kept in the ledger.

`graphs.compiled_tree` passes it to a `ModelDeriver`, so that a model is asked about an agent once
for each database, and not once for each process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from echelons.capabilities import Capability, Derivation, check_capabilities
from echelons.checkpoints.ledger import Json, Ledger, Transaction
from echelons.errors import ConfigurationError

T = TypeVar("T")
DERIVED_PREFIX: Final = "derived"


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
        stored = self._ledger.query(
            lambda open_: {agent: open_.get(key) for agent, key in keys.items()}
        )
        read = ((agent, _from_json(value.value)) for agent, value in stored.items() if value)
        return {agent: each for agent, each in read if each}

    def write(self, derivations: Mapping[str, Derivation], /) -> None:
        """Store some derivations, replacing earlier ones."""

        def store(open_: Transaction) -> None:
            for agent, each in derivations.items():
                before = open_.get(self._build_key(agent))
                open_.compare_and_set(
                    self._build_key(agent), before.version if before else None, _to_json(each)
                )

        if derivations:
            self._ledger.commit(store)

    async def arun(self, work: Callable[[], T]) -> T:
        """Call some of these methods in an event loop; all of it again if the ledger was busy."""
        return await self._ledger.arun(work)

    def _build_key(self, agent: str) -> str:
        return "/".join((DERIVED_PREFIX, self._tree, agent))


def _to_json(derivation: Derivation) -> Json:
    return {
        "fingerprint": derivation.fingerprint,
        "capabilities": {
            name: {"confidence": each.confidence, "examples": list(each.examples)}
            for name, each in derivation.capabilities.items()
        },
    }


def _from_json(value: Any) -> Derivation | None:
    """Return a stored derivation, `None` if it is malformed: then it is derived again."""
    try:
        capabilities = {
            name: Capability(each["confidence"], each["examples"])
            for name, each in value["capabilities"].items()
        }
        return Derivation(str(value["fingerprint"]), check_capabilities("", capabilities).full)
    except (KeyError, TypeError, AttributeError, ConfigurationError):
        return None
