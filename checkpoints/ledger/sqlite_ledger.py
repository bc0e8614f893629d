"""`SqliteLedger`: the ledger in the database of the checkpoints, on the same connection.

The checkpointer calls `require_lease` within the transaction of each protected write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar

from echelons.checkpoints.clock import Clock, utc_now
from echelons.checkpoints.ledger.base_ledger import Ledger
from echelons.checkpoints.ledger.locks import FileLocks, LocalLocks
from echelons.checkpoints.ledger.transaction import (
    MAX_NUMBER,
    MAX_RECORD_SIZE,
    REPAIR_STEP,
    Fence,
    LeaseHolder,
    Transaction,
    check_number,
)
from echelons.checkpoints.thread_events import ThreadEvent, WriteLocation
from echelons.errors import LedgerDamaged

T = TypeVar("T")
MAX_INTEGER = 2**63 - 1
"""The largest integer of SQLite."""
MAX_FLOOR: Final = MAX_NUMBER // 2
"""The versions of new keys begin below it; those of damaged rows may be above."""
LEASE: Final = "lease"
"""The kind of a lease's row, for errors."""
# SQLite compares bytes of UTF-8, and they are in the order of the code points.
_HAS_PREFIX = "key >= ?1 AND key < ?1 || CAST(x'ff' AS TEXT)"
SELECT_LEASES: Final = (
    "SELECT name, epoch, pid, CAST(since AS BLOB), CAST(host AS BLOB) FROM ledger_leases"
)


class LedgerDatabase(Protocol):
    """What a ledger needs of `SqliteCheckpointer`: connection, events and way of waiting."""

    def cursor(self, transaction: bool = True) -> AbstractContextManager[sqlite3.Cursor]:
        """Hold the connection for one transaction."""
        ...

    def foreign_writes(self) -> int:
        """Return a number that changes when another connection has written to the database."""
        ...

    def insert_event(
        self, cursor: sqlite3.Cursor, where: WriteLocation, event: ThreadEvent, at: str
    ) -> None:
        """Insert an event of a thread, once for its key."""
        ...

    async def _run(self, work: Callable[[], T], /) -> T: ...


class SqliteLedger(Ledger):
    """A ledger in the database of a checkpointer, for any number of threads and processes.

    The leases of a database without a file exclude only users of this object, for other processes
    cannot see whether a holder is alive; their epochs fence all the same.

    Args:
        database: The checkpointer. It stays open for as long as the ledger is used, and
            decides how durable a commit is.
        clock: Returns the time of stored records.
        limit: The largest record or value, in bytes of JSON in UTF-8.
    """

    def __init__(
        self, database: LedgerDatabase, *, clock: Clock = utc_now, limit: int = MAX_RECORD_SIZE
    ) -> None:
        with database.cursor(transaction=False) as cursor:
            # As SQLite knows it: absolute, without symbolic links, and empty if there is no file.
            files = {name: file for _, name, file in cursor.execute("PRAGMA database_list")}
            earlier = cursor.execute("SELECT 1 FROM ledger_values WHERE key = 'effect//earlier'")
            self.has_earlier_calls = earlier.fetchone() is not None
        super().__init__(FileLocks(files["main"]) if files["main"] else LocalLocks(), clock)
        self._database = database
        self._limit = limit

    def commit(self, work: Callable[[Transaction], T]) -> T:
        """Run some work in one write transaction, and return its result."""
        with self._database.cursor() as cursor:
            # Immediate: what the work reads must not change before its first write.
            cursor.execute("BEGIN IMMEDIATE")
            return work(SqliteTransaction(cursor, self._clock, self._limit, self._database))

    def query(self, work: Callable[[Transaction], T]) -> T:
        """Run some reading, without keeping writers out, and return its result."""
        with self._database.cursor(transaction=False) as cursor:
            return work(SqliteTransaction(cursor, self._clock, self._limit))

    def foreign_writes(self) -> int:
        """Return a number that changes when another connection has written to the database."""
        return self._database.foreign_writes()

    async def arun(self, work: Callable[[], T]) -> T:
        """Run some work on the ledger in an event loop; all of it again if the store was busy."""
        return await self._database._run(work)


def require_lease(cursor: sqlite3.Cursor, fence: Fence) -> None:
    """Refuse a transaction whose lease has been taken by another holder.

    Begins the transaction if it has not begun: whatever is committed with this check is written
    under the lease, or not at all.

    Raises:
        LeaseLost: Another holder has taken the lease.
    """
    if not cursor.connection.in_transaction:
        cursor.execute("BEGIN IMMEDIATE")
    SqliteTransaction(cursor, utc_now, MAX_RECORD_SIZE).require_lease(fence)


