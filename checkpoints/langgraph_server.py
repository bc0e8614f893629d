"""The checkpointer as LangGraph's server wants it: a factory that it enters and leaves.

A `langgraph.json` names it, ours and that of anybody who serves a tree: a graph for the
server has no checkpointer compiled in.
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
    """Return the database that is served: the one named, else the command line's own."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else default_database()


@asynccontextmanager
async def checkpointer() -> AsyncIterator[SqliteCheckpointer]:
    """Open the database for a server, and close it with the server.

    Raises:
        StorageError: The database cannot be opened.
    """
    # The server forbids its event loop to touch a file.
    opened = await asyncio.to_thread(_open, database())
    try:
        yield opened
    finally:
        await asyncio.to_thread(opened.close)


def _open(path: Path) -> SqliteCheckpointer:
    if not os.environ.get(VARIABLE):
        make_folder(path)
    return SqliteCheckpointer(path, offload=True)
