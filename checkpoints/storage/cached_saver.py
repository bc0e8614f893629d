"""`CachedSaver`: a `VerifiedSaver` that does not read a conversation's whole past each turn.

LangGraph reads and replays the history of delta channels whenever a run or an inspection begins.
For the levels of our trees the saver replays it itself and caches the values, so that the next
time it reads only what was stored since. The reducers of a foreign graph's channels are unknown
here, so their history is read in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from sqlite3 import Connection, Cursor
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory, get_checkpoint_id
from langgraph.checkpoint.serde.base import SerializerProtocol

from echelons.checkpoints.delta_channels import CHANNELS, HEADS, MESSAGES, rebuild
from echelons.checkpoints.namespaces import depth_of
from echelons.checkpoints.storage.connection import foreign_writes
from echelons.checkpoints.storage.delta_history import Walk
from echelons.checkpoints.storage.history_cache import REMEMBERED, Place, Point, Recent, Shown
from echelons.checkpoints.storage.rows import CheckpointRow, checkpoint_of, metadata_of
from echelons.checkpoints.storage.seals import Seals
from echelons.checkpoints.storage.verified_saver import GuardedSaver, place_of
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import DELTA_COUNTERS_KEY, DeltaSnapshot

_HOP = 2
"""Number of graphs from one level down to the next: the delegation and the level itself."""


class RememberingSaver(GuardedSaver):
    """A `VerifiedSaver` with a cache of conversations.

    Args:
        conn: The connection.
        serde: The serializer of values.
        seals: The seals of the database.
        remembered: Number of cached conversations.
    """

    def __init__(
        self,
        conn: Connection,
        serde: SerializerProtocol,
        seals: Seals | None = None,
        remembered: int = REMEMBERED,
    ) -> None:
        super().__init__(conn, serde, seals)
        self._recent = Recent(remembered)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the history of some delta channels before a checkpoint.

        Raises:
            CheckpointTampered: A row on the way is damaged or missing.
        """
        place = place_of(config)
        wanted = get_checkpoint_id(config) or self.latest(config)
        with self._reading(config) as cursor, _one_view(cursor):
            point = self._recent.find(place, foreign_writes(self.conn))
            walk = Walk(channels, self.serde, *_known(point, wanted))
            found = self._gone_back(cursor, place, wanted, walk)
            return self._replayed(place, walk.first, found, point)

    def _replayed(
        self,
        place: Place,
        row: CheckpointRow | None,
        found: Mapping[str, DeltaChannelHistory],
        point: Point | None,
    ) -> Mapping[str, DeltaChannelHistory]:
        if row is None:
            return found
        if point is None or point.checkpoint_id != row.checkpoint_id:
            point = self._point(row, found, point)
        if point is None or point.whole.intersection(found):
            return found
        self._recent.keep(place, point)
        values = {MESSAGES: point.messages.messages(), HEADS: deepcopy(point.heads)}
        # LangGraph may ask for further channels that a checkpoint does not have.
        known: dict[str, DeltaChannelHistory] = {
            channel: {"seed": DeltaSnapshot(values[channel]), "writes": []}
            for channel in found.keys() & values.keys()
        }
        return {**found, **known}

    def _point(
        self,
        row: CheckpointRow,
        found: Mapping[str, DeltaChannelHistory],
        before: Point | None,
    ) -> Point | None:
        """Return the channels' values at a checkpoint, if it is a level's and all are known."""
        held = checkpoint_of(row, self.serde)
        whole = held["channel_values"]
        if not _is_level(row, held["channel_versions"]):
            return None
        values = {}
        for channel, annotated in CHANNELS.items():
            history: DeltaChannelHistory = {"writes": []}
            if channel in whole:
                history["seed"] = whole[channel]
            elif channel in found:
                history = found[channel]
            elif channel in held["channel_versions"]:
                return None
            values[channel] = rebuild(annotated, history.get("seed"), history["writes"])
        if not all(issubclass(kind, BaseMessage) for kind in set(map(type, values[MESSAGES]))):
            return None
        shown = Shown(values[MESSAGES], self._again, before.messages if before else None)
        return Point(
            row.checkpoint_id,
            shown,
            deepcopy(values[HEADS]),
            frozenset(CHANNELS.keys() & whole.keys()),
        )

    def _again(self, message: BaseMessage) -> Any:
        return self.serde.loads_typed(self.serde.dumps_typed(message))


@contextmanager
def _one_view(cursor: Cursor) -> Iterator[None]:
    """Read a consistent snapshot of the database, in a transaction."""
    if cursor.connection.in_transaction:
        yield
        return
    cursor.execute("BEGIN")
    yield
    cursor.execute("COMMIT")


def _known(point: Point | None, wanted: str | None) -> tuple[Mapping[str, Any], str | None]:
    if point is None:
        return {}, None
    known = {MESSAGES: point.messages.messages(), HEADS: point.heads}
    # Where a checkpoint holds a snapshot, the history before it may be that of another fork.
    gone = point.whole if point.checkpoint_id == wanted else ()
    return {key: value for key, value in known.items() if key not in gone}, point.checkpoint_id


def _is_level(row: CheckpointRow, versions: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint is of a level of a tree, whose reducers are known here.

    A foreign graph that an agent runs carries the agent's identity, but never has the depth of
    its level. In a tree inside another graph that depth is unknown, so its history is read in
    full.
    """
    metadata = metadata_of(row)
    identity = Identity.read(metadata)
    counted = (metadata.get(DELTA_COUNTERS_KEY) or {}).keys()
    return (
        identity is not None
        and depth_of(row.checkpoint_ns) == _HOP * (len(identity.path) - 1)
        and counted <= CHANNELS.keys() <= counted | versions.keys()
    )
