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
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

from echelons.errors import StorageError

T = TypeVar("T")
PRIVATE_MODE = 0o600
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
Synchronous = Literal["NORMAL", "FULL"]
IN_MEMORY = ":memory:"
"""The path of a database without a file."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.025
"""Seconds between two attempts in an event loop; doubled each time up to the longest."""
_WAL_ATTEMPTS = 5
"""Measured: four processes that opened a new database together never needed more than two."""
# The last is a lost race for the locks of the write-ahead log, as against a stopped process.
_BUSY_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
# The first is that of a statement: a table or a column is missing, or the schema cannot be parsed.
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
# The last also of SQLite's own messages, where they name what is damaged.
_STORAGE_ERRORS = (sqlite3.Error, OSError, UnicodeError)


def open_connection(
    path: str,
    synchronous: Synchronous,
    busy_timeout: float,
    mode: int | None = PRIVATE_MODE,
) -> sqlite3.Connection:
    """Open a database; it is created if it does not exist.

    Args:
        path: The database, or `":memory:"`.
        synchronous: SQLite's `synchronous` setting: what a commit survives.
        busy_timeout: Seconds to wait for another connection's lock.
        mode: The mode that the file gets if it is ours; `None` leaves that of one that exists.

    Raises:
        StorageError: It cannot be opened.
    """
    with wrap_storage_errors(path):
        name = path
        if path != IN_MEMORY:
            _refuse_shared_link(Path(path))
            create_private_file(path)
            # SQLite gives the -wal and -shm files the mode of the database when it makes them.
            for suffix in ("", "-wal", "-shm"):
                _set_mode(Path(path + suffix), mode)
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
    # The system's message repeats the path, which may be of any length.
    why = getattr(error, "strerror", None) or str(error)
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
        why += ": another process has been within a write for longer than busy_timeout; end it, or"
        why += " wake it if it is stopped"
    if not is_closed:
        return StorageError(path, why)
    return StorageError(
        path,
        why,
        "database {path!r} is closed; use the session or the saver before it is closed, within its "
        "`with`, or open another one",
        code="database_closed",
    )


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


def _refuse_shared_link(path: Path) -> None:
    """Refuse a link to a database that somebody else could replace.

    Raises:
        StorageError: Others may write to its folder, to its target, or to the folder of that.
    """
    if not (hasattr(os, "geteuid") and path.is_symlink()):
        return
    target = path.resolve()
    for place in (path, path.absolute().parent, target, target.parent):
        with suppress(FileNotFoundError):
            held = place.lstat()
            is_shared = held.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(held.st_mode)
            if is_shared or held.st_uid not in (0, os.geteuid()):
                raise StorageError(
                    str(path),
                    f"it is a link, and others may write to {str(place)!r}",
                    "database {path!r} is refused: {why}, so they could put another file in its "
                    "place. Name the file itself, or make its folder yours alone",
                    code="shared_link",
                )


def _set_mode(path: Path, mode: int | None) -> None:
    """Give a file a mode, if it exists, is ours and has another."""
    if mode is None or not hasattr(os, "geteuid"):
        return
    with suppress(FileNotFoundError):
        held = path.stat()
        if held.st_uid == os.geteuid() and stat.S_IMODE(held.st_mode) != mode:
            path.chmod(mode)


def create_private_file(path: str, flags: int = 0) -> None:
    """Create a file with mode 0600, if it does not exist.

    Raises:
        OSError: It cannot be created.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | flags, 0o600))
    except ValueError as error:  # a NUL, which ends a path
        raise OSError(str(error)) from error


class DatabaseBusy(Exception):
    """Another caller or another connection has the database, and this caller does not wait."""


class _Caller(threading.local):
    """Whether the current thread's caller waits for the database, instead of trying again."""

    waits = True


