"""Opens the SQLite connection of a `SqliteCheckpointer`: a private file with a write-ahead log."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from echelons.errors import StorageError

Synchronous = Literal["NORMAL", "FULL"]
IN_MEMORY = ":memory:"
"""The path of a database without a file."""

_WAL_ATTEMPTS = 5
"""Measured: four processes that opened a new database together never needed more than two."""


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
            _create_private_file(path)
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
    """Raise errors of SQLite and the system as `StorageError` with the path of the database.

    Raises:
        StorageError: SQLite or the system raised an error.
    """
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeEncodeError) as error:
        raise StorageError(path, str(error)) from error


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


def _create_private_file(path: str) -> None:
    # SQLite gives the -wal and -shm files the mode of the database.
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except ValueError as error:  # a NUL, which ends a path
        raise OSError(str(error)) from error
