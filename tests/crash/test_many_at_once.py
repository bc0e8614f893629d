"""Many conversations in one event loop, on a file that another process writes to."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from echelons import Session, SqliteCheckpointer
from tests.crash.drivers.trip import EFFECTS, TURNS, Client, Place, seen, told, tree
from tests.proof import sample

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds for which a conversation waits for a lock."""


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqliteCheckpointer]:
    """A database to which a foreign process writes all the time."""
    database = tmp_path / "trips.sqlite"
    with SqliteCheckpointer(database, busy_timeout=PATIENCE) as opened:
        command = [sys.executable, "-m", "tests.crash.drivers.writer", str(database)]
        with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as writer:
            assert writer.stdout
            writer.stdout.readline()
            yield opened
            assert writer.poll() is None, "the foreign process failed"
            writer.kill()


class Conversation:
    """A trip of its own thread."""

    def __init__(self, saver: SqliteCheckpointer, folder: Path) -> None:
        folder.mkdir()
        self.place = Place(folder)
        self.session = Session(tree(self.place), saver, thread=folder.name)

    async def run(self) -> list[str]:
        """Have every turn done, and return the answers."""
        client = Client(self.session, self.place, "async")
        return [await client.asettle(turn, task) for turn, task in TURNS.items()]


async def locking(database: Path) -> None:
    """Lock the database again and again, for some rounds of this very loop.

    A conversation that waited for the lock within the loop would wait for ever.
    """
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        while True:
            with suppress(sqlite3.OperationalError):  # the foreign process has it
                connection.execute("BEGIN IMMEDIATE")
            for _ in range(5):
                await asyncio.sleep(0)
            if connection.in_transaction:
                connection.execute("COMMIT")
            await asyncio.sleep(0.05)


async def test_many_conversations_beside_a_foreign_writer_neither_fail_nor_stall(
    saver: SqliteCheckpointer, tmp_path: Path
) -> None:
    count = sample(5, 100)
    all_ = [Conversation(saver, tmp_path / f"trip {place}") for place in range(count)]
    beside = asyncio.create_task(locking(tmp_path / "trips.sqlite"))
    answers = await asyncio.gather(*(each.run() for each in all_))
    assert beside.cancel()

    assert answers == [[f"{task} is over" for task in TURNS.values()]] * count
    first = told(all_[0].session)
    for each in all_:
        assert told(each.session) == first
        assert seen(each.place)["effects"] == sorted(EFFECTS)
    [written] = saver.conn.execute("SELECT count(*) FROM foreign_notes").fetchone()
    assert written > 1
