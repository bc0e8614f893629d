"""`HistoryCache`: recent values of delta channels, so that a turn does not read its whole past.

`CachedSaver` keeps a `HistoryPoint` for each conversation that it has read, and starts there the
next time. Returned messages are protected: if a caller changes them, the next caller still gets
what was stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, field
from operator import attrgetter, is_
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage

ConversationPlace = tuple[str, str]
"""Thread id and namespace."""

DEFAULT_CACHE_SIZE = 128
"""Default number of cached conversations; the least recently used is evicted first. Each is held
twice, as returned and as stored, with shared texts."""
MAX_LATER_CHECKPOINTS = 1000
"""Number of later checkpoints that are tracked for a point before it is dropped."""


_Contents: TypeAlias = tuple[list[Any], list[Any]]
"""The fields of messages, and what each has beside them."""


class CopyOnReadMessages:
    """Messages that are returned to callers, and a private copy of what each holds.

    Args:
        messages: The messages as they were read.
        before: The messages of an earlier point, most of which are the same.
    """

    __slots__ = ("_fresh", "_held", "_shown")

    def __init__(
        self, messages: Sequence[BaseMessage], before: CopyOnReadMessages | None = None
    ) -> None:
        self._shown = list(messages)
        fields, extras = before._reuse_copies(self._shown) if before else ([], [])
        new_fields, new_extras = _list_contents(self._shown[len(fields) :])
        self._held: _Contents = (
            [*fields, *map(_copy_value, new_fields)],
            [*extras, *map(_copy_value, new_extras)],
        )
        self._fresh = True

    def messages(self) -> list[BaseMessage]:
        """Return the messages as they were stored, in a new list."""
        # The first caller gets them unchecked; later, those that a caller has changed are replaced.
        if self._fresh:
            self._fresh = False
        elif _list_contents(self._shown) != self._held:
            self._shown = [
                shown
                if (vars(shown), _get_extra(shown)) == (fields, extra)
                else _restore_message(shown, fields, extra)
                for shown, fields, extra in zip(self._shown, *self._held, strict=True)
            ]
        return list(self._shown)

    def _reuse_copies(self, messages: Sequence[BaseMessage]) -> _Contents:
        """Return copies for the first of some messages, reused where the objects are the same."""
        count = len(self._shown)
        if len(messages) >= count and all(map(is_, self._shown, messages)):
            return self._held
        own = dict(zip(map(id, self._shown), zip(*self._held, strict=True), strict=True))
        held = [
            own.get(id(message)) or (_copy_value(vars(message)), _copy_value(_get_extra(message)))
            for message in messages
        ]
        return [fields for fields, _ in held], [extra for _, extra in held]


_IMMUTABLE = frozenset({str, int, float, bool, bytes, type(None)})
_get_extra = attrgetter("__pydantic_extra__")


def _list_contents(messages: Sequence[BaseMessage]) -> _Contents:
    """Return all contents of messages; comparing them costs a tenth of copying the messages."""
    # Two lists, whose items are compared in C, and not a tuple for each message.
    return list(map(vars, messages)), list(map(_get_extra, messages))


def _restore_message(message: BaseMessage, fields: Any, extra: Any) -> BaseMessage:
    """Return a message like one that a caller has changed, with the contents that it had."""
    restored = message.model_copy()
    for held, stored in ((vars(restored), fields), (_get_extra(restored), extra)):
        if stored is not None:
            held.clear()
            held.update(_copy_value(stored))
    return restored


def _copy_value(value: Any) -> Any:
    """Return a copy that shares only what cannot change, such as texts, which compare at once."""
    if type(value) is dict:
        return {
            key: each if type(each) in _IMMUTABLE else _copy_value(each)
            for key, each in value.items()
        }
    if type(value) is list:
        return [each if type(each) in _IMMUTABLE else _copy_value(each) for each in value]
    return deepcopy(value)


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
    plain_ids: set[str] = field(default_factory=set)


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

    def get_plain_ids(self, place: ConversationPlace) -> Set[str]:
        """Return checkpoints after the point that hold no snapshot of a level's channels."""
        entry = self._entries.get(place)
        return entry.plain_ids if entry else frozenset()

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
        self,
        place: ConversationPlace,
        checkpoint_id: str,
        above: str | None,
        *,
        holds_snapshot: bool,
    ) -> None:
        """Update the cache for a checkpoint that is stored."""
        entry = self._entries.get(place)
        if entry is None:
            return
        follows = above == entry.point.checkpoint_id or above in entry.later_ids
        if follows and len(entry.later_ids) < MAX_LATER_CHECKPOINTS:
            entry.later_ids.add(checkpoint_id)
            # It may be stored again, and otherwise than before.
            (entry.plain_ids.discard if holds_snapshot else entry.plain_ids.add)(checkpoint_id)
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
