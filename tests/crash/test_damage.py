"""Damaged bytes are named or do no harm, whichever bit is damaged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Interrupt, Send

from echelons.checkpoints.storage.serde import AllowlistSerializer
from echelons.errors import CheckpointTampered

if TYPE_CHECKING:
    from tests.crash.conftest import Besieged


def flipped(bytes_: bytearray, chance: random.Random) -> None:
    bytes_[chance.randrange(len(bytes_))] ^= 1 << chance.randrange(8)


def replaced(bytes_: bytearray, chance: random.Random) -> None:
    bytes_[chance.randrange(len(bytes_))] = chance.randrange(256)


def cut_out(bytes_: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(bytes_))
    del bytes_[place : place + chance.randrange(1, 9)]


def put_in(bytes_: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(bytes_))
    bytes_[place:place] = chance.randbytes(chance.randrange(1, 9))


def cut_off(bytes_: bytearray, chance: random.Random) -> None:
    del bytes_[chance.randrange(len(bytes_)) :]


DAMAGES = (flipped, replaced, cut_out, put_in, cut_off)
Cell = tuple[str, str, int, bytes, RunnableConfig]


def cells(besieged: Besieged) -> list[Cell]:
    """Return all that can be damaged of the bad thread, and the checkpoint that shows it."""
    found: list[Cell] = []
    for table, column in (
        ("checkpoints", "checkpoint"),
        ("checkpoints", "metadata"),
        ("writes", "value"),
    ):
        for rowid, stored, namespace, checkpoint_id in besieged.saver.conn.execute(
            f"SELECT rowid, {column}, checkpoint_ns, checkpoint_id FROM {table}"
            f" WHERE thread_id = ? AND length({column}) > 0",
            (besieged.bad,),
        ):
            place = {
                "thread_id": besieged.bad,
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint_id,
            }
            found.append((table, column, rowid, stored, {"configurable": place}))
    return found


def damaged(besieged: Besieged, times: int, seed: int) -> Iterator[str]:
    """Damage the bad thread again and again, and yield what became of each reading."""
    chance = random.Random(seed)
    saver, whole = besieged.saver, cells(besieged)
    for _ in range(times):
        table, column, rowid, stored, config = chance.choice(whole)
        bytes_ = bytearray(stored)
        chance.choice(DAMAGES)(bytes_, chance)
        if bytes_ == stored:
            continue
        update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
        saver.conn.execute(update, (bytes(bytes_), rowid))
        try:
            read = saver.get_tuple(config)
            assert isinstance(read, CheckpointTuple)
            yield "harmless"
        except CheckpointTampered:
            yield "named"
        saver.conn.execute(update, (stored, rowid))
        saver.conn.commit()


def test_ten_thousand_damaged_rows_are_named_or_do_no_harm(
    besieged: Besieged, canary: Path
) -> None:
    before = besieged.read(besieged.bad), besieged.read(besieged.good)

    came = Counter(damaged(besieged, 10_000, seed=8))

    assert came.total() > 9_900
    assert came["named"] > 2 * came["harmless"]
    assert (besieged.read(besieged.bad), besieged.read(besieged.good)) == before


def test_of_sealed_rows_not_one_damage_goes_unseen(sealed: Besieged) -> None:
    assert set(damaged(sealed, 1_000, seed=9)) == {"named"}


def test_whatever_can_still_be_read_is_of_the_kinds_that_are_stored(
    besieged: Besieged,
) -> None:
    chance = random.Random(10)
    serde = AllowlistSerializer()
    kinds: set[type[Any]] = set()

    def walk(value: Any) -> None:
        kinds.add(type(value))
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, (dict, list, tuple)):
            for each in inner:
                walk(each)

    for *_, stored, _config in cells(besieged):
        for damage in DAMAGES:
            bytes_ = bytearray(stored)
            damage(bytes_, chance)
            try:
                walk(serde.loads_typed(("msgpack", bytes(bytes_))))
            except CheckpointTampered:
                continue

    plain = {dict, list, tuple, str, int, float, bool, bytes, type(None)}
    others = {each for each in kinds - plain if not issubclass(each, BaseMessage)}
    assert {each.__name__ for each in others} <= {
        "_DeltaSnapshot",
        Send.__name__,
        Interrupt.__name__,
    }
    assert HumanMessage in kinds
