"""`SqliteLedger`: the ledger in the database of the checkpoints, on the same connection.

The checkpointer calls `require_lease` within the transaction of each protected write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import takewhile
from typing import Protocol, TypeVar

from echelons.checkpoints.clock import Clock, utc_now
from echelons.checkpoints.ledger.base_ledger import Ledger
from echelons.checkpoints.ledger.file_locks import FileLocks
from echelons.checkpoints.ledger.locks import LocalLocks
from echelons.checkpoints.ledger.records import MAX_RECORD_SIZE
from echelons.checkpoints.ledger.transaction import Fence, LeaseHolder, Transaction

T = TypeVar("T")
MAX_INTEGER = 2**63 - 1
"""The largest integer of SQLite."""


class LedgerDatabase(Protocol):
    """What a ledger needs of `SqliteCheckpointer`: its connection, and its way of waiting."""

    def cursor(self, transaction: bool = True) -> AbstractContextManager[sqlite3.Cursor]:
        """Hold the connection for one transaction."""
        ...

    def foreign_writes(self) -> int:
        """Return a number that changes when another connection has written to the database."""
        ...

    async def _run(self, work: Callable[[], T]) -> T: ...


class SqliteLedger(Ledger):
    """A ledger in the database of a checkpointer, for any number of threads and processes.

    The leases of a database without a file exclude only users of this object, for other processes
    cannot see whether a holder is alive; their epochs fence all the same.

    Args:
        database: The checkpointer. It stays open for as long as the ledger is used, and
            decides how durable a commit is.
        clock: Tells the time of what is stored.
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
        super().__init__(FileLocks(files["main"]) if files["main"] else LocalLocks())
        self._database = database
        self._clock = clock
        self._limit = limit

    def commit(self, work: Callable[[Transaction], T]) -> T:
        """Run some work in one write transaction, and return its result."""
        with self._database.cursor() as cursor:
            # Immediate: what the work reads must not change before its first write.
            cursor.execute("BEGIN IMMEDIATE")
            return work(SqliteTransaction(cursor, self._clock, self._limit))

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
    """A transaction on a cursor; the owner of the cursor begins and commits it."""

    def __init__(self, cursor: sqlite3.Cursor, clock: Clock, limit: int) -> None:
        super().__init__(clock, limit)
        self._cursor = cursor

    @property
    def store_version(self) -> tuple[int, int]:
        """The version of the database, by the writes of others and of this connection."""
        by_others = self._cursor.execute("PRAGMA data_version").fetchone()[0]
        return int(by_others), self._cursor.connection.total_changes

    def _read_last(self, stream: str) -> int:
        query = "SELECT coalesce(max(sequence), 0) FROM ledger_entries WHERE stream = ?"
        return int(self._cursor.execute(query, (stream,)).fetchone()[0])

    def _add_entry(self, stream: str, sequence: int, at: str, text: str) -> None:
        self._cursor.execute(
            "INSERT INTO ledger_entries (stream, sequence, at, record) VALUES (?, ?, ?, ?)",
            (stream, sequence, at, text),
        )

    def _read_entries(
        self, stream: str, after: int, limit: int | None
    ) -> Iterable[tuple[int, str, str]]:
        self._cursor.execute(
            "SELECT sequence, at, record FROM ledger_entries WHERE stream = ? AND sequence > ?"
            " ORDER BY sequence LIMIT ?",
            (stream, _clamp(after), MAX_INTEGER if limit is None else _clamp(limit)),
        )
        return self._cursor.fetchall()

    def _read_value(self, key: str) -> tuple[str, int] | None:
        query = "SELECT value, version FROM ledger_values WHERE key = ?"
        found: tuple[str, int] | None = self._cursor.execute(query, (key,)).fetchone()
        return found

    def _read_version(self, key: str) -> int | None:
        query = "SELECT version FROM ledger_values WHERE key = ?"
        found = self._cursor.execute(query, (key,)).fetchone()
        return int(found[0]) if found else None

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
        return int(self._cursor.execute("SELECT version FROM ledger_floor").fetchone()[0])

    def _raise_floor(self, version: int) -> None:
        self._cursor.execute("UPDATE ledger_floor SET version = ?", (version,))

    def _read_keys(self, prefix: str) -> Iterable[str]:
        self._cursor.execute("SELECT key FROM ledger_values WHERE key >= ? ORDER BY key", (prefix,))
        # SQLite compares bytes of UTF-8, and they are in the order of the code points.
        return takewhile(lambda key: key.startswith(prefix), (key for (key,) in self._cursor))

    def _read_holder(self, name: str) -> LeaseHolder | None:
        query = "SELECT epoch, pid, since, host FROM ledger_leases WHERE name = ?"
        found = self._cursor.execute(query, (name,)).fetchone()
        return LeaseHolder(*found) if found else None

    def _store_holder(self, name: str, holder: LeaseHolder) -> None:
        self._cursor.execute(
            "INSERT OR REPLACE INTO ledger_leases (name, epoch, pid, since, host)"
            " VALUES (?, ?, ?, ?, ?)",
            (name, *holder),
        )


def _clamp(number: int) -> int:
    return max(0, min(number, MAX_INTEGER))
