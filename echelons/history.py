"""What a node may ask about a thread's past. ``nodes`` use it, ``checkpoints`` answers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypedDict


class Head(TypedDict, total=False):
    """The end of a thread's latest segment, as its superior's state keeps it.

    Attributes:
        agent: Whose thread it is.
        checkpoint_ns: Namespace of the segment; missing while the thread has not run.
        checkpoint_id: Its last checkpoint.
    """

    agent: str
    checkpoint_ns: str
    checkpoint_id: str


class Past(NamedTuple):
    """What a thread's earlier segments leave to the next.

    Attributes:
        messages: Their messages, oldest first.
        heads: The threads that they started, by id, in the order of their start.
    """

    messages: tuple[Any, ...] = ()
    heads: Mapping[str, Head] = MappingProxyType({})


class History(Protocol):
    """Reads segments back through the saver that a run inherited."""

    def durable(self, config: Mapping[str, Any]) -> bool:
        """Return whether the run has a saver, its superior's included."""
        ...

    def head(self, config: Mapping[str, Any]) -> Head:
        """Return the end of the segment that has just run under ``config``."""
        ...

    async def ahead(self, config: Mapping[str, Any]) -> Head:
        """Return the same in an event loop."""
        ...

    def before(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        """Return what a segment and all before it leave to the next."""
        ...

    async def abefore(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        """Return the same in an event loop."""
        ...