class ConnectionLock:
    """Gives the connection to one caller at a time.

    Args:
        path: Path of the database, for errors.
        connection: The connection, opened with the same busy timeout.
        lock: The lock that protects the connection.
        busy_timeout: The longest time that a caller waits, in seconds.
        clear_caches: Called when the connection was used without a `HeldConnection` that tracks
            its writes.
    """

    def __init__(
        self,
        path: str,
        connection: sqlite3.Connection,
        lock: threading.Lock,
        busy_timeout: float,
        clear_caches: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.connection = connection
        self.lock = lock
        self.caller = _Caller()
        self.clear_caches = clear_caches
        self.total_changes = connection.total_changes
        self.waits = True
        self._busy_timeout = busy_timeout

    def set_waiting(self, waits: bool) -> None:
        """Set whether SQLite waits for other connections."""
        milliseconds = int(self._busy_timeout * 1000) if waits else 0
        self.connection.execute(f"PRAGMA busy_timeout={milliseconds:d}")
        self.waits = waits

    def close(self) -> None:
        """Close the connection, after the transaction of another thread."""
        # SQLite would crash the process in the middle of one. A holder of this very thread, such
        # as one that a signal has cut short, is not waited for longer than for another process.
        is_free = self.lock.acquire(timeout=min(self._busy_timeout, threading.TIMEOUT_MAX))
        try:
            self.connection.close()
        finally:
            if is_free:
                self.lock.release()

    def read_data_version(self) -> int:
        """Return a number that changes when another connection has written to the database.

        Raises:
            StorageError: SQLite or the system raised an error meanwhile.
            DatabaseBusy: Another caller has the connection, and this one does not wait.
        """
        # Called before each step of each agent, so it skips the cost of a `HeldConnection`.
        if not self.lock.acquire(self.caller.waits):
            raise DatabaseBusy
        try:
            return read_data_version(self.connection)
        except _STORAGE_ERRORS as error:
            raise _build_storage_error(self.path, error) from error
        finally:
            self.lock.release()

    def run_at_once(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function without waiting for the database, and return its result.

        Raises:
            DatabaseBusy: The database was not free.
            StorageError: SQLite or the system raised another error meanwhile.
        """
        self.caller.waits = False
        try:
            return work(*args)
        except StorageError as error:
            if _is_busy(error):
                raise DatabaseBusy from error
            raise
        finally:
            self.caller.waits = True

    async def run_in_loop(self, work: Callable[..., T], *args: Any) -> T:
        """Run a function in this event loop as soon as the database is free, and return its result.

        Args:
            work: The function. It is called again if the database is locked, so it must write in
                one transaction and have no other effects before that is committed.
            args: Its arguments.

        Raises:
            StorageError: It was locked for longer than the busy timeout.
        """
        try:
            return self.run_at_once(work, *args)
        except DatabaseBusy as error:
            busy = error
        now, pause = asyncio.get_running_loop().time, SHORTEST_PAUSE
        until = now() + self._busy_timeout
        while now() < until:
            await asyncio.sleep(min(pause, max(0.0, until - now())))
            pause = min(2 * pause, LONGEST_PAUSE)
            try:
                return self.run_at_once(work, *args)
            except DatabaseBusy as error:
                busy = error
        why = (
            "the database is locked: others kept it for longer than busy_timeout,"
            f" {self._busy_timeout:g} s"
        )
        raise StorageError(self.path, why) from busy


class HeldConnection:
    """The context of one transaction: a cursor of the connection, which no other caller has.

    The transaction is committed as a whole or not at all. One context for all of this: four
    nested ones were a third of the calls of a write.

    Args:
        shared: The lock of the connection.
        transaction: Whether to commit at the end.
        tracks_writes: Whether the caller updates the caches for what it writes.
        failures: Takes the error of a failed transaction, if it is the first and the
            transaction is not tried again.

    Raises:
        StorageError: SQLite or the system raised an error meanwhile.
        DatabaseBusy: Another caller has the connection, and this one does not wait.
    """

    __slots__ = ("_cursor", "_failures", "_shared", "_tracks_writes", "_transaction")

    def __init__(
        self,
        shared: ConnectionLock,
        transaction: bool = True,
        tracks_writes: bool = True,
        failures: list[StorageError] | None = None,
    ) -> None:
        self._shared = shared
        self._transaction = transaction
        self._tracks_writes = tracks_writes
        self._failures = failures

    def __enter__(self) -> sqlite3.Cursor:
        shared = self._shared
        waits = shared.caller.waits
        if not shared.lock.acquire(waits):
            raise DatabaseBusy
        try:
            if waits is not shared.waits:
                shared.set_waiting(waits)
            # The connection was used directly, so the caches may be stale.
            if shared.connection.total_changes != shared.total_changes:
                shared.clear_caches()
                shared.total_changes = shared.connection.total_changes
            self._cursor = shared.connection.cursor()
        except _STORAGE_ERRORS as error:
            shared.lock.release()
            raise self._name_error(error) from error
        except BaseException:
            shared.lock.release()
            raise
        return self._cursor

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shared, failed = self._shared, error
        try:
            if error is None and self._transaction:
                shared.connection.commit()
        except BaseException as refused:  # noqa: BLE001  raised below
            failed = refused
        try:
            if failed is not None:
                shared.connection.rollback()
            self._cursor.close()
            # Untracked writes are found, and clear the caches, when the connection is used next.
            if self._tracks_writes:
                shared.total_changes = shared.connection.total_changes
        except _STORAGE_ERRORS as worse:
            failed = worse
        finally:
            shared.lock.release()
        if failed is not None:
            named = self._name_error(failed)
            if named is not error:
                raise named

    def _name_error(self, error: BaseException) -> BaseException:
        """Return an error with the path of the database, and note it if it is final."""
        named = error
        if isinstance(error, _STORAGE_ERRORS):
            named = _build_storage_error(self._shared.path, error)
            named.__cause__ = error
        noted = self._failures
        if noted is not None and isinstance(named, StorageError):
            is_final = self._shared.caller.waits or not _is_busy(named)
            noted += [named] if is_final and not noted else []
        return named


def _is_busy(error: StorageError) -> bool:
    # The low byte; the rest says what exactly was locked.
    code = getattr(error.__cause__, "sqlite_errorcode", 0)
    return isinstance(error.__cause__, sqlite3.Error) and code & 0xFF in _BUSY_CODES


def is_damage(error: StorageError) -> bool:
    """Return whether a database is damaged, rather than busy, missing or out of reach."""
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    return code in _DAMAGE_CODES or isinstance(cause, UnicodeDecodeError)
