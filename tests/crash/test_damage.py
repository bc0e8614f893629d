"""Damaged bytes are named or do no harm, whichever bit is damaged."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Interrupt, Send
from typer.testing import CliRunner

from echelons.checkpoints.storage.serde import AllowlistSerializer
from echelons.cli.app import app
from echelons.cli.command import ExitCode
from echelons.errors import CheckpointTampered
from tests.proof import sample

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


PAGE = 4096


def page_of(bytes_: bytearray, chance: random.Random) -> slice:
    start = PAGE * chance.randrange(len(bytes_) // PAGE)
    return slice(start, start + PAGE)


def overwritten(bytes_: bytearray, chance: random.Random) -> None:
    bytes_[page_of(bytes_, chance)] = chance.randbytes(PAGE)


def zeroed(bytes_: bytearray, chance: random.Random) -> None:
    bytes_[page_of(bytes_, chance)] = bytes(PAGE)


def exchanged(bytes_: bytearray, chance: random.Random) -> None:
    first, second = page_of(bytes_, chance), page_of(bytes_, chance)
    bytes_[first], bytes_[second] = bytes_[second], bytes_[first]


def header_replaced(bytes_: bytearray, chance: random.Random) -> None:
    bytes_[chance.randrange(100)] = chance.randrange(256)


def cut_short(bytes_: bytearray, chance: random.Random) -> None:
    del bytes_[chance.randrange(len(bytes_)) :]


def many_replaced(bytes_: bytearray, chance: random.Random) -> None:
    for _ in range(50):
        replaced(bytes_, chance)


FILE_DAMAGES = (overwritten, zeroed, exchanged, header_replaced, cut_short, many_replaced)
TABLES = ("checkpoints", "writes", "events", "ledger_values", "ledger_leases", "echelons_schema")
# A table that is another one, that lacks the rows that its indexes list, or has other columns.
SCHEMA_DAMAGES = (
    "CREATE TABLE other AS SELECT * FROM {table} LIMIT 1; UPDATE sqlite_master SET rootpage ="
    " (SELECT rootpage FROM sqlite_master WHERE name = 'other') WHERE name = '{table}'",
    "UPDATE sqlite_master SET rootpage = 3 WHERE name = '{table}'",
    "UPDATE sqlite_master SET sql = replace(sql, 'checkpoint_id', 'lost') WHERE name = '{table}'",
    "UPDATE sqlite_master SET sql = 'no sql' WHERE name = '{table}'",
    "DROP TABLE {table}",
)


def check_file(file: Path) -> tuple[int, str]:
    """Return the exit code and output of `echelons doctor`."""
    ended = CliRunner().invoke(app, ["doctor", "--db", str(file)])
    return ended.exit_code, ended.output


def test_a_doctor_of_any_damaged_file_reports_it(
    whole: tuple[bytes, str, str], tmp_path: Path
) -> None:
    chance, file = random.Random(11), tmp_path / "damaged.sqlite"
    ends: Counter[int] = Counter()
    for damage in FILE_DAMAGES * sample(4, 50):
        bytes_ = bytearray(whole[0])
        damage(bytes_, chance)
        file.write_bytes(bytes_)
        code, output = check_file(file)
        ends[code] += 1
        assert code in (ExitCode.FINISHED, ExitCode.BROKEN, ExitCode.REFUSED), output
        file.unlink()

    assert ends[ExitCode.BROKEN] > ends.total() / 2


@pytest.mark.parametrize("damage", SCHEMA_DAMAGES)
def test_a_doctor_reports_what_an_index_lists_and_a_table_has_not(
    damage: str, whole: tuple[bytes, str, str], tmp_path: Path
) -> None:
    for table in TABLES:
        file = tmp_path / f"{table}.sqlite"
        file.write_bytes(whole[0])
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA writable_schema=ON")
            connection.executescript(damage.format(table=table))

        code, output = check_file(file)

        assert code in (ExitCode.FINISHED, ExitCode.BROKEN, ExitCode.REFUSED), output
        if damage.startswith("CREATE") and table == "checkpoints":
            assert "an index lists it, and the table does not have it" in output
