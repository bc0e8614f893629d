"""The SQLite connection of a `SqliteCheckpointer`: how it is opened, and how callers share it.

The file is private and has a write-ahead log. SQLite lets one connection write at a time, and the
saver's one connection serves one caller at a time. A synchronous caller waits for both, up to the
busy timeout. In an event loop each attempt is made without waiting; if it fails, the loop goes on
with other work and it is made again.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

from echelons.errors import DatabaseClosed, StorageError

T = TypeVar("T")
Synchronous = Literal["NORMAL", "FULL"]
IN_MEMORY = ":memory:"
"""The path of a database without a file."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.025
"""Seconds between two attempts in an event loop; doubled each time up to the longest."""
_WAL_ATTEMPTS = 5
"""Measured: four processes that opened a new database together never needed more than two."""
# The last is a lost race for the locks of the write-ahead log, as against a stopped process.
_BUSY_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_STORAGE_ERRORS = (sqlite3.Error, OSError, UnicodeEncodeError)


def open_connection(path: str, synchronous: Synchronous, busy_timeout: float) -> sqlite3.Connection:
    """Open a database; it is created with mode 0600 if it does not exist.

    Args:
        path: The database, or `":memory:"`.
        synchronous: SQLite's `synchronous` setting: what a commit survives.
        busy_timeout: Seconds to wait for another connection's lock.

    Raises:
        StorageError: It cannot be opened.
    """
    with wrap_storage_errors(path):
        name = path
        if path != IN_MEMORY:
            # SQLite gives the -wal and -shm files the mode of the database.
            create_private_file(path)
            # Some builds of SQLite take `file:…` for a URI, which may be another file.
            name = str(Path(path).absolute())
        connection = sqlite3.connect(name, timeout=busy_timeout, check_same_thread=False)
        try:
            _enable_write_ahead_log(connection)
            # A literal, never the caller's text: pragmas take no parameters.
            connection.execute(
                f"PRAGMA synchronous={'FULL' if synchronous == 'FULL' else 'NORMAL'}"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection


@contextmanager
def wrap_storage_errors(path: str) -> Iterator[None]:
    """Raise errors of SQLite and the system as `StorageError` with the path of the database."""
    try:
        yield
    except _STORAGE_ERRORS as error:
        raise _build_storage_error(path, error) from error


def _build_storage_error(path: str, error: Exception) -> StorageError:
    is_closed = isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error)
    return (DatabaseClosed if is_closed else StorageError)(path, str(error))


def read_data_version(connection: sqlite3.Connection) -> int:
    """Return a number that changes when another connection has written to the database.

    Takes a few microseconds.
    """
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _enable_write_ahead_log(connection: sqlite3.Connection) -> None:
    for _ in range(_WAL_ATTEMPTS):
        with suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode=WAL")
            return
        # While another connection switches a new database to write-ahead mode, SQLite fails at
        # once, whatever the timeout. Beginning a transaction waits until the switch is done.
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()
    connection.execute("PRAGMA journal_mode=WAL")


def create_private_file(path: str, flags: int = 0) -> None:
    """Create a file with mode 0600, if it does not exist.

    Raises:
        OSError: It cannot be created.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | flags, 0o600))
    except ValueError as error:  # a NUL, which ends a path
        raise OSError(str(error)) from error


class _ConnectionTaken(Exception):
    """Another caller holds the connection."""


class ConnectionLock:
    """Gives the connection to one caller at a time.

    Args:
        path: Path of the database, for errors.
        connection: The connection, opened with the same busy timeout.
        lock: The lock that protects the connection.
        busy_timeout: The longest time that a caller waits, in seconds.
    """

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        lock: threading.Lock,
        busy_timeout: float,
    ) -> None:
        self._path = path
        self._connection = connection
        self._lock = lock
        self._busy_timeout = busy_timeout
        self._timeout_set = True
        self._thread_state = threading.local()

    @property
    def blocks(self) -> bool:
        """Whether the current caller blocks, instead of trying again."""
        found: bool = getattr(self._thread_state, "patient", True)
        return found

    @contextmanager
    def hold(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection.

        Raises:
            StorageError: SQLite or the system raised an error meanwhile.
        """
        patient = self.blocks
        if not self._lock.acquire(blocking=patient):
            raise _ConnectionTaken
        try:
            if patient is not self._timeout_set:
                milliseconds = int(self._busy_timeout * 1000) if patient else 0
                self._connection.execute(f"PRAGMA busy_timeout={milliseconds:d}")
                self._timeout_set = patient
            yield self._connection
        # As `wrap_storage_errors` does, without the cost of another context for each commit.
        except _STORAGE_ERRORS as error:
            raise _build_storage_error(self._path, error) from error
        finally:
            self._lock.release()

    async def run_in_loop(self, work: Callable[[], T]) -> T:
        """Run a function in this event loop as soon as the database is free, and return its result.

        Args:
            work: The function. It is called again if the database is locked, so it must write in
                one transaction and have no other effects before that is committed.

        Raises:
            StorageError: It was locked for longer than the busy timeout.
        """
        now, pause = asyncio.get_running_loop().time, SHORTEST_PAUSE
        until = now() + self._busy_timeout
        while True:
            try:
                self._thread_state.patient = False
                try:
                    return work()
                finally:
                    self._thread_state.patient = True
            except (_ConnectionTaken, StorageError) as error:
                if not _is_busy(error):
                    raise
                if now() >= until:
                    why = (
                        "the database is locked: others kept it for longer than busy_timeout,"
                        f" {self._busy_timeout:g} s"
                    )
                    raise StorageError(self._path, why) from error
            await asyncio.sleep(min(pause, max(0.0, until - now())))
            pause = min(2 * pause, LONGEST_PAUSE)


def _is_busy(error: BaseException) -> bool:
    cause = error.__cause__ if isinstance(error, StorageError) else error
    if isinstance(cause, sqlite3.Error):
        # The low byte; the rest says what exactly was locked.
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _BUSY_CODES
    return isinstance(cause, _ConnectionTaken)
