"""Where derived capabilities are kept, so that no process derives them again.

``ModelDeriver`` reads and writes; ``checkpoints.derived`` keeps them in a database.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from echelons.capabilities.capability import Capability


class Derivation(NamedTuple):
    """What was derived of an agent.

    Attributes:
        fingerprint: Of the description that it was derived from.
        capabilities: What the agent can do.
    """

    fingerprint: str
    capabilities: Mapping[str, Capability]


class Kept(Protocol):
    """Derivations by the names of agents, of one tree."""

    def read(self, agents: Collection[str], /) -> Mapping[str, Derivation]:
        """Return what is kept of some agents."""
        ...

    def write(self, derivations: Mapping[str, Derivation], /) -> None:
        """Keep some derivations, instead of earlier ones."""
        ...

    async def aread(self, agents: Collection[str], /) -> Mapping[str, Derivation]:
        """Do what ``read`` does in an event loop."""
        ...

    async def awrite(self, derivations: Mapping[str, Derivation], /) -> None:
        """Do what ``write`` does in an event loop."""
        ...


class NotKept:
    """Keeps nothing: what is derived lives as long as who derived it."""

    def read(self, _agents: Collection[str], /) -> Mapping[str, Derivation]:
        """Return nothing."""
        return {}

    def write(self, derivations: Mapping[str, Derivation], /) -> None:
        """Keep nothing."""

    async def aread(self, _agents: Collection[str], /) -> Mapping[str, Derivation]:
        """Return nothing."""
        return {}

    async def awrite(self, derivations: Mapping[str, Derivation], /) -> None:
        """Keep nothing."""
