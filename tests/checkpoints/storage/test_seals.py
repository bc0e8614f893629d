"""A sealed row is read where it was written, as it was written, or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.errors import CheckpointTampered
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code

KEY, OTHER_KEY = b"0123456789abcdef", b"fedcba9876543210"


def ask(question: str) -> str:
    """Ask a human."""
    return f"a human said {interrupt(question)}"


def tree() -> Agent:
    model = ScriptedModel(
        {
            "head": [delegate("camp", "look"), "done"],
            "camp": [Call("ask", {"question": "north?"}), "seen"],
        }
    )
    return Agent("head", model=model, subordinates=[Agent("camp", tools=[ask])])


def turn(saver: SqliteCheckpointer, thread: str, task: str = "go") -> str:
    """Have a turn with a question in it, and return the thread's id."""
    session = Session(tree(), saver, thread=thread)
    session.send(task).result()
    session.answer({each.id: "yes" for each in session.inbox()}).result()
    return session.thread_id


def read(saver: SqliteCheckpointer, root: str) -> list[Any]:
    """Read everything that there is of a thread."""
    store = ThreadStore(saver)
    trace = store.trace(root)
    listed = list(saver.list({"configurable": {"thread_id": root}}))
    return [store.get(each.thread_id, root).messages for each in trace.walk()] + listed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sealed.sqlite"


@pytest.fixture
def saver(path: Path) -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(path, seal=KEY) as opened:
        yield opened


def by_hand(path: Path, statement: str, *given: Any) -> None:
    """Change the database behind the library's back."""
    with sqlite3.connect(path) as connection:
        changed = connection.execute(statement, given).rowcount
    connection.close()
    assert changed


# Writing and reading


def test_a_sealed_database_works_like_any_other(saver: SqliteCheckpointer) -> None:
    with SqliteCheckpointer(":memory:") as plain:
        unsealed = [len(read(plain, turn(plain, name))) for name in ("one", "two")]

    assert [len(read(saver, turn(saver, name))) for name in ("one", "two")] == unsealed


def test_every_row_has_a_seal_of_its_own(saver: SqliteCheckpointer) -> None:
    turn(saver, "one")

    tables = ("checkpoints", "writes", "seals")
    counted = [
        saver.conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables
    ]
    assert counted[0] + counted[1] == counted[2]
    assert saver.conn.execute("SELECT count(DISTINCT seal) FROM seals").fetchone()[0] == counted[2]


