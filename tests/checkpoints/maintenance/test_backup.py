"""A database is checked and backed up while it is used, and every fault has a name."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.maintenance.integrity_check import IntegrityReport
from echelons.errors import StorageError
from echelons.testing import ScriptedModel, delegate
from tests.error_codes import raises_code

KEY = b"a key of enough bytes"


def team() -> Agent:
    model = ScriptedModel({"head": [delegate("eat", "dinner"), "done"], "eat": ["pizza"]})
    return Agent("head", model=model, subordinates=[Agent("eat")])


def run(saver: SqliteCheckpointer, turns: int = 3) -> Session:
    session = Session(team(), saver, thread="trip")
    for _ in range(turns):
        session.send("plan").result()
    return session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trip.sqlite"


@pytest.fixture
def saver(path: Path) -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(path) as opened:
        yield opened


# Checking


@pytest.mark.parametrize("name", ["trip.sqlite", ":memory:"])
@pytest.mark.parametrize("seal", [None, KEY])
async def test_a_database_that_was_only_used_is_sound(
    tmp_path: Path, monkeypatch: Any, name: str, seal: bytes | None
) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteCheckpointer(name, seal=seal) as saver:
        run(saver)
        saver.copy_thread(run(saver).thread_id, "copy")
        saver.prune([run(saver).thread_id])

        report = saver.check()

        assert report.is_sound and report.faults == ()
        assert report.threads == 2 and report.rows > 50
        assert await saver.acheck() == report
        run(saver)


def test_an_empty_database_is_sound(saver: SqliteCheckpointer) -> None:
    assert saver.check() == IntegrityReport(rows=0, threads=0, faults=())


DAMAGE = {
    "UPDATE checkpoints SET checkpoint = x'00' WHERE rowid = 3": "checkpoint",
    "UPDATE checkpoints SET metadata = '[]' WHERE rowid = 3": "metadata is no JSON",
    "UPDATE checkpoints SET checkpoint_ns = CAST(x'ff' AS TEXT) WHERE rowid = 3": "UTF-8",
    "UPDATE writes SET value = x'c1' WHERE rowid = 2": "write",
    "DELETE FROM checkpoints WHERE rowid = 5": "there is no such checkpoint",
    "INSERT INTO ledger_values VALUES (99, 'k', 1, '', 'no json')": "record 'k' in the ledger",
    "INSERT INTO ledger_entries VALUES (99, 's', 1, '', '{')": "record 's' in the ledger",
    "UPDATE checkpoints SET metadata = CAST(json_set(CAST(metadata AS TEXT),"
    " '$.superior_thread_id', 'forged') AS BLOB) WHERE"
    " json_extract(CAST(metadata AS TEXT), '$.superior_thread_id') <> ''": "not its own",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_named(saver: SqliteCheckpointer, damage: str) -> None:
    run(saver)
    saver.conn.execute(damage)
    saver.conn.commit()

    report = saver.check()

    assert not report.is_sound
    assert any(DAMAGE[damage] in str(fault) for fault in report.faults), report.faults


def test_a_conversation_whose_beginning_is_gone_is_found(saver: SqliteCheckpointer) -> None:
    run(saver)
    saver.conn.execute("DELETE FROM writes")
    saver.conn.execute("DELETE FROM checkpoints WHERE checkpoint_ns = '' AND rowid < 8")
    saver.conn.commit()

    assert any("is gone" in fault.why for fault in saver.check().faults)


class Words(TypedDict):
    words: Annotated[list[str], DeltaChannel(lambda held, writes: [*(held or ()), *writes], list)]


def test_the_beginning_of_another_graphs_conversation_is_missed_too(
    saver: SqliteCheckpointer,
) -> None:
    node: Any = lambda state: {"words": "more"}  # noqa: E731
    graph: Any = StateGraph(Words).add_node("say", node).add_edge(START, "say").compile(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    for _ in range(3):
        graph.invoke({"words": "go"}, config)
    assert saver.check().is_sound
    [(first,)] = saver.conn.execute("SELECT min(checkpoint_id) FROM checkpoints")
    for table in ("checkpoints", "writes"):
        saver.conn.execute(f"DELETE FROM {table} WHERE checkpoint_id = ?", (first,))
    saver.conn.commit()

    [fault] = saver.check().faults

    assert fault.why == f"checkpoint {first!r}, of which its words is made, is gone"


def test_a_broken_seal_is_found(path: Path) -> None:
    with SqliteCheckpointer(path, seal=KEY) as saver:
        run(saver)
        latest = "(SELECT max(rowid) FROM checkpoints)"
        saver.conn.execute(
            f"UPDATE checkpoints SET parent_checkpoint_id = 'x' WHERE rowid={latest}"
        )
        saver.conn.execute("DELETE FROM seals WHERE idx >= 0")
        saver.conn.commit()

        found = {fault.why for fault in saver.check().faults}

    assert found == {"it or its place was changed after it was sealed", "it has no seal"}


def test_a_damaged_page_is_found(path: Path) -> None:
    with SqliteCheckpointer(path) as saver:
        run(saver)
        size = saver.conn.execute("PRAGMA page_size").fetchone()[0]
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'questions'"
        page = saver.conn.execute(query).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)

    with SqliteCheckpointer(path) as saver:
        assert any(fault.where == "the file" for fault in saver.check().faults)


def test_every_fault_is_in_one_report(saver: SqliteCheckpointer) -> None:
    run(saver)
    saver.conn.execute("UPDATE checkpoints SET checkpoint = x'00' WHERE rowid IN (2, 3, 4)")
    saver.conn.execute("UPDATE writes SET value = x'c1' WHERE rowid = 2")
    saver.conn.commit()

    assert len(saver.check().faults) >= 4


async def test_conversations_go_on_while_a_database_is_checked(saver: SqliteCheckpointer) -> None:
    run(saver)
    saver.lock.acquire()
    try:
        # On a connection of its own: it waits for nobody.
        assert (await asyncio.wait_for(saver.acheck(), 120)).is_sound
    finally:
        saver.lock.release()


# Backing up


async def test_a_backup_holds_everything_and_opens_like_the_original(
    path: Path, saver: SqliteCheckpointer
) -> None:
    session = run(saver)
    saver.ledger.append("mail", "hello")
    copies = [path.with_name("one.sqlite"), path.with_name("two.sqlite")]

    saver.backup(copies[0])
    await saver.abackup(str(copies[1]))
    run(saver)

    for copy in copies:
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        with SqliteCheckpointer(copy) as opened:
            assert opened.check().is_sound
            assert [each.record for each in opened.ledger.read("mail")] == ["hello"]
            state = (
                team().compile(opened).get_state({"configurable": {"thread_id": session.thread_id}})
            )
            assert len(state.values["messages"]) == 12
            run(opened)
    assert sorted(each.name for each in path.parent.iterdir() if each.suffix == ".part") == []


def test_a_backup_is_whole_while_others_write(path: Path, saver: SqliteCheckpointer) -> None:
    graph, over = team().compile(saver), threading.Event()
    graph.invoke({"messages": [HumanMessage("0")]}, {"configurable": {"thread_id": "0"}})

    def talk() -> None:
        number = 0
        while not over.is_set():
            number += 1
            given: Any = {"configurable": {"thread_id": str(number)}}
            graph.invoke({"messages": [HumanMessage("plan")]}, given)

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        for number in range(5):
            saver.backup(path.with_name(f"{number}.sqlite"))
    finally:
        over.set()
        thread.join()

    for number in range(5):
        with SqliteCheckpointer(path.with_name(f"{number}.sqlite")) as opened:
            # What a crash at that moment would have left: nothing broken, perhaps not finished.
            assert opened.conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert opened.check().is_sound


def test_a_database_without_a_file_can_be_kept_by_a_backup(tmp_path: Path) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        run(saver)
        saver.backup(tmp_path / "kept.sqlite")

    with SqliteCheckpointer(tmp_path / "kept.sqlite") as opened:
        assert opened.check().threads == 1


def test_a_file_that_is_there_is_refused_and_not_touched(
    path: Path, saver: SqliteCheckpointer
) -> None:
    other = path.with_name("precious")
    other.write_text("mine")

    for taken in (other, path):
        with raises_code("backup_exists", match=taken.name) as refused:
            saver.backup(taken)
        assert refused.value.path == str(taken)

    assert other.read_text() == "mine"
    assert run(saver)


@pytest.mark.parametrize("given", ["missing/b.sqlite", "a\0b", ""])
def test_a_backup_that_cannot_be_made_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: Any, saver: SqliteCheckpointer, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())

    with pytest.raises(StorageError):
        saver.backup(given)

    assert sorted(tmp_path.iterdir()) == before


def test_a_backup_that_fails_half_way_leaves_nothing(
    path: Path, saver: SqliteCheckpointer, monkeypatch: Any
) -> None:
    def full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full)

    with pytest.raises(StorageError, match="No space left"):
        saver.backup(path.with_name("copy.sqlite"))

    assert not [each for each in path.parent.iterdir() if each.name.startswith("copy")]
    assert sqlite3.connect(path).execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)
