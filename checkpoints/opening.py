"""Turns what a user gives as ``checkpointer`` into a saver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.sqlite import SqliteCheckpointer


def open_checkpointer(
    given: BaseCheckpointSaver[Any] | str | Path | None,
) -> BaseCheckpointSaver[Any] | None:
    """Return the saver that was given, or one on the SQLite database at a path.

    Raises:
        StorageError: The database cannot be opened.
        TypeError: It is neither.
    """
    if given is None or isinstance(given, BaseCheckpointSaver):
        return given
    if isinstance(given, (str, Path)):
        return SqliteCheckpointer(given)
    raise TypeError(
        f"checkpointer={given!r}: pass a LangGraph saver, the path of a SQLite database, or None"
    )
