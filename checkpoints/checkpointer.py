"""`SqliteCheckpointer`: LangGraph's SQLite saver with events, seals and a ledger.

It keeps LangGraph's tables. The asynchronous methods call the synchronous core directly: in
WAL mode with `synchronous=NORMAL` a commit takes tens of microseconds, less than handing
it to another thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)

from echelons.checkpoints.async_methods import Awaited
from echelons.checkpoints.clock import Clock, now
from echelons.checkpoints.coordination.journal_cleanup import Unsettled
from echelons.checkpoints.coordination.turns import failing, turn_of
from echelons.checkpoints.ledger import SqliteLedger
from echelons.checkpoints.maintenance.backup import Cared
from echelons.checkpoints.storage.connection import Synchronous, connect, foreign_writes, named
from echelons.checkpoints.storage.connection_lock import Line
from echelons.checkpoints.storage.event_rows import (
    FIND_QUESTION,
    Where,
    input_events,
    keep_events,
    kept_metadata,
    write_events,
)
from echelons.checkpoints.storage.history_cache import REMEMBERED
from echelons.checkpoints.storage.json_text import as_json
from echelons.checkpoints.storage.migrations import migrate, refuse_newer
from echelons.checkpoints.storage.parent_map import Ancestry
from echelons.checkpoints.storage.rows import (
    KEEP_WRITE,
    PUT_CHECKPOINT,
    REPLACE_WRITE,
    CheckpointRow,
    WriteRow,
)
from echelons.checkpoints.storage.seals import seals_of
from echelons.checkpoints.storage.serde import Serializer

T = TypeVar("T")


class SqliteCheckpointer(Awaited, Cared):
    """Checkpoints, and the events of every thread, in one SQLite file.

    Args:
        path: The database file, created with mode 0600 if it does not exist. `":memory:"` for a
            database without a file.
        synchronous: `"NORMAL"` survives the death of the process, `"FULL"` also a
            power cut, at about 4 ms a commit instead of 0.05 ms.
        busy_timeout: Seconds to wait for another connection's lock. A synchronous caller blocks;
            in an event loop other work goes on.
        offload: Hop to a thread in the asynchronous methods, for servers that forbid
            blocking calls in the event loop.
        clock: Returns the time of events.
        allowed_types: Your own types in graph states: pydantic models, dataclasses, named tuples
            and enumerations. Otherwise only plain values, messages and LangGraph's own types
            are stored or loaded.
        seal: A key of 16 bytes or more with which every row is sealed and checked. Of several
            keys the first one seals; rows sealed with the others can still be read.
        remembered: Number of conversations cached in memory, so that a turn does not read its
            whole past again. The least recently used is evicted first; 0 for no cache.

    Raises:
        InvalidAllowedType: One of the types cannot be stored.
        InvalidSealKey: A key is not bytes, or too short.
        StorageError: The file cannot be opened, or is not a database.
        DatabaseTooNew: A newer version of Echelons has migrated it.
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
        remembered: int = REMEMBERED,
    ) -> None:
        self.path = str(path)
        self._clock = clock
        self._offload = offload
        self.unsettled = Unsettled()
        serde = Serializer(allowed_types)
        super().__init__(
            connect(self.path, synchronous, busy_timeout), serde, remembered=remembered
        )
        self._changes = self.conn.total_changes
        self._ancestry = Ancestry()
        self._line = Line(self.path, self.conn, self.lock, busy_timeout)
        try:
            with named(self.path):
                self.setup()
                self._seals = seals_of(seal, self.conn, self.path)
                self.ledger = SqliteLedger(_Beside(self), clock=clock)
        except BaseException:
            self.close()
            raise

    def setup(self) -> None:
        """Create the tables, indexes and views that do not exist yet."""
        if not self.is_setup:
            refuse_newer(self.conn, self.path)
            super().setup()
            migrate(self.conn, self.path, self._clock)

    def reseal(self, *, adopt: bool = False) -> int:
        """Check every row and seal it again with the first key; the other keys can then be dropped.

        Args:
            adopt: Whether rows without a seal are accepted, for a database that was not sealed
                before.

        Returns:
            The number of rows.

        Raises:
            InvalidSealKey: There is no key.
            CheckpointTampered: A row does not match its seal; nothing was changed.
            StorageError: SQLite could not read or write.
        """
        with self.cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            return self._seals.renew(cursor, adopt)

    def close(self) -> None:
        """Close the database; everything has been written already."""
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
        """Hold the connection for one transaction, which is committed as a whole or not at all.

        Raises:
            StorageError: SQLite could not read or write.
        """
        with self._holding(transaction) as cursor:
            before = self.conn.total_changes
            try:
                yield cursor
            finally:
                # The caller may have written to any conversation in the cache.
                if self.conn.total_changes != before:
                    self._forget()

    @contextmanager
    def _holding(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Hold the connection as `cursor` does, for writers that update the caches themselves."""
        with named(self.path), self._line.held() as connection:
            cursor = connection.cursor()
            # The connection was used directly, so the caches may be stale.
            if self.conn.total_changes != self._changes:
                self._forget()
            try:
                yield cursor
                if transaction:
                    self.conn.commit()
            except BaseException:
                self.conn.rollback()
                raise
            finally:
                cursor.close()
                self._changes = self.conn.total_changes

    def _forget(self) -> None:
        self._recent.clear()
        self._ancestry.clear()

    def _lent(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._line.held()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and the events of an input that it holds in full."""
        where = Where.of(config, checkpoint["id"])
        kind, blob = self.serde.dumps_typed(checkpoint)
        kept = kept_metadata(config, metadata)
        parents = kept.get("parents", {})
        given = config["configurable"]
        turn = turn_of(given)
        with failing(given, self._line.patient), self._holding() as cursor:
            if parents:
                kept["parents"] = dict(self._ancestry.shortened(where.thread_id, parents))
            row = CheckpointRow(
                where.thread_id,
                where.checkpoint_ns,
                where.checkpoint_id,
                given.get("checkpoint_id"),
                kind,
                blob,
                as_json(kept).encode(),
            )
            self._recent.put(row[:2], row.checkpoint_id, row.parent_checkpoint_id)
            if turn:
                turn.enter(cursor)
                if metadata.get("source") == "input" and not where.checkpoint_ns:
                    turn.begin(cursor)
            cursor.execute(PUT_CHECKPOINT, row)
            self._seals.keep(cursor, [row])
            keep_events(cursor, where, input_events(where, checkpoint, metadata), self._clock)
        self._ancestry.stored(row[:3], parents)
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
        """Store the writes of a task, and their events, in one transaction."""
        where = Where.of(config, str(config["configurable"]["checkpoint_id"]))
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
        given = config["configurable"]
        turn = turn_of(given)
        with failing(given, self._line.patient), self._holding() as cursor:
            self._recent.wrote((where.thread_id, where.checkpoint_ns), where.checkpoint_id)
            if turn:
                turn.enter(cursor)
            cursor.executemany(REPLACE_WRITE if special else KEEP_WRITE, rows)
            self._seals.keep(cursor, rows, replace=special)
            keep_events(cursor, where, write_events(where, writes), self._clock)
            self.unsettled.settle(cursor, task_id, writes)

    def foreign_writes(self) -> int:
        """Return a number that changes when another connection has written to the database.

        Raises:
            StorageError: SQLite could not read.
        """
        # Called before each step of each agent, so it skips the cost of a cursor.
        with named(self.path), self._line.held() as connection:
            return foreign_writes(connection)

    def has_question(self, thread_id: str, question_id: str) -> bool:
        """Return whether a question was ever asked under a root's thread.

        Raises:
            StorageError: SQLite could not read.
        """
        with self.cursor(transaction=False) as cursor:
            return cursor.execute(FIND_QUESTION, (thread_id, question_id)).fetchone() is not None

    async def alatest(self, config: RunnableConfig) -> str | None:
        """Async version of `latest`."""
        return await self._run(lambda: self.latest(config))

    def _failing(self, config: RunnableConfig) -> AbstractContextManager[None]:
        return failing(config["configurable"])

    async def _run(self, work: Callable[[], T]) -> T:
        return await (asyncio.to_thread(work) if self._offload else self._line.run(work))


# LangGraph inspects the signature of these in every run of every graph: compute it once.
for _method in (SqliteCheckpointer.put_writes, SqliteCheckpointer.aput_writes):
    vars(_method)["__signature__"] = signature(_method)


class _Beside:
    """The database as its ledger sees it: ledger writes never invalidate cached conversations."""

    def __init__(self, saver: SqliteCheckpointer) -> None:
        self._run = saver._run
        self.cursor = saver._holding
        self.foreign_writes = saver.foreign_writes
