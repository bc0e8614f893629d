"""Opens the saver for the `database` argument of a session or the command line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.storage.connection import wrap_storage_errors
from echelons.errors import StorageError, invalid_database


def open_checkpointer(
    given: BaseCheckpointSaver[Any] | str | Path | None,
) -> BaseCheckpointSaver[Any] | None:
    """Return the given saver, or a `SqliteCheckpointer` on the database at a path.

    Raises:
        StorageError: The database cannot be opened.
        ConfigurationError: The argument is neither.
    """
    path: Any = given
    kind = type(given)  # what an object says of its class may be anything
    if given is None or issubclass(kind, BaseCheckpointSaver):
        return given  # type: ignore[return-value]
    if issubclass(kind, (str, Path)):
        return SqliteCheckpointer(path)
    raise invalid_database(given)


def open_existing(path: str | Path) -> SqliteCheckpointer:
    """Return a saver on an existing database of threads; no file is created.

    Raises:
        StorageError: There is no file at the path; it cannot be opened, or is not a database of
            threads.
    """
    file = Path(path)
    with wrap_storage_errors(str(path)):
        if not file.exists():
            raise StorageError(
                str(path),
                "there is no such file",
                "there is no database {path!r}; `echelons run` makes one, or name the one that "
                "you mean with --db or ECHELONS_DB",
                code="database_missing",
            )
        if not file.is_file():
            # Opening a pipe would wait for its other end.
            raise StorageError(str(path), f"it is {'a folder' if file.is_dir() else 'no file'}")
        # Read-only: opening another program's database as ours would add our tables to it.
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
        ) as connection:
            ours = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'checkpoints'")
            if ours.fetchone() is None:
                raise StorageError(str(path), "it holds no threads")
    return SqliteCheckpointer(path)
