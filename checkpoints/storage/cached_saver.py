"""`CachedSaver`: a `VerifiedSaver` that keeps recent values of delta channels in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, field
from operator import attrgetter, is_
from sqlite3 import Connection
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory, get_checkpoint_id
from langgraph.checkpoint.serde.base import SerializerProtocol

from echelons.checkpoints.delta_channels import DELTA_CHANNELS, HEADS, MESSAGES, rebuild_channel
from echelons.checkpoints.run_config import get_namespace_depth
from echelons.checkpoints.storage.connection import read_data_version
from echelons.checkpoints.storage.rows import CheckpointRow, load_checkpoint, load_metadata
from echelons.checkpoints.storage.seals import Seals
from echelons.checkpoints.storage.verified_saver import (
    DeltaWalk,
    VerifiedSaver,
    get_conversation_place,
)
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import DELTA_COUNTERS_KEY, DeltaSnapshot

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
        copies = dict(zip(map(id, self._shown), zip(*self._held, strict=True), strict=True))
        held = [
            copies.get(id(message))
            or (_copy_value(vars(message)), _copy_value(_get_extra(message)))
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
            key: item if type(item) in _IMMUTABLE else _copy_value(item)
            for key, item in value.items()
        }
    if type(value) is list:
        return [item if type(item) in _IMMUTABLE else _copy_value(item) for item in value]
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
        parent_id: str | None,
        *,
        holds_snapshot: bool,
    ) -> None:
        """Update the cache for a checkpoint that is stored."""
        entry = self._entries.get(place)
        if entry is None:
            return
        follows = parent_id == entry.point.checkpoint_id or parent_id in entry.later_ids
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


_GRAPHS_PER_LEVEL = 2
"""Number of graphs from one level down to the next: the delegation and the level itself."""


class CachedSaver(VerifiedSaver):
    """A `VerifiedSaver` with a cache of `remembered` conversations."""

    shortest_cached = 8
    """Number of checkpoints from which on a history is cached. The two copies of its messages cost
    more than reading a shorter one twice, and most are read once, after an interrupt."""

    def __init__(
        self,
        conn: Connection,
        serde: SerializerProtocol,
        seals: Seals | None = None,
        remembered: int = DEFAULT_CACHE_SIZE,
    ) -> None:
        super().__init__(conn, serde, seals)
        self._history_cache = HistoryCache(remembered)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the history of some delta channels before a checkpoint."""
        place = get_conversation_place(config)
        wanted = get_checkpoint_id(config) or self.get_latest_id(config)
        with self._open_cursor(config) as cursor:
            # All is read within one transaction, as it was at one moment.
            begins = not cursor.connection.in_transaction
            if begins:
                cursor.execute("BEGIN")
            point = self._history_cache.find_point(place, read_data_version(self.conn))
            values = _get_known_values(point, wanted)
            # Of the channels of foreign graphs they may hold snapshots.
            is_level = DELTA_CHANNELS.keys() >= set(channels)
            plain_ids = self._history_cache.get_plain_ids(place) if is_level else frozenset()
            walk = DeltaWalk(channels, self.serde, *values, plain_ids)
            histories = self._read_history(cursor, place, wanted, walk)
            if point is not None or walk.length >= self.shortest_cached:
                histories = self._replay(place, walk.first_row, histories, point)
            if begins:
                cursor.execute("COMMIT")
            return histories

    def _replay(
        self,
        place: ConversationPlace,
        row: CheckpointRow | None,
        histories: dict[str, DeltaChannelHistory],
        point: HistoryPoint | None,
    ) -> dict[str, DeltaChannelHistory]:
        if row is None:
            return histories
        if point is None or point.checkpoint_id != row.checkpoint_id:
            point = self._build_point(row, histories, point)
        if point is None or point.snapshot_channels.intersection(histories):
            return histories
        self._history_cache.keep_point(place, point)
        values = {MESSAGES: point.messages.messages(), HEADS: deepcopy(point.heads)}
        # LangGraph may ask for further channels that a checkpoint does not have.
        for channel in histories.keys() & values.keys():
            histories[channel] = {"seed": DeltaSnapshot(values[channel]), "writes": []}
        return histories

    def _build_point(
        self,
        row: CheckpointRow,
        histories: Mapping[str, DeltaChannelHistory],
        before: HistoryPoint | None,
    ) -> HistoryPoint | None:
        """Return the channels' values at a checkpoint, if it is a level's and all are known."""
        held = load_checkpoint(row, self.serde)
        whole = held["channel_values"]
        if not _is_level_row(row, held["channel_versions"]):
            return None
        values = {}
        for channel, annotated in DELTA_CHANNELS.items():
            history: DeltaChannelHistory = {"writes": []}
            if channel in whole:
                history["seed"] = whole[channel]
            elif channel in histories:
                history = histories[channel]
            elif channel in held["channel_versions"]:
                return None
            values[channel] = rebuild_channel(annotated, history.get("seed"), history["writes"])
        if not all(issubclass(kind, BaseMessage) for kind in set(map(type, values[MESSAGES]))):
            return None
        shown = CopyOnReadMessages(values[MESSAGES], before.messages if before else None)
        snapshots = frozenset(DELTA_CHANNELS.keys() & whole.keys())
        return HistoryPoint(row.checkpoint_id, shown, deepcopy(values[HEADS]), snapshots)


def _get_known_values(
    point: HistoryPoint | None, wanted: str | None
) -> tuple[Mapping[str, Any], str | None]:
    if point is None:
        return {}, None
    values = {MESSAGES: point.messages.messages(), HEADS: point.heads}
    # Where a checkpoint holds a snapshot, the history before it may be that of another fork.
    gone = point.snapshot_channels if point.checkpoint_id == wanted else ()
    return {key: value for key, value in values.items() if key not in gone}, point.checkpoint_id


def _is_level_row(row: CheckpointRow, versions: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint is of a level of a tree, whose reducers are known here.

    A foreign graph that an agent runs carries the agent's identity, but never has the depth of
    its level. In a tree inside another graph that depth is unknown, so its history is read in
    full.
    """
    metadata = load_metadata(row)
    identity = Identity.from_metadata(metadata)
    counted = (metadata.get(DELTA_COUNTERS_KEY) or {}).keys()
    return (
        identity is not None
        and get_namespace_depth(row.checkpoint_ns) == _GRAPHS_PER_LEVEL * (len(identity.path) - 1)
        and counted <= DELTA_CHANNELS.keys() <= counted | versions.keys()
    )
