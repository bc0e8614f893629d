"""Opens the one connection of a `SqliteCheckpointer`: private, write-ahead, by its own path."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from echelons.errors import StorageError

Synchronous = Literal["NORMAL", "FULL"]
MEMORY = ":memory:"
"""The path of a database that nothing is kept of."""

_ATTEMPTS = 5
"""Four processes that opened new databases together never needed more than two."""


def connect(path: str, synchronous: Synchronous, busy_timeout: float) -> sqlite3.Connection:
    """Open a database, and make it with mode 0600 if it is not there.

    Args:
        path: The database, or `":memory:"`.
        synchronous: What a commit survives.
        busy_timeout: Seconds to wait for another connection's lock.

    Raises:
        StorageError: It cannot be opened.
    """
    with named(path):
        name = path
        if path != MEMORY:
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


@contextmanager
def named(path: str) -> Iterator[None]:
    """Give what SQLite and the system raise a name, and the path.

    Raises:
        StorageError: They raised something.
    """
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeEncodeError) as error:
        raise StorageError(path, str(error)) from error


def foreign_writes(connection: sqlite3.Connection) -> int:
    """Return a number that changes when another connection has written to the database.

    It takes some microseconds.
    """
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


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
