"""`SqliteCheckpointer`: LangGraph's SQLite saver with events, seals and a ledger.

It keeps LangGraph's tables. The asynchronous methods call the synchronous core directly: in
WAL mode with `synchronous=NORMAL` a commit takes tens of microseconds, less than handing
it to another thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar, get_args

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.serde.types import ERROR

from echelons.checkpoints.async_methods import AsyncMethods
from echelons.checkpoints.clock import Clock, utc_now
from echelons.checkpoints.coordination.journal import CompletedCalls
from echelons.checkpoints.coordination.task_changes import TaskChanges
from echelons.checkpoints.coordination.turns import get_turn, record_failure
from echelons.checkpoints.delta_channels import DELTA_CHANNELS
from echelons.checkpoints.ledger import SqliteLedger
from echelons.checkpoints.maintenance.backup import Backups
from echelons.checkpoints.queries import AgentThread
from echelons.checkpoints.storage.cached_saver import DEFAULT_CACHE_SIZE
from echelons.checkpoints.storage.connection import (
    PRIVATE_MODE,
    ConnectionLock,
    DatabaseBusy,
    HeldConnection,
    Synchronous,
    open_connection,
    wrap_storage_errors,
)
from echelons.checkpoints.storage.event_rows import (
    FIND_LAST_TASK,
    FIND_QUESTION,
    INPUT_SOURCES,
    READ_EVENTS,
    SELECT_USER_ACTIONS,
    StoredEvent,
    build_input_events,
    build_write_events,
    filter_metadata,
    insert_events,
    load_event,
    load_user_action,
    redact_error,
)
from echelons.checkpoints.storage.rows import (
    KEEP_WRITE,
    PUT_CHECKPOINT,
    REPLACE_WRITE,
    SELECT_AGENT_ROWS,
    SELECT_AGENT_TIMES,
    SELECT_CALL_ROWS,
    SELECT_ROOT_CHECKPOINTS,
    SELECT_SHARING_ROOTS,
    CallRow,
    CheckpointRow,
    ParentMap,
    WriteRow,
    load_agent_threads,
    load_call_rows,
)
from echelons.checkpoints.storage.schema import migrate, refuse_newer
from echelons.checkpoints.storage.seals import choose_seals
from echelons.checkpoints.storage.serde import AllowlistSerializer, to_json_text
from echelons.checkpoints.thread_events import ThreadEvent, UserAction, WriteLocation
from echelons.errors import InvalidSetting, StorageError, invalid_database
from echelons.text.input_limits import read_text, refuse_unreadable

T = TypeVar("T")
TaskWrites: TypeAlias = tuple[RunnableConfig, Sequence[tuple[str, Any]], str, str]
"""The arguments of `put_writes`: config, writes, and the id and path of the task."""


class SqliteCheckpointer(AsyncMethods, Backups):
    """Checkpoints, and the events of every thread, in one SQLite file.

    Args:
        path: The database file, created if it does not exist. `":memory:"` for a database without
            a file.
        synchronous: `"NORMAL"` survives the death of the process, `"FULL"` also a
            power cut, as each commit waits for the disk.
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
            whole past again. The least recently used is evicted first; 0 for no cache. Short ones
            are read again, which costs less.
        mode: The mode that the database and its write-ahead log get when it is opened, if they are
            the user's; `None` leaves that of a file that exists.

    Raises:
        ConfigurationError: The path is neither a text nor a path.
        InvalidSetting: A number is negative, `synchronous` is another word, or `offload` is no
            boolean.
        ConfigurationError: One of the types cannot be stored; a key is not bytes, or too short.
        StorageError: The file cannot be opened, or is not a database; a newer version of Echelons
            has migrated it; it is a link that somebody else could change.
    """

    def __init__(  # noqa: PLR0913  each option stands for itself
        self,
        path: str | Path,
        *,
        synchronous: Synchronous = "NORMAL",
        busy_timeout: float = 5.0,
        offload: bool = False,
        clock: Clock = utc_now,
        allowed_types: Iterable[type[Any]] = (),
        seal: bytes | Sequence[bytes] | None = None,
        remembered: int = DEFAULT_CACHE_SIZE,
        mode: int | None = PRIVATE_MODE,
    ) -> None:
        with refuse_unreadable(lambda _: invalid_database(path)):
            if not isinstance(path, (str, os.PathLike)):
                raise invalid_database(path)
            self.path = read_text(path) or os.fspath(path)
        for name, value in (("busy_timeout", busy_timeout), ("remembered", remembered)):
            # The limit is that of SQLite, which counts milliseconds.
            if type(value) not in (int, float) or not 0 <= value < 2_000_000:
                why = "pass a number from 0 to 2 million, or leave it out for the default"
                raise InvalidSetting(type(self).__name__, name, value, why)
        if read_text(synchronous) not in get_args(Synchronous):
            why = "pass 'NORMAL', which is the default, or 'FULL'"
            raise InvalidSetting(type(self).__name__, "synchronous", synchronous, why)
        if type(offload) is not bool:
            raise InvalidSetting(type(self).__name__, "offload", offload, "pass True or False")
        why = "pass a function that returns the time, a `datetime` with its zone"
        with refuse_unreadable(lambda _: InvalidSetting(type(self).__name__, "clock", clock, why)):
            clock().timestamp()
        if mode is not None and not (type(mode) is int and 0o600 <= mode <= 0o777):
            why = "pass a mode such as 0o660, with which the user may read and write, or None"
            raise InvalidSetting(type(self).__name__, "mode", mode, why)
        self._clock = clock
        self._offload = offload
        self.unsettled = CompletedCalls()
        self.task_changes = TaskChanges()
        serde = AllowlistSerializer(allowed_types)
        super().__init__(
            open_connection(self.path, synchronous, busy_timeout, mode),
            serde,
            remembered=remembered,
        )
        self._parent_map = ParentMap()
        self._connection_lock = ConnectionLock(
            self.path, self.conn, self.lock, busy_timeout, self._clear_caches
        )
        self._run = asyncio.to_thread if offload else self._connection_lock.run_in_loop
        try:
            with wrap_storage_errors(self.path):
                self.setup()
                self._seals = choose_seals(seal, self.conn, self.path)
                self.ledger = SqliteLedger(_LedgerConnection(self), clock=clock)
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
            ConfigurationError: There is no key.
            CheckpointTampered: A row does not match its seal; nothing was changed.
        """
        with self.cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            return self._seals.reseal_all(cursor, adopt)

    def close(self) -> None:
        """Close the database; everything has been written already.

        A transaction of another thread is waited for, for the busy timeout at most.
        """
        self._connection_lock.close()

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
        """Hold the connection for one transaction, which is committed as a whole or not at all."""
        # The caller may write to any conversation in the caches.
        held = HeldConnection(self._connection_lock, transaction, tracks_writes=False)
        with held as cursor:
            yield cursor

    def _hold_for_reading(self) -> AbstractContextManager[sqlite3.Cursor]:
        return HeldConnection(self._connection_lock, transaction=False)

    def _clear_caches(self) -> None:
        self._history_cache.clear()
        self._parent_map.clear()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, and the events of an input that it holds in full."""
        return self.put_step(None, config, checkpoint, metadata)

    def put_step(
        self,
        task_writes: TaskWrites | None,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
    ) -> RunnableConfig:
        """Store a checkpoint with the writes of the step's one task, in one transaction.

        Args:
            task_writes: The arguments of `put_writes`; `None` if the writes are stored already.
            config: As for `put`, like the checkpoint and its metadata.
            checkpoint: The checkpoint that the writes have led to.
            metadata: Its metadata.
        """
        where = WriteLocation.from_config(config, checkpoint["id"])
        place = where[:3]
        kind, blob = self.serde.dumps_typed(checkpoint)
        kept = filter_metadata(config, metadata)
        parents = kept.get("parents", {})
        rows = self._build_write_rows(*task_writes) if task_writes else None
        configurable = config["configurable"]
        turn = get_turn(configurable)
        failures = turn.failures if turn else None
        with HeldConnection(self._connection_lock, failures=failures) as cursor:
            if turn:
                turn.check_write(cursor)
            if task_writes and rows:
                self._insert_writes(cursor, rows, task_writes)
            if parents:
                kept["parents"] = dict(self._parent_map.shorten(where.thread_id, parents))
            stored_metadata = to_json_text(kept).encode()
            row = CheckpointRow(
                *place, configurable.get("checkpoint_id"), kind, blob, stored_metadata
            )
            self._history_cache.note_checkpoint(
                place[:2],
                where.checkpoint_id,
                row.parent_checkpoint_id,
                holds_snapshot=bool(DELTA_CHANNELS.keys() & checkpoint["channel_values"]),
            )
            source = metadata.get("source")
            if turn and source == "input" and not where.checkpoint_ns:
                turn.record_begin(cursor)
            cursor.execute(PUT_CHECKPOINT, row)
            self._seals.seal_rows(cursor, [row])
            if source in INPUT_SOURCES:
                insert_events(cursor, where, build_input_events(where, checkpoint), self._clock)
        if turn and not where.checkpoint_ns and where.thread_id == turn.thread_id:
            turn.root.checkpoint_id = where.checkpoint_id
        if self.task_changes.has_news:
            self.task_changes.signal(self.ledger)
        self._parent_map.remember(place, parents)
        stored = {"checkpoint_ns": where.checkpoint_ns, "checkpoint_id": where.checkpoint_id}
        return {"configurable": {"thread_id": configurable["thread_id"], **stored}}

    async def aput_step(
        self,
        task_writes: TaskWrites | None,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
    ) -> RunnableConfig:
        """Async version of `put_step`."""
        try:
            return await self._run(self.put_step, task_writes, config, checkpoint, metadata)
        except StorageError as failure:
            self._record_failure(config, failure)
            raise

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task, and their events, in one transaction."""
        rows = self._build_write_rows(config, writes, task_id, task_path)
        turn = get_turn(config["configurable"])
        failures = turn.failures if turn else None
        with HeldConnection(self._connection_lock, failures=failures) as cursor:
            if turn:
                turn.check_write(cursor)
            self._insert_writes(cursor, rows, (config, writes, task_id, task_path))
        if self.task_changes.has_news:
            self.task_changes.signal(self.ledger)

    def run_at_once(self, work: Callable[..., T], *args: Any) -> T:
        """Run synchronous work of the saver in an event loop without waiting for the database.

        Raises:
            DatabaseBusy: The database was not free, or blocking calls are forbidden (`offload`).
            StorageError: SQLite or the system raised another error meanwhile.
        """
        if self._offload:
            raise DatabaseBusy
        return self._connection_lock.run_at_once(work, *args)

    def _build_write_rows(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> list[WriteRow]:
        configurable = config["configurable"]
        place = str(configurable["thread_id"]), str(configurable.get("checkpoint_ns", ""))
        return [
            WriteRow(
                *place,
                str(configurable["checkpoint_id"]),
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, number),
                channel,
                *self.serde.dumps_typed(value if channel != ERROR else redact_error(value, config)),
            )
            for number, (channel, value) in enumerate(writes)
        ]

    def _insert_writes(
        self, cursor: sqlite3.Cursor, rows: Sequence[WriteRow], task_writes: TaskWrites
    ) -> None:
        config, writes, task_id, task_path = task_writes
        where = WriteLocation.from_config(config, str(config["configurable"]["checkpoint_id"]))
        # LangGraph's indexes of special channels are negative.
        special = all(row.idx < 0 for row in rows)
        self._history_cache.note_writes(where[:2], where.checkpoint_id)
        cursor.executemany(REPLACE_WRITE if special else KEEP_WRITE, rows)
        self._seals.seal_rows(cursor, rows, replace=special)
        events = build_write_events(where, writes, task_id, task_path)
        insert_events(cursor, where, events, self._clock)
        self.unsettled.remove_entry(cursor, task_id, writes)
        if self.task_changes.pending:
            self.task_changes.make(cursor, task_id, writes)

    def foreign_writes(self) -> int:
        """Return a number that changes when another connection has written to the database."""
        return self._connection_lock.read_data_version()

    def find_asker(self, thread_id: str, question_id: str) -> str | None:
        """Return the path of the agent that has asked a question; `None` if it was never asked."""
        with self.cursor(transaction=False) as cursor:
            row = cursor.execute(FIND_QUESTION, (thread_id, question_id)).fetchone()
        return str(row[0]) if row else None

    def read_events(self, thread_id: str, after: int | None = None) -> list[StoredEvent]:
        """Return the events under a root's thread, in the order in which they were stored.

        Args:
            thread_id: The root's thread.
            after: The number of the last event already read; the root's last task and all after
                it if left out.

        Raises:
            CheckpointTampered: An event is damaged.
        """
        with self._open_cursor({"configurable": {"thread_id": thread_id}}) as cursor:
            if after is None:
                (task,) = cursor.execute(FIND_LAST_TASK, (thread_id,)).fetchone()
                after = (task or 1) - 1
            rows = cursor.execute(READ_EVENTS, (thread_id, after)).fetchall()
        return [load_event(row) for row in rows]

    def read_user_actions(self, thread_id: str) -> list[UserAction]:
        """Return the answers, approvals and orders that were given under a root's thread, in order.

        Raises:
            CheckpointTampered: One of them is damaged.
        """
        with self._open_cursor({"configurable": {"thread_id": thread_id}}) as cursor:
            rows = cursor.execute(SELECT_USER_ACTIONS, (thread_id,)).fetchall()
        return [load_user_action(row) for row in rows]

    async def aread_user_actions(self, thread_id: str) -> list[UserAction]:
        """Async version of `read_user_actions`."""
        return await self._run(self.read_user_actions, thread_id)

    def read_agent_threads(self, thread_id: str) -> dict[str, AgentThread]:
        """Return the threads of the agents under a root's thread, by their ids.

        Raises:
            CheckpointTampered: The identity of one of them is damaged.
        """
        with self._open_cursor({"configurable": {"thread_id": thread_id}}) as cursor:
            rows = cursor.execute(SELECT_AGENT_ROWS, (thread_id,)).fetchall()
            begun = cursor.execute(SELECT_AGENT_TIMES, (thread_id,)).fetchall()
        return load_agent_threads(thread_id, rows, begun)

    async def aread_agent_threads(self, thread_id: str) -> dict[str, AgentThread]:
        """Async version of `read_agent_threads`."""
        return await self._run(self.read_agent_threads, thread_id)

    def list_sharing_roots(self, thread_ids: Collection[str]) -> list[str]:
        """Return the roots' threads in which some agents' threads stand: copies have the same."""
        names = json.dumps(sorted(thread_ids))
        with self._hold_for_reading() as cursor:
            return [root for (root,) in cursor.execute(SELECT_SHARING_ROOTS, (names,))]

    def read_call_rows(self, thread_id: str | None) -> list[CallRow]:
        """Return the replies of models and the calls of tools of a root's thread, or of all.

        Raises:
            CheckpointTampered: The event of one of them is damaged.
        """
        with self._hold_for_reading() as cursor:
            rows = cursor.execute(SELECT_CALL_ROWS, (thread_id,)).fetchall()
        return list(load_call_rows(rows))

    async def aread_call_rows(self, thread_id: str | None) -> list[CallRow]:
        """Async version of `read_call_rows`."""
        return await self._run(self.read_call_rows, thread_id)

    def read_root_checkpoints(self, thread_id: str) -> dict[str, str]:
        """Return the root's checkpoint at which each graph just below it ran, by its namespace."""
        with self._hold_for_reading() as cursor:
            return dict(cursor.execute(SELECT_ROOT_CHECKPOINTS, (thread_id,)).fetchall())

    async def aread_root_checkpoints(self, thread_id: str) -> dict[str, str]:
        """Async version of `read_root_checkpoints`."""
        return await self._run(self.read_root_checkpoints, thread_id)

    def insert_event(
        self, cursor: sqlite3.Cursor, where: WriteLocation, event: ThreadEvent, at: str
    ) -> None:
        """Insert an event of a thread, once for its key, in a transaction of the ledger."""
        insert_events(cursor, where, [event], lambda: datetime.fromisoformat(at))

    async def aget_latest_id(self, config: RunnableConfig) -> str | None:
        """Async version of `get_latest_id`."""
        return await self._run(self.get_latest_id, config)

    def get_parents(self, thread_id: str) -> dict[str, str | None]:
        """Return the parent of each checkpoint of a root, by its id."""
        query = (
            "SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints"
            " WHERE thread_id = ? AND checkpoint_ns = ''"
        )
        with self._open_cursor({"configurable": {"thread_id": thread_id}}) as cursor:
            return dict(cursor.execute(query, (thread_id,)).fetchall())

    async def aget_parents(self, thread_id: str) -> dict[str, str | None]:
        """Async version of `get_parents`."""
        return await self._run(self.get_parents, thread_id)

    def list_thread_ids(self) -> list[str]:
        """Return LangGraph's id of every thread, without reading any of their rows."""
        with self._open_cursor(None) as cursor:
            rows = cursor.execute("SELECT DISTINCT thread_id FROM checkpoints").fetchall()
        return [str(thread_id) for (thread_id,) in rows]

    async def alist_thread_ids(self) -> list[str]:
        """Async version of `list_thread_ids`."""
        return await self._run(self.list_thread_ids)

    def _record_failure(self, config: RunnableConfig, failure: StorageError) -> None:
        record_failure(config["configurable"], failure)


# LangGraph inspects the signature of these in every run of every graph: compute it once.
for _method in (SqliteCheckpointer.put_writes, SqliteCheckpointer.aput_writes):
    vars(_method)["__signature__"] = signature(_method)


class _LedgerConnection:
    """The database as its ledger sees it: ledger writes never invalidate cached conversations."""

    def __init__(self, saver: SqliteCheckpointer) -> None:
        self._run = saver._run
        self.cursor = partial(HeldConnection, saver._connection_lock)
        self.foreign_writes = saver.foreign_writes
        self.insert_event = saver.insert_event
