"""Checkpoints and their events in one private file, all of a write or nothing of it."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from echelons import Agent, SqliteCheckpointer
from echelons.errors import StorageError
from echelons.identity.lineage import METADATA_KEYS
from echelons.testing import ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.fork_server import ForkServer

ROWS = ("checkpoints", "writes", "events")


def config(thread: str = "t", **metadata: str) -> Any:
    return {
        "configurable": {"thread_id": thread, "checkpoint_ns": ""},
        "metadata": {"agent_thread_id": thread, "agent_path": "head", **metadata},
    }


def head(*steps: Any) -> Agent:
    model = ScriptedModel({"head": [*(steps or ["done"])], "eat": ["pizza"]})
    return Agent("head", model=model, subordinates=[Agent("eat")])


def run(saver: Any, thread: str = "t", task: str = "plan") -> Any:
    return (
        head(delegate("eat", "dinner"), "done")
        .compile(saver)
        .invoke({"messages": [("user", task)]}, {"configurable": {"thread_id": thread}})
    )


def counts(saver: SqliteCheckpointer) -> list[int]:
    return [saver.conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ROWS]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trip.sqlite"


@pytest.fixture
def saver(path: Path) -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(path) as opened:
        yield opened


# The file


def test_other_users_cannot_read_database_files(path: Path) -> None:
    old = os.umask(0)
    try:
        with SqliteCheckpointer(path) as saver:
            run(saver)
            beside = sorted(each.name for each in path.parent.iterdir())
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(old)

    assert beside == ["trip.sqlite", "trip.sqlite-shm", "trip.sqlite-wal"]
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize(("given", "mode"), [({}, 0o600), ({"mode": None}, 0o640)])
def test_file_that_exists_becomes_private_unless_told_otherwise(
    path: Path, given: dict[str, Any], mode: int
) -> None:
    path.touch()
    path.chmod(0o640)

    with SqliteCheckpointer(path, **given) as saver:
        run(saver)

    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(("given", "pragma"), [({}, 1), ({"synchronous": "FULL"}, 2)])
def test_a_commit_survives_the_process_or_also_a_power_cut(
    path: Path, given: dict[str, Any], pragma: int
) -> None:
    with SqliteCheckpointer(path, **given) as saver:
        assert saver.conn.execute("PRAGMA synchronous").fetchone() == (pragma,)
        assert saver.conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_database_without_a_file_keeps_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteCheckpointer(":memory:") as saver:
        run(saver)
        assert saver.get_tuple(config()) is not None

    assert list(tmp_path.iterdir()) == []
    with SqliteCheckpointer(":memory:") as saver:
        assert saver.get_tuple(config()) is None


def test_a_database_is_opened_again_and_again(path: Path) -> None:
    for turn in range(1, 4):
        with SqliteCheckpointer(str(path)) as saver:
            assert len(run(saver)["messages"]) == 4 * turn


@pytest.mark.parametrize("given", ["file:trip.sqlite", "file:trip.sqlite?mode=memory", "a b%20#c"])
def test_a_path_is_taken_as_it_is_written(tmp_path: Path, monkeypatch: Any, given: str) -> None:
    monkeypatch.chdir(tmp_path)

    with SqliteCheckpointer(given) as saver:
        run(saver)

    [file] = tmp_path.iterdir()
    assert file.name == given
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "given", ["", "missing/trip.sqlite", ".", "/proc/trip.sqlite", "a\0b", "half \ud83d"]
)
def test_a_path_that_cannot_be_opened_is_refused_by_name(
    tmp_path: Path, monkeypatch: Any, given: str
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(StorageError) as refused:
        SqliteCheckpointer(given)

    assert refused.value.path == given
    for part in (repr(given), refused.value.why, "name another database"):
        assert part in str(refused.value)


@pytest.mark.parametrize("content", [b"no database " * 400, b"SQLite format 3\0" + b"x" * 4080])
def test_a_file_that_is_no_database_is_refused_and_not_changed(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(StorageError, match="database"):
        SqliteCheckpointer(path)

    assert path.read_bytes() == content


@contextmanager
def unprivileged() -> Iterator[Path]:
    """Act as a user whom permissions hold back, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        me = os.geteuid()
        try:
            if me == 0:
                os.seteuid(65534)
            yield folder
        finally:
            os.seteuid(me)


@pytest.mark.parametrize("mode", [0o000, 0o400])
def test_a_file_that_may_not_be_written_is_refused_and_not_changed(mode: int) -> None:
    with unprivileged() as folder:
        path = folder / "trip.sqlite"
        with SqliteCheckpointer(path) as saver:
            run(saver)
        path.chmod(mode)

        with pytest.raises(StorageError, match="ermission"):
            SqliteCheckpointer(path)

        path.chmod(0o600)
        with SqliteCheckpointer(path) as saver:
            assert len(run(saver)["messages"]) == 8


def test_a_folder_that_may_not_be_written_is_refused() -> None:
    with unprivileged() as folder:
        (folder / "closed").mkdir(mode=0o500)

        with pytest.raises(StorageError, match="ermission"):
            SqliteCheckpointer(folder / "closed" / "trip.sqlite")


