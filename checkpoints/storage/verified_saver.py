"""`VerifiedSaver`: LangGraph's SQLite saver with reads that check every row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.sqlite import SqliteSaver

from echelons.checkpoints.storage.rows import (
    CheckpointPlace,
    CheckpointRow,
    Parents,
    WriteRow,
    complete_parents,
    load_checkpoint,
    load_checkpoint_tuple,
    load_metadata,
    load_write,
)
from echelons.checkpoints.storage.seals import SELECT_CHECKPOINTS, SELECT_WRITES, Seals
from echelons.errors import CheckpointTampered
from echelons.langgraph_internals import DELTA_COUNTERS_KEY, advance_checkpoint_ids, search_where


class DeltaWalk:
    """The walk back from a checkpoint until a snapshot of each channel is found.

    Args:
        channels: The channels.
        serde: The serializer of the stored values.
        known: Their values at a cached checkpoint, which may be on the way.
        known_at: Id of that checkpoint.
        plain_ids: Checkpoints that are known to hold no snapshot.
    """

    def __init__(
        self,
        channels: Iterable[str],
        serde: SerializerProtocol,
        cached: Mapping[str, Any] | None = None,
        cached_at: str | None = None,
        plain_ids: Set[str] = frozenset(),
    ) -> None:
        self.checkpoint_ids: dict[str, list[str]] = {channel: [] for channel in channels}
        self.first_row: CheckpointRow | None = None
        self._serde = serde
        self._cached = cached or {}
        self._cached_at = cached_at
        self._plain_ids = plain_ids
        self._snapshots: dict[str, Any] = {}
        self._unresolved = list(self.checkpoint_ids)
        self._visited: set[str] = set()
        self._parent_id: str | None = None

    @property
    def length(self) -> int:
        """Number of checkpoints visited so far."""
        return len(self._visited)

    def visit(self, row: CheckpointRow) -> bool:
        """Visit the next checkpoint back, and return whether a snapshot is still missing."""
        # A checkpoint that was stored again below itself makes a loop.
        if row.checkpoint_id in self._visited:
            return False
        self._visited.add(row.checkpoint_id)
        self._parent_id = row.parent_checkpoint_id
        if self.first_row is None:
            self.first_row = row
        else:
            for channel in self._unresolved:
                self.checkpoint_ids[channel].append(row.checkpoint_id)
            if row.checkpoint_id != self._cached_at and row.checkpoint_id not in self._plain_ids:
                self._take_snapshots(load_checkpoint(row, self._serde)["channel_values"])
        if row.checkpoint_id == self._cached_at:
            self._take_snapshots(self._cached)
        return bool(self._unresolved)

    def check_complete(self) -> None:
        """Check that no checkpoint was missing on the way.

        Raises:
            CheckpointTampered: A checkpoint that a channel is rebuilt from is missing.
        """
        if not self._unresolved or self.first_row is None:
            return
        if self._parent_id is None or self._parent_id in self._visited:
            return
        lost = list_unresolved_channels(self.first_row, self._serde).intersection(self._unresolved)
        if lost:
            parts = ", ".join(sorted(lost))
            why = f"checkpoint {self._parent_id!r}, of which its {parts} is made, is gone"
            raise CheckpointTampered(self.first_row.description, why)

    def build_history(self, channel: str, rows: Iterable[WriteRow]) -> DeltaChannelHistory:
        """Return the snapshot of a channel and the writes since then, oldest first."""
        by_checkpoint: dict[str, list[WriteRow]] = {}
        for row in rows:
            by_checkpoint.setdefault(row.checkpoint_id, []).append(row)
        history: DeltaChannelHistory = {
            "writes": [
                write
                for checkpoint_id in reversed(self.checkpoint_ids[channel])
                if checkpoint_id in by_checkpoint
                for write in load_writes(by_checkpoint[checkpoint_id], self._serde)
            ]
        }
        if channel in self._snapshots:
            history["seed"] = self._snapshots[channel]
        return history

    def _take_snapshots(self, values: Mapping[str, Any]) -> None:
        for channel in values.keys() & self._unresolved:
            self._snapshots[channel] = values[channel]
            self._unresolved.remove(channel)


def load_writes(rows: Iterable[WriteRow], serde: SerializerProtocol) -> list[PendingWrite]:
    """Return the writes at a checkpoint, in LangGraph's order."""
    # Each is checked before sorting: damaged values may not be comparable.
    checked = [(row, load_write(row, serde)) for row in rows]
    checked.sort(
        key=lambda entry: writes_sort_key(entry[0].task_path, entry[0].task_id, entry[0].idx)
    )
    return [write for _, write in checked]


def list_unresolved_channels(row: CheckpointRow, serde: SerializerProtocol) -> set[str]:
    """Return the delta channels that a checkpoint does not hold a snapshot of.

    Channels that were never written are left out.
    """
    held = load_checkpoint(row, serde)
    counted = load_metadata(row).get(DELTA_COUNTERS_KEY) or {}
    return (counted.keys() & held["channel_versions"].keys()) - held["channel_values"].keys()


