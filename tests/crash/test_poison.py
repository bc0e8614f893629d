"""A poisoned row is named by every read, runs nothing, and costs no other thread."""

from __future__ import annotations

import json
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ormsgpack
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Send

from echelons import SqliteCheckpointer
from echelons.checkpoints.storage.serde import AllowlistSerializer
from echelons.errors import CheckpointTampered

if TYPE_CHECKING:
    from tests.crash.conftest import Besieged

CHANNELS = ("messages", "heads")


class Bomb:
    """Imports the trap when it is unpickled."""

    def __reduce__(self) -> Any:
        return __import__, ("trap",)


def ext(code: int, *parts: Any) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))


def held(**changes: Any) -> bytes:
    """Return the bytes of a checkpoint that lacks something, or holds something else."""
    whole = {
        "v": 4,
        "ts": "2025-01-01T00:00:00+00:00",
        "id": "1f000000-0000-6000-8000-000000000000",
        "channel_values": {},
        "channel_versions": {},
        "versions_seen": {},
    }
    kept = {key: value for key, value in {**whole, **changes}.items() if value is not ...}
    return AllowlistSerializer().dumps_typed(kept)[1]


BYTES: list[Any] = [
    *(None, "text", 5, 1.5, b"", b"\x00\x00", b"\xc1", b"\x81\xa1", bytes(range(256))),
    *(pickle.dumps(Bomb()), pickle.dumps({}), b"\xd4\x00\x00", b"\x91" * 5000),
    ext(0, "trap", "x", "y"),
    ext(1, "trap", "x", ["y"]),
    ext(2, "trap", "x", {}),
    ext(3, "trap", "x", "y", "z"),
    ext(4, "trap", "x", {}),
    ext(5, "trap", "x", {}, "model_validate_json"),
    ext(6, "|O", [1], "C", b"12345678"),
    ext(0, "builtins", "eval", "__import__('trap')"),
    ext(3, "builtins", "str", "{0}", "format"),
    ext(1, "re", "compile", ["(a+)+$", 0]),
    ext(2, "langgraph.types", "PregelTask", {}),
    json.dumps({"lc": 2, "type": "constructor", "id": ["trap", "x"]}).encode(),
]
TAGS: list[Any] = [None, "pickle", "json", "null", "", "MSGPACK", "yaml", 5, b"msgpack", "aes"]
SHAPES = [
    *(b"\xc0", b"\x01", b"\xa1x", b"\x90", b"\x80", b"\x91\x80"),
    *(held(**{key: ...}) for key in ("v", "ts", "id", "channel_values", "versions_seen")),
    *(held(**{key: 5}) for key in ("ts", "id", "channel_values", "channel_versions")),
    held(id="1f000000-0000-6000-8000-000000000001"),
    held(versions_seen={"a": 5}),
    held(channel_values={5: 1}),
    held(channel_versions={"a": None}),
    held(channel_values={"__pregel_tasks": ["act"]}),
    held(channel_values={"__pregel_tasks": 5}),
    held(channel_values={"__pregel_tasks": {"act": 1}}),
    held(),
]
METADATA: list[Any] = [
    *(None, "", b"", b"{", b"[]", b"5", b"null", b'"x"', b"\xff", b"{}x", b"[" * 20_000, 5),
    b'{"parents": 5}',
    b'{"parents": [], "source": "input"}',
    b'{"counters_since_delta_snapshot": [1]}',
    *(b'{"counters_since_delta_snapshot": {"messages": %s}}' % each for each in (b"5", b"[1]")),
    *(b'{"step": %s}' % each for each in (b'"x"', b"null", b"1.5", b"[1]")),
]
POISON: list[tuple[str, str, Any]] = [
    *(("checkpoints", "checkpoint", each) for each in (*BYTES, *SHAPES)),
    *(("checkpoints", "type", each) for each in TAGS),
    *(("checkpoints", "metadata", each) for each in METADATA),
    *(("checkpoints", "parent_checkpoint_id", each) for each in (b"\xff", b"x")),
    *(("writes", "value", each) for each in BYTES),
    *(("writes", "type", each) for each in TAGS),
    *(("writes", "idx", each) for each in ("x", 1.5, b"x")),
    *(("writes", "channel", each) for each in (b"messages", b"")),
    *(("writes", "task_id", each) for each in (b"", b"x")),
    *(("writes", "task_path", each) for each in (b"x",)),
]


def every_read(
    saver: SqliteCheckpointer, config: RunnableConfig
) -> list[Callable[[], Awaitable[Any]]]:
    """Return each way to read a checkpoint, as a call that can be awaited."""
    root: RunnableConfig = {"configurable": {"thread_id": config["configurable"]["thread_id"]}}

    async def listed() -> Any:
        return [each async for each in saver.alist(root)]

    async def at_once() -> Any:
        return saver.get_tuple(config)

    async def of_all() -> Any:
        return list(saver.list(root))

    return [at_once, of_all, lambda: saver.aget_tuple(config), listed]


