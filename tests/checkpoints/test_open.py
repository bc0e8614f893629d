"""Opening a database that must be there already."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from echelons import Agent, Session, ThreadStore
from echelons.checkpoints.open import open_existing
from echelons.errors import StorageError
from echelons.testing import ScriptedModel
from tests.error_codes import raises_code


def test_a_database_of_threads_is_opened(tmp_path: Path) -> None:
    database = tmp_path / "odd name #1?.sqlite"
    with Session(Agent("head", model=ScriptedModel(["Hi."])), database, thread="trip") as session:
        session.send("Hello").result()

    with open_existing(database) as saver:
        assert [root.name for root in ThreadStore(saver).roots()] == ["trip"]


def test_a_missing_database_is_refused_and_not_made(tmp_path: Path) -> None:
    with raises_code("database_missing") as caught:
        open_existing(tmp_path / "none.sqlite")

    assert caught.value.path == str(tmp_path / "none.sqlite")
    assert not list(tmp_path.iterdir())


def test_a_database_of_something_else_is_refused_and_not_changed(tmp_path: Path) -> None:
    database = tmp_path / "shop.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.close()
    before = database.read_bytes()

    with pytest.raises(StorageError, match="holds no threads"):
        open_existing(database)

    assert database.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no database at all, but text that is long enough"])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(content)

    with pytest.raises(StorageError):
        open_existing(file)

    assert file.read_bytes() == content


def test_a_folder_is_refused_as_a_database(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="it is a folder"):
        open_existing(tmp_path)


def test_a_pipe_is_refused_as_a_database_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(StorageError, match="it is no file"):
        open_existing(tmp_path / "pipe")
