"""``SqliteCheckpointer``: LangGraph's SQLite saver, with events, and without thread hops.

Keeps LangGraph's tables. The asynchronous methods call the synchronous core directly: in
WAL mode with ``synchronous=NORMAL`` a commit takes tens of microseconds, less than handing
it to another thread.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.types import INTERRUPT, _DeltaSnapshot

from echelons.checkpoints.clock import Clock, now
from echelons.checkpoints.events import Event, events_of, question
from echelons.checkpoints.ledger import SqliteLedger
from echelons.checkpoints.maintenance import Maintained
from echelons.checkpoints.messages import MESSAGES
from echelons.checkpoints.migrations import migrate, refuse_newer
from echelons.checkpoints.plain import as_json
from echelons.checkpoints.rows import (
    KEEP_WRITE,
    PUT_CHECKPOINT,
    REPLACE_WRITE,
    CheckpointRow,
    WriteRow,
)
from echelons.checkpoints.seal import seals_of
from echelons.checkpoints.serde import Serializer
from echelons.checkpoints.turns import turn_of
from echelons.errors import StorageError

T = TypeVar("T")
OWN_METADATA = CheckpointMetadata.__annotations__.keys() | {"thread_id", "graph_id", "assistant_id"}
"""Keys of LangGraph's and its server's own, whatever a caller's ``configurable`` holds."""
Synchronous = Literal["NORMAL", "FULL"]