KnownParents = dict[CheckpointPlace, Parents]
"""Stored parent maps by checkpoint."""
_UNREADABLE_MESSAGES = ("Could not decode to UTF-8", "malformed JSON")
"""Prefixes of SQLite's messages about a damaged row, rather than a damaged database."""
_VERSION_PREFIXES = "\t\n\v\f\r "
"""What stands before the number of a version, by the number of its digits less one."""
_MOST_DIGITS = len(_VERSION_PREFIXES)
_UUID_VERSION = 6
_LATEST_TICKS = 2**60 - 2**50
"""Ticks of 100 ns since 1582. A uuid can hold ticks up to the year 5236; a stored id near that end
is ignored, because it would leave no room for later ones."""


class VerifiedSaver(SqliteSaver):
    """A SQLite saver that raises `CheckpointTampered` for any damaged row."""

    def __init__(
        self, conn: sqlite3.Connection, serde: SerializerProtocol, seals: Seals | None = None
    ) -> None:
        super().__init__(conn, serde=serde)
        self._seals = seals or Seals()

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return the saver unchanged: no environment variable affects what it reads."""
        return self

    def get_next_version(self, current: Any, channel: None) -> Any:
        r"""Return the version of a channel that follows another: `"\t9"` and then `"\n10"`.

        A checkpoint holds a dozen, which LangGraph compares as texts. Its own savers, and its
        server for every saver, read them with `int`, which passes over white space, and pad them
        with zeros to 50 characters. A prefix that sorts by the number's length, and before any
        digit, is enough, until one of those padded texts has come.
        """
        if isinstance(current, int):
            return current + 1
        number = str(int(current.partition(".")[0]) + 1 if current else 1)
        length = len(number)
        padded = length > _MOST_DIGITS or (current and current[0] == "0")
        return number.zfill(32) if padded else f"{_VERSION_PREFIXES[length - 1]}{number}"

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint: the latest of its namespace unless an id is given.

        Raises:
            CheckpointTampered: A row of it is damaged.
        """
        wanted = get_checkpoint_id(config)
        place = get_conversation_place(config)
        with self._open_cursor(config) as cursor:
            if wanted:
                cursor.execute(f"{_SELECT_AT} AND checkpoint_id = ?", (*place, wanted))
            else:
                cursor.execute(f"{_SELECT_AT} ORDER BY checkpoint_id DESC LIMIT 1", place)
            values = cursor.fetchone()
            saved = self._load_checkpoint_tuple(cursor, values) if values else None
            last = values and values[2]
            if wanted:
                (last,) = cursor.execute(_SELECT_LAST_ID, place).fetchone()
        if last:
            advance_past(str(last))
        return saved._replace(config=config) if saved and wanted else saved

    def get_latest_id(self, config: RunnableConfig) -> str | None:
        """Return the id of the latest checkpoint of a namespace, without loading the checkpoint."""
        with self._open_cursor(config) as cursor:
            last = cursor.execute(_SELECT_LAST_ID, get_conversation_place(config)).fetchone()[0]
        return None if last is None else str(last)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Return checkpoints, newest first; all are read at once, so that no cursor stays open.

        Raises:
            CheckpointTampered: A row is damaged.
        """
        where, parameters = search_where(config, filter, before)
        query = f"{SELECT_CHECKPOINTS} {where} ORDER BY checkpoint_id DESC"
        if limit is not None:
            query, parameters = f"{query} LIMIT ?", (*parameters, limit)
        with self._open_cursor(config) as cursor:
            rows = cursor.execute(query, parameters).fetchall()
            parents: KnownParents = {}
            return iter([self._load_checkpoint_tuple(cursor, values, parents) for values in rows])

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the history of some delta channels before a checkpoint.

        Raises:
            CheckpointTampered: A row on the way is damaged or missing.
        """
        wanted = get_checkpoint_id(config) or self.get_latest_id(config)
        with self._open_cursor(config) as cursor:
            return self._read_history(
                cursor, get_conversation_place(config), wanted, DeltaWalk(channels, self.serde)
            )

    def _read_history(
        self, cursor: sqlite3.Cursor, place: tuple[str, str], wanted: str | None, walk: DeltaWalk
    ) -> dict[str, DeltaChannelHistory]:
        cursor.execute(_SELECT_CHAIN, (*place, wanted, *place, *place))
        while (values := cursor.fetchone()) and walk.visit(self._check_row(CheckpointRow, values)):
            pass
        walk.check_complete()
        histories: dict[str, DeltaChannelHistory] = {}
        for channel, passed in walk.checkpoint_ids.items():
            cursor.execute(_SELECT_CHANNEL_WRITES, (*place, channel, json.dumps(passed)))
            rows = [self._check_row(WriteRow, columns) for columns in cursor.fetchall()]
            histories[channel] = walk.build_history(channel, rows)
        return histories

    def _load_checkpoint_tuple(
        self, cursor: sqlite3.Cursor, values: Sequence[Any], maps: KnownParents | None = None
    ) -> CheckpointTuple:
        row = self._check_row(CheckpointRow, values)
        cursor.execute(_SELECT_WRITES_AT, row[:3])
        rows = [self._check_row(WriteRow, columns) for columns in cursor.fetchall()]
        saved = load_checkpoint_tuple(row, load_writes(rows, self.serde), self.serde)
        if parents := saved.metadata.get("parents"):
            read_parents = partial(
                self._load_parents, cursor, {} if maps is None else maps, row.thread_id
            )
            saved.metadata["parents"] = complete_parents(parents, read_parents)
        return saved

    def _load_parents(
        self, cursor: sqlite3.Cursor, maps: KnownParents, thread_id: str, namespace: str, name: str
    ) -> Parents:
        place = (thread_id, namespace, name)
        if place not in maps:
            values = cursor.execute(f"{_SELECT_AT} AND checkpoint_id = ?", place).fetchone()
            row = self._check_row(CheckpointRow, values) if values else None
            maps[place] = (load_metadata(row).get("parents") or {}) if row else {}
        return maps[place]

    def _check_row(self, kind: Any, values: Sequence[Any]) -> Any:
        *columns, seal = values
        row = kind(*columns)
        self._seals.check_row(row, seal)
        return row

    def _hold_for_reading(self) -> AbstractContextManager[sqlite3.Cursor]:
        """Return a context that holds the connection for some reads, with a cursor."""
        return self.cursor(transaction=False)

    def _open_cursor(self, config: RunnableConfig | None) -> AbstractContextManager[sqlite3.Cursor]:
        return _VerifiedCursor(self._hold_for_reading(), config)


