"""A thread is taken from a process that hangs, and what that process does when it wakes."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from echelons import Session, SqliteCheckpointer
from echelons.checkpoints.threads.control import take_over_thread
from echelons.errors import StorageError, ThreadBusy, ThreadNotFound
from tests.error_codes import raises_code
from tests.fork_server import REPOSITORY, ForkedProcess, ForkServer
from tests.scenarios.drivers.hung import THREAD, build_tree

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

Hang = Callable[[str], ForkedProcess]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "trips.sqlite"


@pytest.fixture
def hang(database: Path, fork_server: ForkServer) -> Iterator[Hang]:
    """Starts a process that stops itself in a tool, or in a transaction."""
    started: list[ForkedProcess] = []

    def start(mode: str) -> ForkedProcess:
        words = ("-m", "tests.scenarios.drivers.hung", str(database), mode)
        started.append(fork_server.start(*words, cwd=REPOSITORY))
        started[-1].wait_until_stopped()
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def wake(process: ForkedProcess) -> str:
    """Wake a process, and return the error that its run ended with."""
    process.send_signal(signal.SIGCONT)
    return process.communicate()[0].strip()


def rows(database: Path) -> list[Any]:
    """Return all rows of the checkpoints, their writes and the events."""
    with closing(sqlite3.connect(database)) as connection:
        return [
            row
            for table in ("checkpoints", "writes", "events")
            for row in connection.execute(f"SELECT * FROM {table}")
        ]


def test_a_process_that_was_taken_over_writes_nothing_when_it_wakes(
    world: World, hang: Hang, database: Path
) -> None:
    holder = hang("tool")
    booked: list[str] = []
    with SqliteCheckpointer(database) as saver:
        session = Session(build_tree(lambda: booked.append("again")), saver, thread=THREAD)
        with pytest.raises(ThreadBusy, match="takeover"):
            world.resume(session)

        taken = world.do(session, "take_over")

        assert (taken.pid, bool(taken.host)) == (holder.pid, True)
        [question] = world.resume(session).questions
        assert question.path == "head/chief/clerk"
        assert question.value["kind"] == "outcome_unknown"
        before = rows(database)
        assert wake(holder) == "LeaseLost"
        assert rows(database) == before

        result = world.answer(session, {question.id: {"outcome": "happened", "result": "booked"}})

        assert (result.text, result.questions) == ("head is done", ())
        assert saver.check().is_sound
    assert booked == []
    assert database.with_suffix(".bookings").read_text() == "a room\n"


def test_the_run_that_took_over_may_have_ended_before_the_other_wakes(
    world: World, hang: Hang, database: Path
) -> None:
    holder = hang("tool")
    with SqliteCheckpointer(database) as saver:
        session = Session(build_tree(lambda: None), saver, thread=THREAD)
        world.do(session, "take_over")
        [question] = world.resume(session).questions
        world.answer(session, {question.id: {"outcome": "happened", "result": "booked"}})
        before = rows(database)

        assert wake(holder) == "LeaseLost"

        assert rows(database) == before
        assert world.send(session, "more").text
    assert database.with_suffix(".bookings").read_text() == "a room\n"


def test_a_thread_that_no_run_holds_is_not_taken_over(world: World, database: Path) -> None:
    with Session(build_tree(lambda: None), database, thread=THREAD) as session:
        with pytest.raises(ThreadNotFound, match=THREAD):
            world.do(session, "take_over")
        world.send(session, "go")

        with raises_code("not_taken_over", match="no run holds it"):
            world.do(session, "take_over")


def test_a_run_of_the_same_process_is_to_be_ended_instead(world: World, database: Path) -> None:
    with SqliteCheckpointer(database) as saver:
        session = Session(build_tree(lambda: None), saver, thread=THREAD)
        with session.send("go") as run:
            next(iter(run))

            with raises_code("not_taken_over", match="end that run"):
                world.do(session, "take_over")

        assert world.resume(session).text == "head is done"


def test_of_two_that_take_over_at_once_one_does(world: World, hang: Hang, database: Path) -> None:
    holder = hang("tool")
    with SqliteCheckpointer(database) as first, SqliteCheckpointer(database) as second:
        session = Session(build_tree(lambda: None), second, thread=THREAD)
        key = session.thread_id
        plan = take_over_thread(key, THREAD)
        found = next(plan).get(first)
        assert world.do(session, "take_over").pid == holder.pid

        take = plan.send(found)
        with raises_code("not_taken_over", match="its holder has changed"):
            try:
                take.get(first)
            except Exception as error:
                plan.throw(error)

        # Nor is it taken from a later holder than the one that a person was shown.
        with raises_code("not_taken_over", match="its holder has changed"):
            next(shown := take_over_thread(key, THREAD, found))
            shown.send(None)
    assert wake(holder) == "LeaseLost"


def test_a_process_that_is_stopped_while_it_writes_locks_the_file_until_it_is_woken(
    world: World, hang: Hang, database: Path
) -> None:
    holder = hang("transaction")
    with SqliteCheckpointer(database, busy_timeout=0.02) as saver:
        session = Session(build_tree(lambda: None), saver, thread=THREAD)
        assert session.inbox() == []
        with pytest.raises(ThreadBusy):
            world.resume(session)
        for refused in (
            lambda: world.do(session, "take_over"),
            lambda: world.send(Session(build_tree(lambda: None), saver, thread="other"), "go"),
        ):
            with pytest.raises(StorageError, match="database is locked"):
                refused()

    assert wake(holder) == "head is done"
