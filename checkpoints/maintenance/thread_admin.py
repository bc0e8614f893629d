"""`ThreadAdmin`: deletes, copies and prunes threads, with all kinds of records that they have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from sqlite3 import Cursor
from typing import Any, Final, NamedTuple, TypeVar

from echelons.checkpoints.async_methods import WorkRunner
from echelons.checkpoints.clock import Clock
from echelons.checkpoints.coordination.agent_aliases import ALIAS_NAME, ALIAS_POOL
from echelons.checkpoints.coordination.candidates import CIRCUIT, INTENSITY, RACE
from echelons.checkpoints.coordination.capability_cache import DERIVED
from echelons.checkpoints.coordination.decisions import STANDING
from echelons.checkpoints.coordination.gate import METER
from echelons.checkpoints.coordination.journal import EFFECT, FAILURE, FAILURE_COUNT
from echelons.checkpoints.coordination.orders import ORDERS
from echelons.checkpoints.coordination.records import Records, move_records
from echelons.checkpoints.coordination.repairs import REPAIR
from echelons.checkpoints.coordination.turns import OPEN_EPOCH, TURN
from echelons.checkpoints.ledger import RecordKind, build_key
from echelons.checkpoints.ledger.sqlite_ledger import MAX_FLOOR, SqliteTransaction
from echelons.checkpoints.ledger.transaction import ANY_RECORD, MAX_RECORD_SIZE
from echelons.checkpoints.maintenance.retention_policies import (
    KeepLatest,
    NamespacePlace,
    Strategy,
    plan_retention,
    plan_run_removal,
)
from echelons.checkpoints.queries import CheckpointParents, run_plan
from echelons.checkpoints.storage.cached_saver import CachedSaver
from echelons.checkpoints.storage.rows import PUT_CHECKPOINT, CheckpointRow
from echelons.checkpoints.storage.serde import to_json_text
from echelons.checkpoints.storage.verified_saver import VerifiedSaver
from echelons.checkpoints.threads.answer_outbox import ANSWER
from echelons.errors import ThreadError, invalid_strategy
from echelons.features.registry import list_features

_CORE_KINDS: Final[tuple[Records[Any], ...]] = (
    *(TURN, ORDERS, METER, EFFECT, FAILURE, FAILURE_COUNT, RACE, ANSWER, OPEN_EPOCH, STANDING),
    REPAIR,
)
SHARED_KINDS: Final[dict[str, RecordKind[Any]]] = {
    kind.name: kind for kind in (CIRCUIT, INTENSITY, DERIVED, ALIAS_NAME, ALIAS_POOL)
}
"""The kinds of the records that threads share."""


@cache
def get_thread_kinds() -> Mapping[str, Records[Any]]:
    """Return the kinds of the records of a thread, also those of features, by name."""
    of_features = (kind for feature in list_features() for kind in feature.records)
    return {kind.name: kind for kind in (*_CORE_KINDS, *of_features)}


def list_branch_kinds() -> list[Records[Any]]:
    """Return the kinds whose records belong to branches, which move when checkpoints are pruned."""
    return [kind for kind in get_thread_kinds().values() if kind.after]


def find_record_kind(key: str) -> RecordKind[Any]:
    """Return the kind of the records under a key, `ANY_RECORD` if it is not known.

    Examples:
        >>> find_record_kind("thread/trip/turn/1").name, find_record_kind("mail").name
        ('turn', 'record')
    """
    first, *parts = key.split("/")
    if first == "thread" and len(parts) > 1:
        return get_thread_kinds().get(parts[1], ANY_RECORD)
    return SHARED_KINDS.get(first, ANY_RECORD)


STATE_TABLES = ("checkpoints", "writes", "seals")
THREAD_TABLES = (*STATE_TABLES, "events")
_AFTER_SLASH = "0"
"""The character after the slash, which follows the prefix in all names of a thread."""


def delete_thread_rows(cursor: Cursor, thread_id: str) -> None:
    """Delete a thread with its keys and streams, and fence off its run, if it has one."""
    for table in THREAD_TABLES:
        cursor.execute(f"DELETE FROM {table} WHERE thread_id = ?", (thread_id,))  # noqa: S608
    between = _get_key_range(thread_id)
    # A key that is created again must not get a version that it has had.
    cursor.execute(
        "UPDATE ledger_floor SET version = max(version, coalesce("
        "(SELECT max(version) FROM ledger_values WHERE key >= ? AND key < ?"
        # Not the version of a damaged row: the new keys of all threads begin above the floor.
        " AND typeof(version) = 'integer' AND version < ?), 0))",
        (*between, MAX_FLOOR),
    )
    cursor.execute("DELETE FROM ledger_values WHERE key >= ? AND key < ?", between)
    cursor.execute("DELETE FROM ledger_entries WHERE stream >= ? AND stream < ?", between)
    cursor.execute(
        "UPDATE ledger_leases SET epoch = epoch + 1 WHERE name = ?", (build_key(thread_id),)
    )


def has_thread_rows(cursor: Cursor, thread_id: str) -> bool:
    """Return whether a thread has any checkpoint or key."""
    query = (
        "SELECT 1 FROM checkpoints WHERE thread_id = ?"
        " UNION ALL SELECT 1 FROM ledger_values WHERE key >= ? AND key < ? LIMIT 1"
    )
    return cursor.execute(query, (thread_id, *_get_key_range(thread_id))).fetchone() is not None


def copy_thread_rows(
    cursor: Cursor, source: str, target: str, kinds: Iterable[Records[Any]]
) -> None:
    """Copy a root's thread and its records to an unused id, and not its streams.

    The root's id is replaced in all columns. Subordinates' threads keep their ids, because their
    superiors' messages name them, and the copy has no name.
    """
    for statement in (_COPY_CHECKPOINTS, _COPY_WRITES, _COPY_EVENTS, _MARK_CALLS):
        cursor.execute(statement, {"source": source, "target": target})
    cursor.execute(
        "INSERT INTO ledger_values (key, version, at, value)"
        " SELECT ? || substr(key, ?), (SELECT version FROM ledger_floor) + 1, at, value"
        " FROM ledger_values WHERE key >= ? AND key < ?",
        (build_key(target), len(build_key(source)) + 1, *_get_key_range(source)),
    )
    for kind in kinds:
        first, end = _get_key_range(target, kind.name)
        if not kind.is_copied:
            cursor.execute("DELETE FROM ledger_values WHERE key >= ? AND key < ?", (first, end))
        elif kind.names_thread:
            cursor.execute(
                _RENAME_THREAD, {"source": source, "target": target, "first": first, "end": end}
            )
        if kind.marks_copies:
            cursor.execute(_MARK_COPIES, (first, end))


def _get_key_range(thread_id: str, *parts: str) -> tuple[str, str]:
    prefix = build_key(thread_id, *parts)
    return f"{prefix}/", f"{prefix}{_AFTER_SLASH}"


def _build_rename(column: str) -> str:
    return f"CASE {column} WHEN :source THEN :target ELSE {column} END"


_TEXT = "CAST(metadata AS TEXT)"
# `json_replace` ignores missing keys.
_RENAMED_IDS = ", ".join(
    f"'$.{key}', " + _build_rename(f"json_extract({_TEXT}, '$.{key}')")
    for key in ("thread_id", "agent_thread_id", "superior_thread_id")
)
# Built from the names above, never from input.
_COPY_CHECKPOINTS = f"""
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
)
SELECT
    :target, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
    CAST(json_replace({_TEXT}, {_RENAMED_IDS}, '$.thread_name', '') AS BLOB)
