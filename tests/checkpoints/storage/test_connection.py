"""A thread waits for a lock; an event loop goes on with other work, and neither waits for ever."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from echelons import Agent, SqliteCheckpointer
from echelons.checkpoints.storage.connection import ConnectionLock
from echelons.errors import StorageError
from echelons.testing import ScriptedModel

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
Work = Callable[[SqliteCheckpointer], Awaitable[Any]]

WRITES: dict[str, Work] = {
    "put": lambda saver: saver.aput(CONFIG, empty_checkpoint(), {}, {}),
    "put_writes": lambda saver: saver.aput_writes(CONFIG, [("a", 1)], "task"),
    "delete_thread": lambda saver: saver.adelete_thread("t"),
    "delete_for_runs": lambda saver: saver.adelete_for_runs(["r"]),
    "copy_thread": lambda saver: saver.acopy_thread("t", "u"),
    "prune": lambda saver: saver.aprune(["t"]),
    "commit": lambda saver: saver.ledger.arun(
        lambda: saver.ledger.commit(lambda open_: open_.append("s", 1))
    ),
    "append": lambda saver: saver.ledger.arun(lambda: saver.ledger.append("s", 1)),
}
READS: dict[str, Work] = {
    "get_tuple": lambda saver: saver.aget_tuple(CONFIG),
    "history": lambda saver: saver.aget_delta_channel_history(config=CONFIG, channels=["messages"]),
    "latest": lambda saver: saver.aget_latest_id(CONFIG),
    "get": lambda saver: saver.ledger.arun(lambda: saver.ledger.get("k")),
    "foreign_writes": lambda saver: saver.ledger.arun(saver.ledger.foreign_writes),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.sqlite"


@pytest.fixture
def saver(path: Path) -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(path) as opened:
        yield opened


async def waited(work: Awaitable[Any], release: Callable[[], None]) -> None:
    """Begin some work, let the loop turn while it is locked out, release it, and end it."""
    task = asyncio.ensure_future(work)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not task.done()
    # Were the loop blocked, nobody could come to this line.
    release()
    await task


@pytest.mark.parametrize("name", WRITES)
async def test_the_loop_goes_on_while_another_connection_writes(
    path: Path, saver: SqliteCheckpointer, name: str
) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        await waited(WRITES[name](saver), other.rollback)


@pytest.mark.parametrize("name", [*WRITES, *READS])
async def test_the_loop_goes_on_while_another_thread_has_the_connection(
    saver: SqliteCheckpointer, name: str
) -> None:
    saver.lock.acquire()
    await waited({**WRITES, **READS}[name](saver), saver.lock.release)


async def test_what_waited_is_stored_once(path: Path, saver: SqliteCheckpointer) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        await waited(WRITES["append"](saver), other.rollback)

    assert [each.record for each in saver.ledger.read("s")] == [1]


@pytest.mark.parametrize("name", WRITES)
async def test_a_lock_that_is_kept_too_long_is_an_error_with_a_name(path: Path, name: str) -> None:
    with (
        SqliteCheckpointer(path, busy_timeout=0.02) as saver,
        closing(sqlite3.connect(path)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=r"locked.* longer than busy_timeout, 0\.02 s"):
            await WRITES[name](saver)
        other.rollback()

        await WRITES[name](saver)


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL]
)
async def test_whichever_lock_is_in_the_way_is_waited_for(code: int) -> None:
    attempts = 0

    def work() -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            busy = sqlite3.OperationalError()
            busy.sqlite_errorcode = code
            raise StorageError("trip.sqlite", "busy") from busy
        return "done"

    with closing(sqlite3.connect(":memory:")) as connection:
        assert (
            await ConnectionLock("trip.sqlite", connection, threading.Lock(), 60.0).run_in_loop(
                work
            )
            == "done"
        )


async def test_what_is_cancelled_while_it_waits_has_not_happened(
    path: Path, saver: SqliteCheckpointer
) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.ensure_future(WRITES["append"](saver))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        other.rollback()

    assert saver.ledger.read("s") == []


async def test_an_error_that_is_no_lock_comes_at_once(saver: SqliteCheckpointer) -> None:
    saver.conn.execute("DROP TABLE writes")

    with pytest.raises(StorageError, match="no such table"):
        await WRITES["put_writes"](saver)


async def test_a_thread_still_waits_after_an_event_loop_did_not(
    path: Path, saver: SqliteCheckpointer
) -> None:
    await WRITES["append"](saver)
    assert saver.conn.execute("PRAGMA busy_timeout").fetchone() == (0,)

    saver.ledger.append("s", 2)

    assert saver.conn.execute("PRAGMA busy_timeout").fetchone() == (5000,)
    with closing(sqlite3.connect(path, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = threading.Thread(target=saver.ledger.append, args=("s", 3))
        waiting.start()
        other.rollback()
        waiting.join()
    assert saver.ledger.get_last_sequence("s") == 3


HOLDER = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1])
for line in sys.stdin:
    other.execute("BEGIN IMMEDIATE")
    print("held", flush=True)
    sys.stdin.readline()
    other.execute("INSERT INTO ledger_entries (stream, sequence, at, record)"
                  " VALUES ('foreign', (SELECT count(*) + 1 FROM ledger_entries), '', '1')")
    other.commit()
    print("free", flush=True)
"""


async def test_conversations_go_on_beside_a_process_that_writes(
    path: Path, saver: SqliteCheckpointer
) -> None:
    graph = Agent("head", model=ScriptedModel({"head": ["hello"] * 20})).compile(saver)
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdin is not None and it.stdout is not None

        def say(word: str) -> None:
            it.stdin.write("\n")  # type: ignore[union-attr]
            it.stdin.flush()  # type: ignore[union-attr]
            assert it.stdout.readline() == f"{word}\n"  # type: ignore[union-attr]

        async def talk(number: int) -> Any:
            given: Any = {"configurable": {"thread_id": str(number)}}
            return await graph.ainvoke({"messages": [HumanMessage("hi")]}, given)

        say("held")
        talks = [asyncio.ensure_future(talk(number)) for number in range(8)]
        for _ in range(200):
            await asyncio.sleep(0)
        assert not any(each.done() for each in talks)
        say("free")
        assert [len(each["messages"]) for each in await asyncio.gather(*talks)] == [2] * 8
        it.stdin.close()