def poison(besieged: Besieged, table: str, assigned: str, *value: Any) -> RunnableConfig:
    """Change a row in the middle of the bad thread, and return the config of its checkpoint."""
    connection = besieged.saver.conn
    rows = connection.execute(
        f"SELECT rowid, checkpoint_id FROM {table} WHERE thread_id = ? AND checkpoint_ns = ''"
        " ORDER BY checkpoint_id",
        (besieged.bad,),
    ).fetchall()
    rowid, checkpoint_id = rows[len(rows) // 2]
    with connection:
        connection.execute(f"UPDATE {table} SET {assigned} WHERE rowid = ?", (*value, rowid))
    place = {"thread_id": besieged.bad, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
    return {"configurable": place}


@pytest.mark.parametrize(("table", "column", "value"), POISON)
async def test_a_poisoned_row_is_named_by_every_read_and_costs_no_other_thread(
    table: str, column: str, value: Any, besieged: Besieged, unharmed: list[Any], canary: Path
) -> None:
    saver = besieged.saver
    config = poison(besieged, table, f"{column} = ?", value)

    for read in every_read(saver, config):
        with pytest.raises(CheckpointTampered) as refused:
            await read()
        str(refused.value).encode()
        assert besieged.bad in refused.value.where

    assert besieged.read(besieged.good) == unharmed
    saver.delete_thread(besieged.bad)
    assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == {
        besieged.good
    }


def test_there_are_enough_poisoned_rows() -> None:
    assert len(POISON) >= 100


@pytest.mark.parametrize("column", ["type", "metadata", "parent_checkpoint_id"])
async def test_a_text_that_is_no_unicode_is_named(
    column: str, besieged: Besieged, unharmed: list[Any]
) -> None:
    config = poison(besieged, "checkpoints", f"{column} = CAST(x'ff' AS TEXT)")

    for read in every_read(besieged.saver, config):
        with pytest.raises(CheckpointTampered, match=besieged.bad):
            await read()
    assert besieged.read(besieged.good) == unharmed


def newest(besieged: Besieged) -> CheckpointTuple:
    found = besieged.saver.get_tuple({"configurable": {"thread_id": besieged.bad}})
    assert found
    return found


@pytest.mark.parametrize("column", ["checkpoint", "type", "parent_checkpoint_id"])
async def test_a_poisoned_row_on_the_way_back_is_named(column: str, besieged: Besieged) -> None:
    config = newest(besieged).config
    poison(besieged, "checkpoints", f"{column} = x'ff'")

    with pytest.raises(CheckpointTampered):
        besieged.saver.get_delta_channel_history(config=config, channels=CHANNELS)
    with pytest.raises(CheckpointTampered):
        await besieged.saver.aget_delta_channel_history(config=config, channels=CHANNELS)


async def test_a_row_that_is_missing_on_the_way_back_is_named(besieged: Besieged) -> None:
    before, last = besieged.read(besieged.good), newest(besieged)
    assert last.parent_config
    parent = last.parent_config["configurable"]["checkpoint_id"]
    with besieged.saver.conn as connection:
        connection.execute("DELETE FROM checkpoints WHERE checkpoint_id = ?", (parent,))

    with pytest.raises(CheckpointTampered, match=parent):
        besieged.saver.get_delta_channel_history(config=last.config, channels=CHANNELS)
    with pytest.raises(CheckpointTampered, match=parent):
        besieged.session("bad").send("again").result()
    assert besieged.read(besieged.good) == before


async def test_a_poisoned_thread_does_not_run_and_the_others_do(besieged: Besieged) -> None:
    with besieged.saver.conn as connection:
        connection.execute(
            "UPDATE checkpoints SET type = 'pickle' WHERE thread_id = ? AND checkpoint_ns = ''",
            (besieged.bad,),
        )
    session = besieged.session("bad")
    attempts: list[Callable[[], Any]] = [
        lambda: session.send("again"),
        session.inbox,
        session.resume,
        session.trace,
    ]
    for attempt in attempts:
        with pytest.raises(CheckpointTampered):
            attempt()
    with pytest.raises(CheckpointTampered):
        await session.graph.ainvoke({"messages": "again"}, session.config)

    assert besieged.turn("good") == besieged.good


@pytest.mark.parametrize("value", [5, None, [5], {"a": 1}, [[5]], b"x", [None], [Send("a", 1)]])
def test_a_conversation_that_is_none_is_named_where_it_is_read(
    value: Any, besieged: Besieged, unharmed: list[Any]
) -> None:
    tag, stored = AllowlistSerializer().dumps_typed(value)
    with besieged.saver.conn as connection:
        connection.execute(
            "UPDATE writes SET type = ?, value = ? WHERE thread_id = ? AND channel = 'messages'",
            (tag, stored, besieged.bad),
        )

    with pytest.raises(CheckpointTampered):
        besieged.read(besieged.bad)
    assert besieged.read(besieged.good) == unharmed


NO_DATA: list[dict[str, Any]] = [
    *({}, {"role": "human"}, {"role": 5, "content": ""}),
    *({"role": "ai", "content": 5}, {"role": "ai", "content": {}}, {"role": "ai", "content": [5]}),
    *({"role": "ai", "content": "", "usage": 5}, {"role": "ai", "content": "", "status": 5}),
]
EVENTS: list[tuple[str, Any]] = [
    *(("data", each) for each in (b"\xff", "", "{", "5", "[]", "null", "[" * 3000)),
    *(("data", json.dumps(each)) for each in NO_DATA),
    *(("kind", each) for each in (b"message", "", "unheard of", 5)),
    *((column, b"\xff") for column in ("agent_thread_id", "agent_path", "key")),
]


@pytest.mark.parametrize(("column", "value"), EVENTS)
def test_a_poisoned_event_is_named_and_costs_no_other_thread(
    column: str, value: Any, besieged: Besieged, unharmed: list[Any], canary: Path
) -> None:
    saver = besieged.saver
    number = saver.read_events(besieged.bad, 0)[0].number
    with saver.conn as connection:
        connection.execute(f"UPDATE events SET {column} = ? WHERE id = ?", (value, number))

    with pytest.raises(CheckpointTampered, match=f"event {number} "):
        saver.read_events(besieged.bad, 0)
    assert f"event {number}" in [fault.where for fault in saver.check().faults]
    assert saver.read_events(besieged.good, 0)
    assert besieged.read(besieged.good) == unharmed
    assert besieged.turn("bad") == besieged.bad
