"""What the delta channels of threads were lately, so that no turn reads its whole past again.

`RememberingSaver` keeps a point for each conversation that it has read, and begins there the
next time. Values that are handed out are guarded: whatever is done to them, the next to ask is
given what was stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any

from langchain_core.messages import BaseMessage

Place = tuple[str, str]
"""A thread's id, and the namespace in it."""

REMEMBERED = 128
"""Conversations that a saver remembers unless it is told otherwise, the least recently used
forgotten first. Each is held as it was handed out and as it was stored, with the same texts."""
FURTHEST = 1000
"""Checkpoints after a point that are known to come after it; then it is given up."""


class Shown:
    """Messages that are handed out, and a copy of each that nobody else has.

    Args:
        messages: As they were read.
        again: Makes a second message like one.
        before: Those of an earlier point, of which many are the same.
    """

    __slots__ = ("_again", "_fresh", "_kept", "_shown")

    def __init__(
        self,
        messages: Sequence[BaseMessage],
        again: Callable[[BaseMessage], BaseMessage],
        before: Shown | None = None,
    ) -> None:
        self._shown = list(messages)
        self._again = again
        kept = before._kept_of(self._shown) if before else []
        self._kept = [*kept, *map(self._second, self._shown[len(kept) :])]
        self._fresh = True

    def messages(self) -> list[BaseMessage]:
        """Return them as they were stored, in a list of the caller's own."""
        # Nobody has had them yet since they were made, or all of them were looked at.
        if self._fresh:
            self._fresh = False
        elif list(map(_content, self._shown)) != list(map(_content, self._kept)):
            self._shown = [
                shown if _content(shown) == _content(kept) else self._again(kept)
                for shown, kept in zip(self._shown, self._kept, strict=True)
            ]
        return list(self._shown)

    def _kept_of(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return the copies of those that some messages begin with and are mine."""
        count = len(self._shown)
        if len(messages) >= count and all(map(is_, self._shown, messages)):
            return self._kept
        own = dict(zip(map(id, self._shown), self._kept, strict=True))
        return [own.get(id(each)) or self._second(each) for each in messages]

    def _second(self, message: BaseMessage) -> BaseMessage:
        second = self._again(message)
        for name, value in vars(message).items():
            # Texts cannot be changed: shared, they take no room and are compared at once.
            if type(value) is str and vars(second).get(name) == value:
                vars(second)[name] = value
        return second


_content = attrgetter("__dict__", "__pydantic_extra__")
"""All that a message holds; comparing it costs a tenth of copying the message."""


@dataclass(frozen=True, slots=True)
class Point:
    """What the delta channels of a conversation are at a checkpoint.

    Attributes:
        checkpoint_id: The checkpoint.
        messages: The conversation.
        heads: The ends of the threads below it.
        whole: The channels that the checkpoint itself holds whole.
    """

    checkpoint_id: str
    messages: Shown
    heads: Mapping[str, Any]
    whole: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Entry:
    point: Point
    later: set[str] = field(default_factory=set)


class Recent:
    """The points of the conversations that were read last.

    A value at a checkpoint is made of what stands before it. So a point holds for as long as
    nothing is written there: it is told of every write, and drops the point of a conversation
    at any that is not known to come after.

    Args:
        size: How many conversations.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[Place, _Entry] = OrderedDict()
        self._version: object = None

    def find(self, place: Place, version: object) -> Point | None:
        """Return the point of a conversation.

        Args:
            place: The conversation.
            version: Of the database, as others have written it; if it is another than the
                last time, they may have written anywhere.
        """
        if version != self._version:
            self.clear()
            self._version = version
        entry = self._entries.get(place)
        if entry is None:
            return None
        self._entries.move_to_end(place)
        return entry.point

    def keep(self, place: Place, point: Point) -> None:
        """Remember a point, unless a later one of its conversation is known."""
        held = self._entries.get(place)
        if held is not None and held.point.checkpoint_id > point.checkpoint_id:
            return
        self._entries[place] = _Entry(point)
        self._entries.move_to_end(place)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def put(self, place: Place, checkpoint_id: str, above: str | None) -> None:
        """Take notice of a checkpoint that is stored."""
        entry = self._entries.get(place)
        if entry is None:
            return
        follows = above == entry.point.checkpoint_id or above in entry.later
        if follows and len(entry.later) < FURTHEST:
            entry.later.add(checkpoint_id)
        else:
            del self._entries[place]

    def wrote(self, place: Place, checkpoint_id: str) -> None:
        """Take notice of writes that are stored at a checkpoint."""
        entry = self._entries.get(place)
        if entry is not None and checkpoint_id not in (entry.point.checkpoint_id, *entry.later):
            del self._entries[place]

    def clear(self) -> None:
        """Forget all points."""
        self._entries.clear()