# Transactions


def test_when_its_events_cannot_be_written_nothing_of_a_write_is(saver: SqliteCheckpointer) -> None:
    run(saver)
    before = counts(saver)
    saver.conn.execute(
        "CREATE TEMP TRIGGER broken BEFORE INSERT ON main.events"
        " BEGIN SELECT RAISE(ABORT, 'no events today'); END"
    )
    where = config()
    where["configurable"]["checkpoint_id"] = empty_checkpoint()["id"]

    with pytest.raises(StorageError, match="no events today"):
        saver.put_writes(where, [("messages", [AIMessage("x", id="m")])], "task")

    saver.conn.execute("DROP TRIGGER broken")
    assert counts(saver) == before
    assert len(run(saver)["messages"]) == 8


def test_when_a_checkpoint_cannot_be_written_its_events_are_not(saver: SqliteCheckpointer) -> None:
    graph = head().compile(saver)
    graph.update_state(config(), {"messages": "before"}, as_node="reason")
    before = counts(saver)
    saver.conn.execute(
        "CREATE TEMP TRIGGER broken AFTER INSERT ON main.checkpoints"
        " BEGIN SELECT RAISE(ABORT, 'no checkpoints today'); END"
    )

    with pytest.raises(StorageError, match="no checkpoints today"):
        head().compile(saver).update_state(config("new"), {"messages": "x"}, as_node="reason")

    saver.conn.execute("DROP TRIGGER broken")
    assert counts(saver) == before


def test_what_a_task_wrote_first_stays_when_it_writes_again(saver: SqliteCheckpointer) -> None:
    where = config()
    where["configurable"]["checkpoint_id"] = saver.put(
        config(), empty_checkpoint(), {"step": 0}, {}
    )["configurable"]["checkpoint_id"]

    for text in ("first", "second"):
        saver.put_writes(where, [("messages", text)], "task")
        saver.put_writes(where, [("__error__", text)], "task")

    saved = saver.get_tuple(config())
    assert saved is not None
    assert sorted(saved.pending_writes or ()) == [
        ("task", "__error__", "second"),
        ("task", "messages", "first"),
    ]


def test_a_list_can_be_read_while_others_write(saver: SqliteCheckpointer) -> None:
    run(saver)
    listed = saver.list(config())

    first = next(listed)
    run(saver, "other")

    assert first.config["configurable"]["thread_id"] == "t"
    assert len([*listed]) > 3


def test_a_locked_database_is_an_error_with_a_name_and_loses_nothing(path: Path) -> None:
    with SqliteCheckpointer(path, busy_timeout=0) as saver, closing(sqlite3.connect(path)) as other:
        run(saver)
        before = counts(saver)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StorageError, match="locked"):
            run(saver)

        other.rollback()
        assert counts(saver) == before
        assert len(run(saver)["messages"]) == 8


@pytest.mark.parametrize(("given", "milliseconds"), [({}, 5000), ({"busy_timeout": 0.25}, 250)])
def test_a_lock_of_another_process_is_waited_for(
    path: Path, given: dict[str, float], milliseconds: int
) -> None:
    with SqliteCheckpointer(path, **given) as saver:  # type: ignore[arg-type]
        assert saver.conn.execute("PRAGMA busy_timeout").fetchone() == (milliseconds,)


def test_a_closed_database_says_so(path: Path) -> None:
    saver = SqliteCheckpointer(path)
    saver.close()
    saver.close()

    with pytest.raises(StorageError, match="closed"):
        saver.get_tuple(config())


def test_a_database_is_closed_after_the_transaction_of_another_thread() -> None:
    saver = SqliteCheckpointer(":memory:")
    closer = threading.Thread(target=saver.close)

    with saver.cursor() as cursor:
        closer.start()
        # Long enough for a close that does not wait.
        closer.join(timeout=0.2)
        assert cursor.execute("SELECT 7").fetchone() == (7,)
    closer.join()

    with raises_code("database_closed"):
        saver.list_thread_ids()


def test_a_database_is_closed_within_its_own_transaction() -> None:
    saver = SqliteCheckpointer(":memory:", busy_timeout=0)

    with raises_code("database_closed"), saver.cursor():
        saver.close()


async def test_leaving_a_with_closes_the_database(path: Path) -> None:
    with SqliteCheckpointer(path) as first:
        pass
    async with SqliteCheckpointer(path) as second:
        pass

    for saver in (first, second):
        with pytest.raises(StorageError, match="closed"):
            saver.get_tuple(config())


# What is kept


def stored(saver: SqliteCheckpointer) -> list[dict[str, Any]]:
    found = saver.conn.execute("SELECT metadata FROM checkpoints")
    return [json.loads(metadata) for (metadata,) in found]