FROM checkpoints WHERE thread_id = :source
"""  # noqa: S608
_RENAME_THREAD = f"""
UPDATE ledger_values SET value = json_replace(value, '$.thread_id', :target, '$.agent_thread_id',
    {_build_rename("json_extract(value, '$.agent_thread_id')")})
WHERE key >= :first AND key < :end AND json_valid(value)
"""  # noqa: S608
_COPY_WRITES = """
INSERT INTO writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
)
SELECT
    :target, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
FROM writes WHERE thread_id = :source
"""
_COPY_EVENTS = f"""
INSERT INTO events (
    thread_id, agent_thread_id, agent_path, checkpoint_ns, checkpoint_id, at, kind, key, data
)
SELECT
    :target, {_build_rename("agent_thread_id")}, agent_path, checkpoint_ns, checkpoint_id, at, kind,
    key, data
FROM events WHERE thread_id = :source ORDER BY id
"""  # noqa: S608
_MARK_CALLS = """
INSERT INTO inherited_calls
SELECT id FROM events WHERE thread_id = :target AND kind IN ('message', 'tool_call')
"""
_MARK_COPIES = """
UPDATE ledger_values
SET value = json_set(json_remove(value, '$.inner'), '$.inherited', json('true'))
WHERE key >= ? AND key < ? AND json_valid(value)
"""


T = TypeVar("T")
KEEP_LATEST = "keep_latest"
DELETE_STRATEGIES = ("delete", "delete_all")
"""Names that LangGraph and its server use for the strategy that keeps nothing."""


class RemovedRows(NamedTuple):
    """Numbers of rows that were deleted.

    Attributes:
        checkpoints: Deleted checkpoints.
        writes: Deleted writes at them.
        events: Deleted events of them; 0 unless events were to be deleted.
    """

    checkpoints: int
    writes: int
    events: int


class ThreadAdmin(CachedSaver):
    """A SQLite saver with events whose threads can be deleted, copied and pruned.

    Each method raises `StorageError` if SQLite cannot read or write.
    """

    _clock: Clock
    _run: WorkRunner

    def delete_thread(self, thread_id: str) -> None:
        """Delete a root's thread: checkpoints, writes and events of its whole tree.

        Its rows in the ledger are deleted too, except for the epochs of its lease.
        """
        with self.cursor() as cursor:
            delete_thread_rows(cursor, str(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        await self._run(lambda: self.delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of some runs of a server, for its rollback.

        Checkpoints that later ones are rebuilt from stay. So do writes of a run at a checkpoint
        of an earlier run: LangGraph does not replay them into another branch.

        Args:
            run_ids: The server's ids of the runs; unknown ones are ignored.
        """
        runs = frozenset(map(str, run_ids))
        with self._open_rewrite() as (cursor, reader):
            cursor.execute(
                "SELECT DISTINCT thread_id FROM checkpoints"
                " WHERE json_extract(CAST(metadata AS TEXT), '$.run_id')"
                " IN (SELECT value FROM json_each(?))",
                (json.dumps(sorted(runs)),),
            )
            for (thread_id,) in cursor.fetchall():
                kept = run_plan(reader, plan_run_removal(thread_id, runs))
                for table in THREAD_TABLES:
                    _delete_checkpoints(cursor, table, thread_id, kept.gone)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        await self._run(lambda: self.delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a root's thread under another id; its subordinates' threads keep theirs.

        Look-ups take the root's id as well, so the two never mix. The copy has no name. A source
        that never ran can be copied, too. Keys of the ledger are copied, such as turns and
        effects; its streams are not.

        Args:
            source_thread_id: LangGraph's id of the thread to copy.
            target_thread_id: An unused id.

        Raises:
            ThreadError: The target id is in use.
        """
        source, target = str(source_thread_id), str(target_thread_id)
        with self._open_rewrite() as (cursor, _):
            if has_thread_rows(cursor, target):
                raise ThreadError(
                    "thread {thread_id!r} is there already; copy to another id, or delete it "
                    "first. Nothing was changed",
                    code="thread_taken",
                    thread_id=target,
                )
            self._seals.check_thread(cursor, source)
            copy_thread_rows(cursor, source, target, get_thread_kinds().values())
            self._seals.seal_thread(cursor, target)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        await self._run(lambda: self.copy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str | Strategy = KEEP_LATEST) -> None:
        """Delete old checkpoints of some roots' threads.

        Conversations stay complete, questions stay open, and the threads can go on; only going
        back to a deleted checkpoint is no longer possible. Events stay. Mail, later questions and
        standing decisions of branches that are deleted whole go with them.

        Args:
            thread_ids: LangGraph's ids; unknown ones are ignored.
            strategy: `KeepLatest`, `KeepYounger` or `KeepTurns`, see `retain`.
                `"keep_latest"` is `KeepLatest()`; `"delete"` keeps nothing.

        Raises:
            InvalidInput: There is no such strategy.
        """
        if isinstance(strategy, Strategy):
            self.retain(thread_ids, strategy)
        elif strategy == KEEP_LATEST:
            self.retain(thread_ids, KeepLatest())
        elif strategy in DELETE_STRATEGIES:
            with self._open_rewrite() as (cursor, _):
                for thread_id in map(str, thread_ids):
                    delete_thread_rows(cursor, thread_id)
        else:
            strategies = ", ".join((KEEP_LATEST, *DELETE_STRATEGIES))
            raise invalid_strategy(repr(strategy), f"is no strategy; use one of {strategies}")

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: str | Strategy = KEEP_LATEST
    ) -> None:
        """Async version of `prune`."""
        await self._run(lambda: self.prune(thread_ids, strategy=strategy))

    def retain(
        self,
        thread_ids: Sequence[str],
        keep: Strategy,
        *,
        events: bool = True,
        dry_run: bool = False,
    ) -> RemovedRows:
        """Delete the checkpoints of some roots' threads that a strategy does not keep.

        All of them are deleted, or none. The latest checkpoint of every segment of every agent
        always stays, with the ends of other threads that it points to and the checkpoints that all
        these are rebuilt from: conversations stay complete, questions stay open, and the threads
        can go on.

        Args:
            thread_ids: LangGraph's ids; unknown ones are ignored.
            keep: The retention policy.
            events: Whether the events of deleted checkpoints stay.
            dry_run: Whether to only count, and change nothing.

        Returns:
            The numbers of rows that were deleted, or would be.
        """
        tables = STATE_TABLES if events else THREAD_TABLES
        before: dict[str, int] = dict.fromkeys(THREAD_TABLES, 0)
        with self._open_rewrite() as (cursor, reader):
            for thread_id in map(str, thread_ids):
                kept = run_plan(reader, plan_retention(thread_id, keep, self._clock()))
                parents = CheckpointParents(thread_id).get(reader)
                gone = {
                    checkpoint_id for checkpoint_ns, checkpoint_id in kept.gone if not checkpoint_ns
                }
                open_ = SqliteTransaction(cursor, self._clock, MAX_RECORD_SIZE)
                move_records(open_, thread_id, parents, parents.keys() - gone, list_branch_kinds())
                for table in tables:
                    before[table] += _delete_checkpoints(cursor, table, thread_id, kept.gone)
                for place, row in kept.changed.items():
                    parent = (row.parent_config or {}).get("configurable", {})
                    data = self.serde.dumps_typed(row.checkpoint)
                    metadata = to_json_text(row.metadata).encode()
                    stored = CheckpointRow(
                        thread_id, *place, parent.get("checkpoint_id"), *data, metadata
                    )
                    cursor.execute(PUT_CHECKPOINT, stored)
                    self._seals.seal_rows(cursor, [stored])
            if dry_run:
                cursor.connection.rollback()
        return RemovedRows(before["checkpoints"], before["writes"], before["events"])

    async def aretain(
        self,
        thread_ids: Sequence[str],
        keep: Strategy,
        *,
        events: bool = True,
        dry_run: bool = False,
    ) -> RemovedRows:
        """Async version of `retain`."""
        work = partial(self.retain, thread_ids, keep, events=events, dry_run=dry_run)
        return await self._run(work)

    @contextmanager
    def _open_rewrite(self) -> Iterator[tuple[Cursor, VerifiedSaver]]:
        """Open a write transaction, and yield its cursor with a saver that reads inside it."""
        with self.cursor() as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            reader = VerifiedSaver(self.conn, self.serde, self._seals)
            # Its setup would commit the transaction.
            reader.is_setup = True
            yield cursor, reader


def _delete_checkpoints(
    cursor: Cursor, table: str, thread_id: str, places: Iterable[NamespacePlace]
) -> int:
    rows = [(thread_id, *place) for place in places]
    cursor.executemany(
        f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_ns = ?"  # noqa: S608
        " AND checkpoint_id = ?",
        rows,
    )
    return max(0, cursor.rowcount)
