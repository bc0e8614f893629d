"""What a node may ask about a thread's past. ``nodes`` use it, ``checkpoints`` answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypedDict

from echelons.tree.names import PATH_SEPARATOR


class Head(TypedDict, total=False):
    """The end of a thread's latest segment, as its superior's state keeps it.

    Attributes:
        agent: Whose thread it is.
        way: For whom further down it passes requests on there: the names from below it, in one
            text; missing where it works itself.
        checkpoint_ns: Namespace of the segment; missing while the thread has not run.
        checkpoint_id: Its last checkpoint.
    """

    agent: str
    way: str
    checkpoint_ns: str
    checkpoint_id: str


def head_of(agent: str, way: str) -> Head:
    """Return the head of a thread that has not run yet."""
    return Head(agent=agent, way=way) if way else Head(agent=agent)


def way_of(names: Iterable[str]) -> str:
    """Return the way of a head: names from below an agent down to whom its thread is for.

    Examples:
        >>> way_of(["experiences", "restaurants"])
        'experiences/restaurants'
    """
    return PATH_SEPARATOR.join(names)


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