def test_a_secret_that_a_caller_configures_is_nowhere_in_the_file(path: Path) -> None:
    with SqliteCheckpointer(path) as saver:
        head(delegate("eat", "dinner"), "done").compile(saver).invoke(
            {"messages": "plan"},
            {"configurable": {"thread_id": "t", "api_key": "sk-very-secret", "user": "ann"}},
        )
        assert all("api_key" not in each and "user" not in each for each in stored(saver))

    assert b"sk-very-secret" not in path.read_bytes()


def test_a_callers_metadata_is_kept_but_never_in_place_of_an_identity(
    saver: SqliteCheckpointer,
) -> None:
    sly: dict[str, Any] = {**dict.fromkeys(METADATA_KEYS, "sly"), "user": "ann"}
    graph = head(delegate("eat", "dinner"), "done").compile(saver)

    graph.invoke({"messages": "plan"}, {"configurable": {"thread_id": "t"}, "metadata": sly})

    assert all(each["user"] == "ann" for each in stored(saver))
    own = set(METADATA_KEYS) - {"thread_name"}
    assert all("sly" not in [each[key] for key in own] for each in stored(saver))
    assert {each["agent"] for each in stored(saver)} == {"head", "eat"}


def test_events_have_the_time_of_the_clock(path: Path) -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    with SqliteCheckpointer(path, clock=lambda: noon) as saver:
        run(saver)
        found = saver.conn.execute("SELECT DISTINCT at FROM events").fetchall()

    assert found == [("2026-01-02T12:00:00+00:00",)]


# Event loops


def threads_of(saver: SqliteCheckpointer) -> set[int]:
    """Return a set that fills with the threads on which SQLite is asked something."""
    seen: set[int] = set()
    saver.conn.set_trace_callback(lambda _: seen.add(threading.get_ident()))
    return seen


@pytest.mark.parametrize("offload", [False, True])
async def test_the_event_loop_asks_by_itself_unless_it_may_not(path: Path, offload: bool) -> None:
    with SqliteCheckpointer(path, offload=offload) as saver:
        seen = threads_of(saver)
        graph = head(delegate("eat", "dinner"), "done").compile(saver)
        given: Any = {"configurable": {"thread_id": "t"}}
        await graph.ainvoke({"messages": "plan"}, given)
        await graph.aget_state(given)
        assert [each async for each in saver.alist(given)]
        await saver.adelete_thread("t")
        saver.conn.set_trace_callback(None)

        assert await saver.aget_tuple(given) is None

    assert seen
    assert (threading.get_ident() in seen) is not offload
    assert (len(seen - {threading.get_ident()}) > 0) is offload


def test_what_a_consumer_is_shown_is_stored_already(path: Path) -> None:
    shown = 0
    with SqliteCheckpointer(path) as saver, closing(sqlite3.connect(path)) as other:
        graph = head(delegate("eat", "dinner"), "done").compile(saver)
        given: Any = {"configurable": {"thread_id": "t"}}
        # A consumer may take a chunk and be killed before it asks for the next.
        for chunk in graph.stream({"messages": [("user", "plan")]}, given, stream_mode="updates"):
            shown += len(chunk)
            query = "SELECT count(DISTINCT task_id) FROM writes WHERE checkpoint_ns = ''"
            # The task that takes the input in has written, too, and is not shown.
            assert other.execute(query).fetchone()[0] == shown + 1

    assert shown == 3


# Other readers and writers


def test_langgraphs_own_saver_reads_the_file(path: Path) -> None:
    with SqliteCheckpointer(path) as saver:
        run(saver)

    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        plain = SqliteSaver(connection)
        state = head().compile(plain).get_state({"configurable": {"thread_id": "t"}})
        assert [each.text for each in state.values["messages"]] == ["plan", "", "pizza", "done"]
        assert [*plain.list({"configurable": {"thread_id": "t"}})]


def test_a_file_of_langgraphs_own_saver_goes_on(path: Path) -> None:
    with SqliteSaver.from_conn_string(str(path)) as plain:
        run(plain)

    with SqliteCheckpointer(path) as saver:
        assert len(run(saver)["messages"]) == 8
        assert counts(saver)[2] > 0


WRITER = """
import sys
from echelons import Agent, SqliteCheckpointer
from echelons.testing import ScriptedModel

path, thread, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
with SqliteCheckpointer(path) as saver:
    graph = Agent("head", model=ScriptedModel(["done"])).compile(saver)
    config = {"configurable": {"thread_id": thread}}
    for turn in range(turns):
        graph.invoke({"messages": f"turn {turn}"}, config)
"""


def test_several_processes_write_to_one_file_and_nothing_is_lost(
    path: Path, fork_server: ForkServer
) -> None:
    SqliteCheckpointer(path).close()
    writers = [fork_server.start("-c", WRITER, str(path), thread, "10") for thread in ("a", "b")]

    assert [writer.communicate() for writer in writers] == [("", "")] * 2

    with SqliteCheckpointer(path) as saver:
        for thread in ("a", "b"):
            state = head().compile(saver).get_state({"configurable": {"thread_id": thread}})
            texts = [m.text for m in state.values["messages"] if m.type == "human"]
            assert texts == [f"turn {turn}" for turn in range(10)]
        assert counts(saver)[2] == 40
