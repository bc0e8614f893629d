"""What LangGraph's server is given as its checkpointer."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint

from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.langgraph_server import checkpointer, find_served_database
from echelons.errors import StorageError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ECHELONS_DB", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


async def test_the_database_is_the_one_that_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHELONS_DB", "~/named.sqlite")

    async with checkpointer() as saver:
        assert isinstance(saver, SqliteCheckpointer)

    assert (home / "named.sqlite").stat().st_mode & 0o777 == 0o600


async def test_without_a_name_it_is_in_a_folder_of_the_users_own(home: Path) -> None:
    async with checkpointer():
        pass

    assert find_served_database().is_file()
    assert find_served_database().is_relative_to(home)
    assert find_served_database().parent.stat().st_mode & 0o777 == 0o700


async def test_it_is_closed_when_the_server_ends() -> None:
    async with checkpointer() as saver:
        connection = saver.conn

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


async def test_a_database_that_cannot_be_made_is_refused_by_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHELONS_DB", str(home / "no" / "folder.sqlite"))

    with pytest.raises(StorageError, match="folder"):
        async with checkpointer():
            pass


async def test_a_file_where_the_folder_should_be_is_refused_by_name() -> None:
    folder = find_served_database().parent
    folder.parent.mkdir(parents=True)
    folder.write_text("")

    with pytest.raises(StorageError):
        async with checkpointer():
            pass


async def test_what_a_caller_configures_is_not_stored_though_the_server_mixes_it_in() -> None:
    thread = str(uuid4())
    given = {"thread_id": thread, "checkpoint_ns": "", "api_key": "sk-1", "source": "elsewhere"}
    config: RunnableConfig = {"configurable": given, "metadata": {"note": "fine"}}
    mixed: Any = {**given, "source": "loop", "step": 1, "parents": {}, "run_id": "2"}

    async with checkpointer() as saver:
        await saver.aput(config, empty_checkpoint(), mixed, {})
        saved = await saver.aget_tuple(config)

    assert saved is not None
    assert saved.metadata == {
        "source": "loop", "step": 1, "parents": {}, "run_id": "2", "thread_id": thread,
        "note": "fine",
    }  # fmt: skip
