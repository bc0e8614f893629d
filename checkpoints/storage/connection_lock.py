"""`ConnectionLock`: the lock of the connection; a thread blocks on it, an event loop never does.

SQLite lets one connection write at a time, and the saver's one connection serves one caller at a
time. A synchronous caller waits for both, up to the busy timeout. In an event loop each attempt
is made without waiting; if it fails, the loop goes on with other work and it is made again.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from echelons.errors import StorageError

T = TypeVar("T")
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.025
"""Seconds between two attempts in an event loop; doubled each time up to the longest."""
# The last is a lost race for the locks of the write-ahead log, as against a stopped process.
_BUSY_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})


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
            sqlite3.Error: It is closed.
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
                return self._run_without_waiting(work)
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

    def _run_without_waiting(self, work: Callable[[], T]) -> T:
        self._thread_state.patient = False
        try:
            return work()
        finally:
            self._thread_state.patient = True


def _is_busy(error: BaseException) -> bool:
    cause = error.__cause__ if isinstance(error, StorageError) else error
    if isinstance(cause, sqlite3.Error):
        # The low byte; the rest says what exactly was locked.
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _BUSY_CODES
    return isinstance(cause, _ConnectionTaken)
