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
from echelons.checkpoints.default_path import (
    DATABASE_VARIABLE,
    expand_home,
    get_default_database,
    make_database_folder,
)


def find_served_database() -> Path:
    """Return the path of the served database: the configured one, or the command line's default."""
    named = os.environ.get(DATABASE_VARIABLE)
    return expand_home(Path(named)) if named else get_default_database()


@asynccontextmanager
async def checkpointer() -> AsyncIterator[SqliteCheckpointer]:
    """Open the database for a server, and close it with the server.

    Raises:
        StorageError: The database cannot be opened.
    """
    path = find_served_database()
    # The server forbids blocking file access in its event loop.
    if not os.environ.get(DATABASE_VARIABLE):
        await asyncio.to_thread(make_database_folder, path)
    opened = await asyncio.to_thread(SqliteCheckpointer, path, offload=True)
    try:
        yield opened
    finally:
        await asyncio.to_thread(opened.close)