def test_plain_langgraph_reads_a_sealed_database(path: Path, saver: SqliteCheckpointer) -> None:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.checkpoint.sqlite import SqliteSaver

    root = turn(saver, "one")
    with sqlite3.connect(path) as connection:
        theirs = SqliteSaver(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        listed = list(theirs.list({"configurable": {"thread_id": root}}))
    connection.close()

    ours = list(saver.list({"configurable": {"thread_id": root}}))
    stored = saver.serde.dumps_typed
    assert [stored(_without_parents(each)) for each in listed] == [
        stored(_without_parents(each)) for each in ours
    ]


def _without_parents(saved: CheckpointTuple) -> list[Any]:
    """Return a checkpoint without the map that is stored in part and made whole by us only.

    So is the result of an answer, which stands in the content: both are alike as they are stored.
    """
    kept: Any = {key: each for key, each in saved.metadata.items() if key != "parents"}
    return [*saved._replace(metadata=kept)]


async def test_a_sealed_saver_has_every_capability_that_langgraph_tests() -> None:
    @checkpointer_test(name="sealed")
    async def savers() -> Any:
        with SqliteCheckpointer(":memory:", seal=KEY) as saver:
            given: BaseCheckpointSaver[str] = saver
            yield given

    results = (await validate(savers)).results

    assert {name: each.failures for name, each in results.items() if each.failures} == {}


# What is found out

CHANGES = {
    "a checkpoint's bytes": "UPDATE checkpoints SET checkpoint = (SELECT checkpoint FROM"
    " checkpoints AS other WHERE other.checkpoint_id <> checkpoints.checkpoint_id LIMIT 1)",
    "a checkpoint's metadata": """UPDATE checkpoints SET metadata =
        CAST(json_set(CAST(metadata AS TEXT), '$.run_id', 'mine') AS BLOB)""",
    "a checkpoint's metadata as text": "UPDATE checkpoints SET metadata = CAST(metadata AS TEXT)",
    "which checkpoint is before it": "UPDATE checkpoints SET parent_checkpoint_id = checkpoint_id"
    " WHERE parent_checkpoint_id IS NOT NULL",
    "that there is one before it": "UPDATE checkpoints SET parent_checkpoint_id = NULL"
    " WHERE parent_checkpoint_id IS NOT NULL",
    "its type": "UPDATE checkpoints SET type = 'bytes'",
    "what was written": "UPDATE writes SET value = (SELECT value FROM writes AS other"
    " WHERE other.channel = 'messages' LIMIT 1) WHERE channel <> 'messages'",
    "the channel": "UPDATE writes SET channel = 'other'",
    "the type of a write": "UPDATE writes SET type = 'null', value = x''",
    "the order of writes": "UPDATE writes SET task_path = '~'",
    "a seal": "UPDATE seals SET seal = zeroblob(40)",
    "a bit of a seal": "UPDATE seals SET seal = substr(seal, 1, 39) || x'00'"
    " WHERE substr(seal, 40) <> x'00'",
    "a seal's length": "UPDATE seals SET seal = substr(seal, 1, 39)",
    "a seal's type": "UPDATE seals SET seal = hex(seal)",
    "all seals": "DELETE FROM seals",
    "the seals of writes": "DELETE FROM seals WHERE idx > -100",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_changed_row_is_found_out(path: Path, saver: SqliteCheckpointer, change: str) -> None:
    root = turn(saver, "one")
    by_hand(path, change)

    with pytest.raises(CheckpointTampered):
        read(saver, root)


MOVES = {
    "thread": "thread_id = 'mine'",
    "namespace": "checkpoint_ns = 'mine:1'",
    "checkpoint": "checkpoint_id = '1ffffff0-0000-6000-8000-000000000000'",
}


@pytest.mark.parametrize("with_seals", [False, True], ids=["alone", "with its seal"])
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_a_row_in_another_place_is_found_out(
    path: Path, saver: SqliteCheckpointer, move: str, with_seals: bool
) -> None:
    root = turn(saver, "one")
    newest = saver.get_tuple({"configurable": {"thread_id": root}})
    assert newest
    given = newest.config["configurable"]
    place = "thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ?"
    for table in ("checkpoints", "seals")[: 1 + with_seals]:
        by_hand(path, f"UPDATE {table} SET {move} WHERE {place}", root, given["checkpoint_id"])

    with pytest.raises(CheckpointTampered):
        list(saver.list(None))


def test_a_write_of_another_task_is_found_out(path: Path, saver: SqliteCheckpointer) -> None:
    root = turn(saver, "one")
    for table in ("writes", "seals"):
        by_hand(path, f"UPDATE {table} SET task_id = 'mine' WHERE task_id <> ''")

    with pytest.raises(CheckpointTampered, match=r"'mine'"):
        list(saver.list({"configurable": {"thread_id": root}}))


def test_a_thread_posing_as_another_is_found_out_and_the_other_stays(
    path: Path, saver: SqliteCheckpointer
) -> None:
    one, two = turn(saver, "one"), turn(saver, "two")
    before = read(saver, two)
    for table in ("checkpoints", "writes", "seals"):
        by_hand(path, f"UPDATE {table} SET thread_id = 'three' WHERE thread_id = ?", one)

    with pytest.raises(CheckpointTampered, match=r"thread 'three'"):
        saver.get_tuple({"configurable": {"thread_id": "three"}})
    assert read(saver, two) == before


def test_no_row_of_another_database_with_another_key_is_read(
    tmp_path: Path, saver: SqliteCheckpointer, path: Path
) -> None:
    with SqliteCheckpointer(tmp_path / "other.sqlite", seal=OTHER_KEY) as other:
        root = turn(other, "one")
    with sqlite3.connect(path) as connection:
        connection.execute("ATTACH ? AS other", (str(tmp_path / "other.sqlite"),))
        for table in ("checkpoints", "writes", "seals"):
            connection.execute(f"INSERT INTO main.{table} SELECT * FROM other.{table}")
    connection.close()

    with raises_code("unknown_seal_key"):
        saver.get_tuple({"configurable": {"thread_id": root}})


# Keys


def test_another_key_is_named_and_so_are_those_that_were_given(
    path: Path, saver: SqliteCheckpointer
) -> None:
    root = turn(saver, "one")
    with SqliteCheckpointer(path, seal=OTHER_KEY) as other:
        with raises_code("unknown_seal_key") as refused:
            other.get_tuple({"configurable": {"thread_id": root}})

    assert refused.value.key in str(refused.value)
    assert refused.value.key not in refused.value.known
    assert len(refused.value.known) == 1
    assert KEY.hex() not in str(refused.value)


def test_the_first_key_seals_and_every_key_is_read(path: Path) -> None:
    with SqliteCheckpointer(path, seal=KEY) as saver:
        old = turn(saver, "old")
    with SqliteCheckpointer(path, seal=[OTHER_KEY, KEY]) as saver:
        turn(saver, "old", "again")
        new = turn(saver, "new")
        assert read(saver, old) and read(saver, new)
    with SqliteCheckpointer(path, seal=OTHER_KEY) as saver:
        assert read(saver, new)
        with raises_code("unknown_seal_key"):
            read(saver, old)


def test_an_old_key_is_given_up_once_every_row_is_sealed_anew(path: Path) -> None:
    with SqliteCheckpointer(path, seal=KEY) as saver:
        root = turn(saver, "one")
        before = read(saver, root)
    with SqliteCheckpointer(path, seal=[OTHER_KEY, KEY]) as saver:
        sealed = saver.reseal()
    with SqliteCheckpointer(path, seal=OTHER_KEY) as saver:
        assert read(saver, root) == before
        assert saver.reseal() == sealed > 10


def test_sealing_anew_seals_nothing_that_was_changed(path: Path, saver: SqliteCheckpointer) -> None:
    turn(saver, "one")
    by_hand(path, "UPDATE writes SET channel = 'other'")
    before = saver.conn.execute("SELECT seal FROM seals").fetchall()

    for adopt in (False, True):
        with pytest.raises(CheckpointTampered):
            saver.reseal(adopt=adopt)
    assert saver.conn.execute("SELECT seal FROM seals").fetchall() == before


def test_a_database_that_was_not_sealed_is_taken_over_on_request_only(path: Path) -> None:
    with SqliteCheckpointer(path) as saver:
        root = turn(saver, "one")
        before = read(saver, root)
    with SqliteCheckpointer(path, seal=KEY) as saver:
        with pytest.raises(CheckpointTampered, match=r"no seal"):
            read(saver, root)
        with pytest.raises(CheckpointTampered, match=r"no seal"):
            saver.reseal()
        saver.reseal(adopt=True)
        assert read(saver, root) == before
        assert turn(saver, "one", "again") == root


def test_a_sealed_database_without_a_key_can_be_read_and_deleted_from_but_not_written(
    path: Path,
) -> None:
    with SqliteCheckpointer(path, seal=KEY) as saver:
        root = turn(saver, "one")
        before = read(saver, root)
    with SqliteCheckpointer(path) as saver:
        assert read(saver, root) == before
        for write in (
            lambda: turn(saver, "two"),
            lambda: saver.copy_thread(root, "copy"),
            lambda: saver.prune([root]),
        ):
            with raises_code("seal_key_missing"):
                write()
        with raises_code("invalid_seal_key"):
            saver.reseal()
    with SqliteCheckpointer(path, seal=KEY) as saver:
        assert read(saver, root) == before
    with SqliteCheckpointer(path) as saver:
        saver.delete_thread(root)
        assert saver.conn.execute("SELECT count(*) FROM seals").fetchone() == (0,)


@pytest.mark.parametrize(
    "key", [b"", b"x" * 15, "x" * 32, [], [KEY, b"short"], [KEY, "x" * 32], bytearray(KEY)]
)
def test_a_key_that_seals_nothing_safely_is_refused(key: Any) -> None:
    with raises_code("invalid_seal_key") as refused:
        SqliteCheckpointer(":memory:", seal=key)

    assert "16" in str(refused.value)
    assert "xxx" not in str(refused.value)


# Deleting, copying, pruning


def test_what_is_copied_is_sealed_in_its_new_place(saver: SqliteCheckpointer) -> None:
    root = turn(saver, "one")
    saver.copy_thread(root, "copy")

    assert len(read(saver, "copy")) == len(read(saver, root))
    session = Session(tree(), saver, thread="one")
    config: Any = {"configurable": {"thread_id": "copy"}}
    assert session.graph.get_state(config).values["messages"]


def test_what_was_changed_is_not_copied(path: Path, saver: SqliteCheckpointer) -> None:
    root = turn(saver, "one")
    by_hand(path, "UPDATE writes SET channel = 'other'")

    with pytest.raises(CheckpointTampered):
        saver.copy_thread(root, "copy")
    assert saver.get_tuple({"configurable": {"thread_id": "copy"}}) is None


def test_a_pruned_thread_is_sealed_and_goes_on(saver: SqliteCheckpointer) -> None:
    root = turn(saver, "one")
    for task in ("again", "once more"):
        turn(saver, "one", task)
    before = read(saver, root)[0]

    saver.prune([root])

    assert read(saver, root)[0] == before
    turn(saver, "one", "and on")
    rows = "SELECT (SELECT count(*) FROM checkpoints) + (SELECT count(*) FROM writes)"
    assert (
        saver.conn.execute(rows).fetchone()
        == saver.conn.execute("SELECT count(*) FROM seals").fetchone()
    )


def test_what_was_changed_is_not_sealed_by_pruning(path: Path, saver: SqliteCheckpointer) -> None:
    root = turn(saver, "one")
    by_hand(path, "UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE checkpoint_ns = ''")

    with pytest.raises(CheckpointTampered):
        saver.prune([root])


def test_no_seal_stays_behind_of_what_is_deleted(saver: SqliteCheckpointer) -> None:
    roots = [turn(saver, "one"), turn(saver, "two")]
    saver.delete_thread(roots[0])
    saver.prune([roots[1]], strategy="delete")

    assert saver.conn.execute("SELECT count(*) FROM seals").fetchone() == (0,)
