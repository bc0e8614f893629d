"""A database with two threads in it, one of which will suffer, and a canary."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.testing import Call, ScriptedModel, delegate

KEY = b"0123456789abcdef"


def ask(question: str) -> str:
    """Ask a human."""
    return f"a human said {interrupt(question)}"


def team() -> Agent:
    """Return a tree whose turns have a delegation and a question in them."""
    model = ScriptedModel(
        {
            "head": [delegate("camp", "look"), "done"],
            "camp": [Call("ask", {"question": "north?"}), "seen"],
        }
    )
    return Agent("head", model=model, subordinates=[Agent("camp", tools=[ask])])


@dataclass
class Besieged:
    """A database with two threads.

    Attributes:
        saver: The database.
        bad: Id of the thread that will suffer.
        good: Id of the thread that must not.
    """

    saver: SqliteCheckpointer
    bad: str = ""
    good: str = ""

    def session(self, thread: str) -> Session:
        """Return a session on a thread."""
        return Session(team(), self.saver, thread=thread)

    def turn(self, thread: str) -> str:
        """Have a turn with a question in it, and return the thread's id."""
        session = self.session(thread)
        session.send("go").result()
        session.answer({each.id: "yes" for each in session.inbox()}).result()
        return session.thread_id

    def read(self, root: str) -> list[Any]:
        """Return all that can be read of a thread."""
        store = ThreadStore(self.saver)
        told = [store.get(each.thread_id, root) for each in store.trace(root).walk()]
        config: RunnableConfig = {"configurable": {"thread_id": root}}
        return [*told, *self.saver.list(config)]


def made(**options: Any) -> tuple[bytes, str, str]:
    """Return the bytes of a database with two threads, and their ids."""
    with SqliteCheckpointer(":memory:", **options) as saver:
        besieged = Besieged(saver)
        bad, good = besieged.turn("bad"), besieged.turn("good")
        # It keeps metadata that is no JSON out of the table; whoever writes would drop it.
        saver.conn.execute("DROP INDEX checkpoints_by_agent_thread")
        return saver.conn.serialize(), bad, good


def opened(stored: bytes, bad: str, good: str, **options: Any) -> Iterator[Besieged]:
    with SqliteCheckpointer(":memory:", **options) as saver:
        # By a backup: SQLite crashes now and then where a connection that has been used is
        # deserialized into.
        with closing(sqlite3.connect(":memory:")) as source:
            source.deserialize(stored)
            source.backup(saver.conn)
        yield Besieged(saver, bad, good)


@pytest.fixture(scope="session")
def whole() -> tuple[bytes, str, str]:
    """A database as every test finds it."""
    return made()


@pytest.fixture
def besieged(whole: tuple[bytes, str, str]) -> Iterator[Besieged]:
    """A database of its own for a test."""
    yield from opened(*whole)


@pytest.fixture
def sealed() -> Iterator[Besieged]:
    """A database with seals."""
    yield from opened(*made(seal=KEY), seal=KEY)


@pytest.fixture(scope="module")
def lasting(whole: tuple[bytes, str, str]) -> Iterator[Besieged]:
    """A database that all tests of a module share."""
    yield from opened(*whole)


@pytest.fixture(scope="session")
def unharmed(whole: tuple[bytes, str, str]) -> list[Any]:
    """All that can be read of the thread that must not suffer."""
    for besieged in opened(*whole):
        return besieged.read(besieged.good)
    raise AssertionError


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that must not be there in the end: importing ``trap`` would make it."""
    sung = tmp_path / "sung"
    (tmp_path / "trap.py").write_text(f"open({str(sung)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield sung
    assert not sung.exists()
    assert "trap" not in sys.modules
