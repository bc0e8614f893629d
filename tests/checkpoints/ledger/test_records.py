"""What a ledger keeps, and what it refuses by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import SqliteCheckpointer
from echelons.checkpoints.ledger import Ledger, SqliteLedger
from echelons.checkpoints.ledger.transaction import (
    ANY_RECORD,
    MAX_NAME_SIZE,
    MAX_NESTING,
    encode_record,
)
from echelons.errors import LedgerDamaged
from tests.error_codes import raises_code

MakeLedger = Callable[..., Ledger]  # of the fixture


class State(StrEnum):
    STARTED = "started"


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(JSON)
def test_whatever_is_json_is_read_back_as_it_was_given(value: Any) -> None:
    assert ANY_RECORD.decode("mail", encode_record("mail", value)) == value


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(math.nan, id="not a number"),
        pytest.param({"a": [math.inf]}, id="infinite"),
        pytest.param({1: "a"}, id="a number as a key"),
        pytest.param({None: "a"}, id="null as a key"),
        pytest.param({True: "a"}, id="a boolean as a key"),
        pytest.param((1, 2), id="a tuple"),
        pytest.param({"a": (1, 2)}, id="a tuple inside"),
        pytest.param({1, 2}, id="a set"),
        pytest.param(b"a", id="bytes"),
        pytest.param(object(), id="an object"),
        pytest.param(MappingProxyType({"a": 1}), id="another mapping"),
        pytest.param("\ud800", id="half a character"),
        pytest.param({"\udfff": 1}, id="half a character as a key"),
        pytest.param(10**5000, id="a number too long to be read"),
        pytest.param(nested(MAX_NESTING + 1), id="nested too deep"),
        pytest.param(nested(100_000), id="nested much too deep"),
        pytest.param(circle(), id="a circle"),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(ledger: Ledger, value: Any) -> None:
    version = ledger.compare_and_set("turn", None, "before")
    writes: list[Callable[[], object]] = [
        lambda: ledger.append("mail", value),
        lambda: ledger.compare_and_set("turn", version, value),
    ]

    for write in writes:
        with raises_code("not_json") as caught:
            write()
        assert caught.value.where in ("mail", "turn")

    assert ledger.get_last_sequence("mail") == 0
    found = ledger.get("turn")
    assert found is not None
    assert found.value == "before"


@pytest.mark.parametrize(
    "value",
    [
        nested(MAX_NESTING),
        State.STARTED,
        {State.STARTED: 1},
        "\0",
        "\U0001f9ed",
        10**4000,
        -0.0,
        "",
    ],
    ids=lambda value: repr(value)[:20],
)
def test_unusual_json_is_kept(ledger: Ledger, value: Any) -> None:
    ledger.append("mail", value)

    assert ledger.read("mail")[0].record == value


def test_many_brackets_in_a_text_are_no_depth(ledger: Ledger) -> None:
    assert ledger.append("mail", {"text": "[{" * 1000}) == 1
    assert ledger.append("mail", [[] for _ in range(1000)]) == 2


@pytest.mark.parametrize(
    "text", ["x" * 99, "ä" * 50, ["12345678"] * 10], ids=["ASCII", "UTF-8", "a list"]
)
def test_what_is_too_large_is_refused_with_its_size_and_the_limit(
    make_ledger: MakeLedger, text: Any
) -> None:
    ledger = make_ledger(limit=100)

    with raises_code("record_too_large") as caught:
        ledger.append("mail", text)
    assert (caught.value.where, caught.value.limit) == ("mail", 100)
    assert caught.value.size in (101, 102, 111)
    with raises_code("record_too_large"):
        ledger.compare_and_set("turn", None, text)

    assert ledger.get_last_sequence("mail") == 0
    assert ledger.list_keys() == []


@pytest.mark.parametrize("text", ["x" * 98, "ä" * 49], ids=["ASCII", "UTF-8"])
def test_what_is_just_as_large_as_the_limit_is_kept(make_ledger: MakeLedger, text: str) -> None:
    assert make_ledger(limit=100).append("mail", text) == 1


INVALID: Mapping[str, Any] = {
    "empty": "",
    "no text": 7,
    "none": None,
    "bytes": b"mail",
    "a NUL": "a\0b",
    "half a character": "a\ud800",
    "too long": "x" * (MAX_NAME_SIZE + 1),
    "too long in UTF-8": "ä" * (MAX_NAME_SIZE // 2 + 1),
}


@pytest.mark.parametrize("name", INVALID.values(), ids=INVALID)
def test_a_name_that_cannot_be_kept_is_refused(ledger: Ledger, name: Any) -> None:
    uses: list[Callable[[], object]] = [
        lambda: ledger.append(name, 1),
        lambda: ledger.read(name),
        lambda: ledger.get_last_sequence(name),
        lambda: ledger.get(name),
        lambda: ledger.compare_and_set(name, None, 1),
        lambda: ledger.delete(name, 1),
        lambda: ledger.lease(name),
        lambda: ledger.take_over(name),
        lambda: ledger.get_holder(name),
    ]

    for use in uses:
        with raises_code("invalid_ledger_name") as caught:
            use()
        str(caught.value).encode()
        assert len(caught.value.name) < 200
    assert ledger.list_keys() == []


@pytest.mark.parametrize(
    "name", [" ", "../../etc", "a'b\"c;--", "日本\n", "x" * MAX_NAME_SIZE], ids=ascii
)
def test_any_other_text_is_a_name(ledger: Ledger, name: str) -> None:
    ledger.append(name, 1)
    ledger.compare_and_set(name, None, 2)

    with ledger.lease(name) as lease:
        assert lease.name == name
    assert ledger.get_last_sequence(name) == 1
    assert ledger.list_keys() == [name]


def test_a_stored_row_that_was_damaged_is_named(saver: SqliteCheckpointer) -> None:
    ledger = SqliteLedger(saver)
    ledger.append("mail", 1)
    ledger.compare_and_set("turn", None, 1)
    with saver.cursor() as cursor:
        cursor.execute("UPDATE ledger_entries SET record = '{'")
        cursor.execute("UPDATE ledger_values SET value = x'ff'")

    with pytest.raises(LedgerDamaged) as caught:
        ledger.read("mail")
    assert caught.value.where == "mail"
    with pytest.raises(LedgerDamaged):
        ledger.get("turn")
