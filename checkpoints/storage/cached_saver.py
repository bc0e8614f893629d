"""`CachedSaver`: a `VerifiedSaver` that does not read a conversation's whole past each turn.

LangGraph reads and replays the history of delta channels whenever a run or an inspection begins.
For the levels of our trees the saver replays it itself and caches the values, so that the next
time it reads only what was stored since. The reducers of a foreign graph's channels are unknown
here, so their history is read in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from sqlite3 import Connection
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory, get_checkpoint_id
from langgraph.checkpoint.serde.base import SerializerProtocol

from echelons.checkpoints.delta_channels import DELTA_CHANNELS, HEADS, MESSAGES, rebuild_channel
from echelons.checkpoints.namespaces import get_namespace_depth
from echelons.checkpoints.storage.connection import read_data_version
from echelons.checkpoints.storage.delta_history import DeltaWalk
from echelons.checkpoints.storage.history_cache import (
    DEFAULT_CACHE_SIZE,
    ConversationPlace,
    CopyOnReadMessages,
    HistoryCache,
    HistoryPoint,
)
from echelons.checkpoints.storage.rows import CheckpointRow, load_checkpoint, load_metadata
from echelons.checkpoints.storage.seals import Seals
from echelons.checkpoints.storage.verified_saver import VerifiedSaver, get_conversation_place
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import DELTA_COUNTERS_KEY, DeltaSnapshot

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
            known = _get_known_values(point, wanted)
            # Of the channels of foreign graphs they may hold snapshots.
            is_level = DELTA_CHANNELS.keys() >= set(channels)
            plain_ids = self._history_cache.get_plain_ids(place) if is_level else frozenset()
            walk = DeltaWalk(channels, self.serde, *known, plain_ids)
            found = self._read_history(cursor, place, wanted, walk)
            if point is not None or walk.length >= self.shortest_cached:
                found = self._replay(place, walk.first_row, found, point)
            if begins:
                cursor.execute("COMMIT")
            return found

    def _replay(
        self,
        place: ConversationPlace,
        row: CheckpointRow | None,
        found: dict[str, DeltaChannelHistory],
        point: HistoryPoint | None,
    ) -> dict[str, DeltaChannelHistory]:
        if row is None:
            return found
        if point is None or point.checkpoint_id != row.checkpoint_id:
            point = self._build_point(row, found, point)
        if point is None or point.snapshot_channels.intersection(found):
            return found
        self._history_cache.keep_point(place, point)
        values = {MESSAGES: point.messages.messages(), HEADS: deepcopy(point.heads)}
        # LangGraph may ask for further channels that a checkpoint does not have.
        for channel in found.keys() & values.keys():
            found[channel] = {"seed": DeltaSnapshot(values[channel]), "writes": []}
        return found

    def _build_point(
        self,
        row: CheckpointRow,
        found: Mapping[str, DeltaChannelHistory],
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
            elif channel in found:
                history = found[channel]
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
    known = {MESSAGES: point.messages.messages(), HEADS: point.heads}
    # Where a checkpoint holds a snapshot, the history before it may be that of another fork.
    gone = point.snapshot_channels if point.checkpoint_id == wanted else ()
    return {key: value for key, value in known.items() if key not in gone}, point.checkpoint_id


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