class SqliteCheckpointer(Maintained):
    """Checkpoints, and the events of every thread, in one SQLite file.

    Args:
        path: The database; made with mode 0600 if it is not there. ``":memory:"`` keeps
            nothing.
        synchronous: ``"NORMAL"`` survives the death of the process, ``"FULL"`` also a
            power cut, at about 4 ms a commit instead of 0.05 ms.
        busy_timeout: Seconds to wait for another process's lock.
        offload: Hop to a thread in the asynchronous methods, for servers that forbid
            blocking calls in the event loop.
        clock: Tells the time of events.
        allowed_types: Types of yours in the states of graphs that you run: pydantic models,
            dataclasses, named tuples, enumerations. Nothing else but plain values, messages
            and LangGraph's own is ever stored or loaded.
        seal: A key of 16 bytes or more with which every row is sealed and checked; of several
            the first seals, and rows sealed with the others are read too.

    Raises:
        InvalidAllowedType: One of the types cannot be stored.
        InvalidSealKey: A key is no bytes, or too short.
        StorageError: The file cannot be opened, or is no database.
        DatabaseTooNew: A newer version has brought its tables up to date.
    """

    def __init__(  # noqa: PLR0913  each option stands for itself
        self,
        path: str | Path,
        *,
        synchronous: Synchronous = "NORMAL",
        busy_timeout: float = 5.0,
        offload: bool = False,
        clock: Clock = now,
        allowed_types: Iterable[type[Any]] = (),
        seal: bytes | Sequence[bytes] | None = None,
    ) -> None:
        self.path = str(path)
        self._clock = clock
        self._offload = offload
        serde = Serializer(allowed_types)
        super().__init__(_connect(self.path, synchronous, busy_timeout), serde)
        try:
            with _named(self.path):
                self.setup()
                self._seals = seals_of(seal, self.conn, self.path)
                self.ledger = SqliteLedger(self, clock=clock)
        except BaseException:
            self.close()
            raise

    def setup(self) -> None:
        """Make the tables, indexes and views that are not there yet."""
        if not self.is_setup:
            refuse_newer(self.conn, self.path)
            super().setup()
            migrate(self.conn, self.path, self._clock)

    def reseal(self, *, adopt: bool = False) -> int:
        """Check every row, and seal it anew with the first key.

        Afterwards the other keys can be given up.

        Args:
            adopt: Whether rows without a seal are taken as they are, as all are in a database
                that was not sealed before.

        Returns:
            The number of rows.

        Raises:
            InvalidSealKey: There is no key.
            CheckpointTampered: A row is not what was sealed; nothing was changed.
            StorageError: SQLite could not read or write.
        """
        with self.cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            return self._seals.renew(cursor, adopt)

    def close(self) -> None:
        """Close the database; everything is written already."""
        self.conn.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Hold the connection for one transaction, all of it or nothing.

        Raises:
            StorageError: SQLite could not read or write.
        """
        with self.lock, _named(self.path):
            cursor = self.conn.cursor()
            try:
                yield cursor
                if transaction:
                    self.conn.commit()
            except BaseException:
                self.conn.rollback()
                raise
            finally:
                cursor.close()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and the events of an input that it holds whole."""
        where = _Where.of(config, checkpoint["id"])
        kind, blob = self.serde.dumps_typed(checkpoint)
        kept = _metadata(config, metadata)
        row = CheckpointRow(
            where.thread_id,
            where.checkpoint_ns,
            where.checkpoint_id,
            config["configurable"].get("checkpoint_id"),
            kind,
            blob,
            as_json(kept).encode(),
        )
        turn = turn_of(config["configurable"])
        with self.cursor() as cursor:
            if turn:
                turn.enter(cursor)
                if metadata.get("source") == "input" and not where.checkpoint_ns:
                    turn.begin(cursor)
            cursor.execute(PUT_CHECKPOINT, row)
            self._seals.keep(cursor, [row])
            self._record(cursor, where, _input_events(checkpoint, metadata))
        return {
            "configurable": {
                "thread_id": config["configurable"]["thread_id"],
                "checkpoint_ns": where.checkpoint_ns,
                "checkpoint_id": where.checkpoint_id,
            }
        }

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote, and its events, in one transaction."""
        where = _Where.of(config, str(config["configurable"]["checkpoint_id"]))
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        rows = [
            WriteRow(
                where.thread_id,
                where.checkpoint_ns,
                where.checkpoint_id,
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, place),
                channel,
                *self.serde.dumps_typed(value),
            )
            for place, (channel, value) in enumerate(writes)
        ]
        turn = turn_of(config["configurable"])
        with self.cursor() as cursor:
            if turn:
                turn.enter(cursor)
            cursor.executemany(REPLACE_WRITE if special else KEEP_WRITE, rows)
            self._seals.keep(cursor, rows, replace=special)
            self._record(cursor, where, _write_events(writes))

    def _record(self, cursor: sqlite3.Cursor, where: _Where, events: Iterable[Event]) -> None:
        if not where.agent_thread_id:
            return
        rows = [
            (
                where.thread_id,
                where.agent_thread_id,
                where.agent_path,
                where.checkpoint_ns,
                where.checkpoint_id,
                self._clock().isoformat(),
                str(event.kind),
                event.key,
                as_json(event.data),
            )
            for event in events
        ]
        if rows:
            cursor.executemany(_KEEP_EVENT, rows)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work) if self._offload else work()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do what ``get_tuple`` does in an event loop."""
        return await self._run(lambda: self.get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do what ``list`` does in an event loop."""
        found = await self._run(
            lambda: [*self.list(config, filter=filter, before=before, limit=limit)]
        )
        for each in found:
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Do what ``put`` does in an event loop."""
        return await self._run(lambda: self.put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Do what ``put_writes`` does in an event loop."""
        await self._run(lambda: self.put_writes(config, writes, task_id, task_path))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Do what ``get_delta_channel_history`` does in an event loop."""
        return await self._run(
            lambda: self.get_delta_channel_history(config=config, channels=channels)
        )


_KEEP_EVENT = (
    "INSERT OR IGNORE INTO events (thread_id, agent_thread_id, agent_path, checkpoint_ns,"
    " checkpoint_id, at, kind, key, data) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9"
    # A question comes up through every level; the first to write it is the one who asks.
    " WHERE ?7 <> 'question' OR NOT EXISTS"
    " (SELECT 1 FROM events WHERE thread_id = ?1 AND kind = 'question' AND key = ?8)"
)


class _Where(NamedTuple):
    """The place of a write: LangGraph's coordinates and ours."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    agent_thread_id: str
    agent_path: str

    @classmethod
    def of(cls, config: RunnableConfig, checkpoint_id: str) -> _Where:
        given, metadata = config["configurable"], config.get("metadata") or {}
        return cls(
            str(given["thread_id"]),
            str(given.get("checkpoint_ns", "")),
            checkpoint_id,
            str(metadata.get("agent_thread_id", "")),
            str(metadata.get("agent_path", "")),
        )


def _metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Return what is kept of a run's metadata.

    A caller's ``configurable`` stays out: it may hold keys and secrets. LangGraph's server
    mixes it into the metadata, so it is taken out again, but for the ids that it looks for.
    """
    given = config["configurable"].keys() - OWN_METADATA
    own: Any = {key: value for key, value in metadata.items() if key not in given}
    return get_checkpoint_metadata({"metadata": config.get("metadata") or {}}, own)


def _input_events(checkpoint: Checkpoint, metadata: CheckpointMetadata) -> Iterator[Event]:
    # The first input of a delta channel is stored as a snapshot, without a write.
    if metadata.get("source") in ("input", "update", "fork"):
        held = checkpoint["channel_values"].get(MESSAGES)
        yield from events_of(held.value if isinstance(held, _DeltaSnapshot) else ())


def _write_events(writes: Sequence[tuple[str, Any]]) -> Iterator[Event]:
    for channel, value in writes:
        if channel == MESSAGES:
            yield from events_of(value if isinstance(value, (list, tuple)) else [value])
        elif channel == INTERRUPT:
            for each in value:
                yield question(each.id, each.value)


def _connect(path: str, synchronous: Synchronous, busy_timeout: float) -> sqlite3.Connection:
    with _named(path):
        name = path
        if path != ":memory:":
            _make_private(path)
            # Some builds of SQLite take `file:…` for a URI, which may be another file.
            name = str(Path(path).absolute())
        connection = sqlite3.connect(name, timeout=busy_timeout, check_same_thread=False)
        try:
            _write_ahead(connection)
            # A literal, never the caller's text: pragmas take no parameters.
            connection.execute(
                f"PRAGMA synchronous={'FULL' if synchronous == 'FULL' else 'NORMAL'}"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection


_ATTEMPTS = 5
"""Four processes that opened new databases together never needed more than two."""


def _write_ahead(connection: sqlite3.Connection) -> None:
    for _ in range(_ATTEMPTS):
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode=WAL")
            return
        # SQLite refuses at once those who open a new database while another makes this switch,
        # timeout or not. To begin a transaction is to wait for that one.
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()
    connection.execute("PRAGMA journal_mode=WAL")


def _make_private(path: str) -> None:
    # SQLite gives the -wal and -shm files the mode of the database.
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except ValueError as error:  # a NUL, which ends a path
        raise OSError(str(error)) from error


@contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeEncodeError) as error:
        raise StorageError(path, str(error)) from error