class SqliteTransaction(Transaction):
    """A transaction on a cursor; the owner of the cursor begins and commits it.

    Without its database it adds no events.
    """

    def __init__(
        self,
        cursor: sqlite3.Cursor,
        clock: Clock,
        limit: int,
        database: LedgerDatabase | None = None,
    ) -> None:
        super().__init__(clock, limit)
        self._cursor = cursor
        self._database = database

    @property
    def store_version(self) -> tuple[int, int]:
        """The version of the database, by the writes of others and of this connection."""
        return self.foreign_writes, self._cursor.connection.total_changes

    @property
    def foreign_writes(self) -> int:
        """The value of `Ledger.foreign_writes`, as of this transaction."""
        return int(self._cursor.execute("PRAGMA data_version").fetchone()[0])

    def add_event(self, where: WriteLocation, event: ThreadEvent) -> bool:
        """Add an event to those of a thread, see `Transaction`."""
        if self._database:
            self._database.insert_event(self._cursor, where, event, self.now)
        return self._database is not None

    def require_lease(self, fence: Fence) -> None:
        """Refuse to go on if another holder has taken the lease, see `Transaction`."""
        # Each write of a run does this: the whole row is read only for the error.
        query = "SELECT epoch FROM ledger_leases WHERE name = ?"
        if self._cursor.execute(query, (fence.name,)).fetchone() != (fence.epoch,):
            super().require_lease(fence)

    # Texts are read as bytes: of one that is no UTF-8, SQLite's error would not say where it is.

    def _read_last(self, stream: str) -> int:
        query = "SELECT coalesce(max(sequence), 0) FROM ledger_entries WHERE stream = ?"
        return check_number(stream, self._cursor.execute(query, (stream,)).fetchone()[0])

    def _add_entry(self, stream: str, sequence: int, at: str, text: str) -> None:
        self._cursor.execute(
            "INSERT INTO ledger_entries (stream, sequence, at, record) VALUES (?, ?, ?, ?)",
            (stream, sequence, at, text),
        )

    def _read_entries(
        self, stream: str, after: int, limit: int | None
    ) -> Iterable[tuple[int, str, str | bytes]]:
        self._cursor.execute(
            "SELECT sequence, CAST(at AS BLOB), CAST(record AS BLOB) FROM ledger_entries"
            " WHERE stream = ? AND sequence > ? ORDER BY sequence LIMIT ?",
            (stream, _clamp(after), MAX_INTEGER if limit is None else _clamp(limit)),
        )
        rows = self._cursor.fetchall()
        return [(sequence, _decode_text(at), record) for sequence, at, record in rows]

    def _read_value(self, key: str) -> tuple[str | bytes, int] | None:
        query = "SELECT CAST(value AS BLOB), version FROM ledger_values WHERE key = ?"
        row: tuple[bytes, int] | None = self._cursor.execute(query, (key,)).fetchone()
        return row

    def _read_version(self, key: str) -> int | None:
        # Whatever it is: a damaged one equals no version that is expected.
        query = "SELECT coalesce(version, -1) FROM ledger_values WHERE key = ?"
        row = self._cursor.execute(query, (key,)).fetchone()
        return row[0] if row else None

    def _store_value(self, key: str, version: int, at: str, text: str) -> None:
        # Not `OR REPLACE`: that would write another row, and its index.
        self._cursor.execute(
            "INSERT INTO ledger_values (key, version, at, value) VALUES (?1, ?2, ?3, ?4)"
            " ON CONFLICT (key) DO UPDATE SET version = ?2, at = ?3, value = ?4",
            (key, version, at, text),
        )

    def _remove_key(self, key: str) -> None:
        self._cursor.execute("DELETE FROM ledger_values WHERE key = ?", (key,))

    def _read_floor(self) -> int:
        row = self._cursor.execute("SELECT version FROM ledger_floor").fetchone()
        if row and type(row[0]) is int and 0 <= row[0] < MAX_FLOOR:
            return row[0]
        # It is every thread's, so it is made again, far above all versions that there were.
        self._cursor.execute("DELETE FROM ledger_floor")
        self._cursor.execute(
            "INSERT INTO ledger_floor SELECT coalesce(max(version), 0) + ?1 FROM ledger_values"
            " WHERE typeof(version) = 'integer' AND version < ?2 - ?1",
            (REPAIR_STEP, MAX_FLOOR),
        )
        return self._read_floor()

    def _raise_floor(self, version: int) -> None:
        self._cursor.execute("UPDATE ledger_floor SET version = ?", (version,))

    def _read_keys(self, prefix: str) -> Iterable[str]:
        self._cursor.execute(
            f"SELECT CAST(key AS BLOB) FROM ledger_values WHERE {_HAS_PREFIX} ORDER BY key",  # noqa: S608
            (prefix,),
        )
        return [_decode_text(key) for (key,) in self._cursor]

    def _read_records(self, prefix: str) -> Iterable[tuple[str, str, str | bytes]]:
        self._cursor.execute(
            "SELECT CAST(key AS BLOB), CAST(at AS BLOB), CAST(value AS BLOB) FROM ledger_values"  # noqa: S608
            f" WHERE {_HAS_PREFIX} ORDER BY key",
            (prefix,),
        )
        for key, at, value in self._cursor.fetchall():
            yield _decode_text(key), _decode_text(at), value or b""

    def _read_holder(self, name: str) -> LeaseHolder | None:
        row = self._cursor.execute(f"{SELECT_LEASES} WHERE name = ?", (name,)).fetchone()
        return load_holder(row) if row else None

    def _store_holder(self, name: str, holder: LeaseHolder) -> None:
        self._cursor.execute(
            "INSERT OR REPLACE INTO ledger_leases (name, epoch, pid, since, host)"
            " VALUES (?, ?, ?, ?, ?)",
            (name, *holder),
        )


def load_holder(row: tuple[Any, ...]) -> LeaseHolder:
    """Return the holder in a row of `SELECT_LEASES`.

    Raises:
        LedgerDamaged: It is damaged.
    """
    name, epoch, pid, since, host = row
    if type(name) is not str:
        raise LedgerDamaged(repr(name), "its name is no text", LEASE)
    return LeaseHolder(
        check_number(name, epoch, LEASE),
        check_number(name, pid, LEASE),
        _decode_text(since),
        _decode_text(host),
    )


def _clamp(number: int) -> int:
    return max(0, min(number, MAX_INTEGER))


def _decode_text(stored: bytes | None) -> str:
    return (stored or b"").decode(errors="replace")