class _VerifiedCursor:
    """The context of a cursor in which a row that SQLite cannot read is an error of that row."""

    __slots__ = ("_config", "_held")

    def __init__(
        self, held: AbstractContextManager[sqlite3.Cursor], config: RunnableConfig | None
    ) -> None:
        self._held = held
        self._config = config

    def __enter__(self) -> sqlite3.Cursor:
        return self._held.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        unreadable = isinstance(error, sqlite3.OperationalError)
        if unreadable and str(error).startswith(_UNREADABLE_MESSAGES):
            of = f" of thread {get_conversation_place(self._config)[0]!r}" if self._config else ""
            tampered = CheckpointTampered(f"a row{of}", str(error))
            self._held.__exit__(type(tampered), tampered, traceback)
            raise tampered from error
        self._held.__exit__(kind, error, traceback)


def advance_past(checkpoint_id: str) -> None:
    """Make all further ids of this process later than a stored one, if that is LangGraph's.

    LangGraph makes an id, a uuid of version 6, from the time, later than the last one of its
    process, and the checkpoint with the greatest id counts as the latest. A process whose clock is
    behind that of an earlier writer would store checkpoints that are never read.
    """
    try:
        uuid = UUID(checkpoint_id)
    except ValueError:
        return
    ticks = (uuid.int >> 80) << 12 | (uuid.int >> 64) & 0xFFF
    if uuid.version == _UUID_VERSION and ticks < _LATEST_TICKS:
        advance_checkpoint_ids(ticks)


def get_conversation_place(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread id and the namespace of a config."""
    configurable = config["configurable"]
    return str(configurable["thread_id"]), str(configurable.get("checkpoint_ns", ""))


_SELECT_AT = f"{SELECT_CHECKPOINTS} WHERE thread_id = ? AND checkpoint_ns = ?"
_SELECT_LAST_ID = (
    "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?"
)
_SELECT_WRITES_AT = (
    f"{SELECT_WRITES} WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
)
# Follows each row to its parent; SQLite returns them in that order, one by one.
_SELECT_CHAIN = f"""
WITH RECURSIVE chain (id, above) AS (
    SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints
    WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?
    UNION ALL
    SELECT checkpoint_id, parent_checkpoint_id
    FROM chain CROSS JOIN checkpoints ON checkpoint_id = above
    WHERE thread_id = ? AND checkpoint_ns = ?
)
{SELECT_CHECKPOINTS.replace(" FROM checkpoints", " FROM chain CROSS JOIN checkpoints")}
ON checkpoint_id = chain.id WHERE thread_id = ? AND checkpoint_ns = ?
"""  # noqa: S608
_SELECT_CHANNEL_WRITES = (
    f"{SELECT_WRITES} WHERE thread_id = ? AND checkpoint_ns = ? AND channel = ?"  # noqa: S608
    " AND checkpoint_id IN (SELECT value FROM json_each(?))"
)
