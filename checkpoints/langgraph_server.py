"""The checkpointer for LangGraph's server: an async context manager that it enters and leaves.

A `langgraph.json` names it, because a graph for the server has no checkpointer compiled in.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.default_path import VARIABLE, default_database, make_folder


def database() -> Path:
    """Return the path of the served database: the configured one, or the command line's default."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else default_database()


@asynccontextmanager
async def checkpointer() -> AsyncIterator[SqliteCheckpointer]:
    """Open the database for a server, and close it with the server.

    Raises:
        StorageError: The database cannot be opened.
    """
    # The server forbids blocking file access in its event loop.
    opened = await asyncio.to_thread(_open, database())
    try:
        yield opened
    finally:
        await asyncio.to_thread(opened.close)


def _open(path: Path) -> SqliteCheckpointer:
    if not os.environ.get(VARIABLE):
        make_folder(path)
    return SqliteCheckpointer(path, offload=True)
