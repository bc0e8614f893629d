"""`HistoryCache`: recent values of delta channels, so that a turn does not read its whole past.

`CachedSaver` keeps a `HistoryPoint` for each conversation that it has read, and starts there the
next time. Returned messages are protected: if a caller changes them, the next caller still gets
what was stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any

from langchain_core.messages import BaseMessage

ConversationPlace = tuple[str, str]
"""Thread id and namespace."""

DEFAULT_CACHE_SIZE = 128
"""Default number of cached conversations; the least recently used is evicted first. Each is held
twice, as returned and as stored, with shared texts."""
MAX_LATER_CHECKPOINTS = 1000
"""Number of later checkpoints that are tracked for a point before it is dropped."""


class CopyOnReadMessages:
    """Messages that are returned to callers, and a private copy of each.

    Args:
        messages: The messages as they were read.
        again: Copies a message.
        before: The messages of an earlier point, most of which are the same.
    """

    __slots__ = ("_again", "_contents", "_fresh", "_kept", "_shown")

    def __init__(
        self,
        messages: Sequence[BaseMessage],
        again: Callable[[BaseMessage], BaseMessage],
        before: CopyOnReadMessages | None = None,
    ) -> None:
        self._shown = list(messages)
        self._again = again
        kept = before._reuse_copies(self._shown) if before else []
        self._kept = [*kept, *map(self._copy_message, self._shown[len(kept) :])]
        # A long thread is compared at each of its turns; what the copies hold never changes.
        contents = before._contents if before and kept is before._kept else []
        self._contents: list[Any] = [*contents, *map(_get_content, self._kept[len(contents) :])]
        self._fresh = True

    def messages(self) -> list[BaseMessage]:
        """Return the messages as they were stored, in a new list."""
        # The first caller gets them unchecked; later, those that a caller has changed are replaced.
        if self._fresh:
            self._fresh = False
        elif list(map(_get_content, self._shown)) != self._contents:
            self._shown = [
                shown if _get_content(shown) == content else self._again(kept)
                for shown, kept, content in zip(
                    self._shown, self._kept, self._contents, strict=True
                )
            ]
        return list(self._shown)

    def _reuse_copies(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return copies for the first of some messages, reused where the objects are the same."""
        count = len(self._shown)
        if len(messages) >= count and all(map(is_, self._shown, messages)):
            return self._kept
        own = dict(zip(map(id, self._shown), self._kept, strict=True))
        return [own.get(id(each)) or self._copy_message(each) for each in messages]

    def _copy_message(self, message: BaseMessage) -> BaseMessage:
        second = self._again(message)
        for name, value in vars(message).items():
            # Strings are immutable: shared, they take no memory and compare at once.
            if type(value) is str and vars(second).get(name) == value:
                vars(second)[name] = value
        return second


_get_content = attrgetter("__dict__", "__pydantic_extra__")
"""All contents of a message; comparing them costs a tenth of copying the message."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The values of a conversation's delta channels at a checkpoint.

    Attributes:
        checkpoint_id: The checkpoint.
        messages: The conversation.
        heads: The ends of the subordinates' threads.
        snapshot_channels: The channels of which the checkpoint itself holds a snapshot.
    """

    checkpoint_id: str
    messages: CopyOnReadMessages
    heads: Mapping[str, Any]
    snapshot_channels: frozenset[str] = frozenset()


@dataclass(slots=True)
class _CacheEntry:
    point: HistoryPoint
    later_ids: set[str] = field(default_factory=set)


class HistoryCache:
    """The points of the conversations that were read last.

    The value at a checkpoint depends on the writes before it, so a point stays valid as long as
    nothing is written there. The cache is notified of every write, and drops the point of a
    conversation at a write that is not known to come after it. It holds `size` conversations.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[ConversationPlace, _CacheEntry] = OrderedDict()
        self._version: object = None

    def find_point(self, place: ConversationPlace, version: object) -> HistoryPoint | None:
        """Return the point of a conversation.

        If SQLite's data version has changed since the last call, another connection has written to
        the database, and the cache is cleared.
        """
        if version != self._version:
            self.clear()
            self._version = version
        entry = self._entries.get(place)
        if entry is not None:
            self._entries.move_to_end(place)
        return entry.point if entry else None

    def keep_point(self, place: ConversationPlace, point: HistoryPoint) -> None:
        """Cache a point, unless a later one of its conversation is cached."""
        held = self._entries.get(place)
        if held is not None and held.point.checkpoint_id > point.checkpoint_id:
            return
        self._entries[place] = _CacheEntry(point)
        self._entries.move_to_end(place)
        while len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def note_checkpoint(
        self, place: ConversationPlace, checkpoint_id: str, above: str | None
    ) -> None:
        """Update the cache for a checkpoint that is stored."""
        entry = self._entries.get(place)
        if entry is None:
            return
        follows = above == entry.point.checkpoint_id or above in entry.later_ids
        if follows and len(entry.later_ids) < MAX_LATER_CHECKPOINTS:
            entry.later_ids.add(checkpoint_id)
        else:
            del self._entries[place]

    def note_writes(self, place: ConversationPlace, checkpoint_id: str) -> None:
        """Update the cache for writes that are stored at a checkpoint."""
        entry = self._entries.get(place)
        if entry is not None and checkpoint_id not in (entry.point.checkpoint_id, *entry.later_ids):
            del self._entries[place]

    def clear(self) -> None:
        """Drop all points."""
        self._entries.clear()
