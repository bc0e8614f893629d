"""What a node may ask about a thread's past. ``nodes`` use it, ``checkpoints`` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypedDict


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

    def before(self, head: Head | None, config: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the messages of a segment and of all before it, oldest first."""
        ...

    async def abefore(self, head: Head | None, config: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the same in an event loop."""
        ...
