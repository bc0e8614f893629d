"""Whatever a model or a tool gives becomes JSON that SQLite reads."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echelons.checkpoints.storage.serde import to_json_text, to_sanitized_json
from echelons.text.error_lines import sanitize_value

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=3)
    | st.text(st.characters(), max_size=5)
    | st.just("\ud83d"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text(max_size=3) | st.tuples(st.integers()) | st.floats() | st.none(),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def database() -> Any:
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


@given(anything)
def test_whatever_it_is_sqlite_reads_it(database: sqlite3.Connection, value: Any) -> None:
    text = to_json_text({"value": value})

    [(valid, kind)] = database.execute("SELECT json_valid(?1), json_type(?1, '$.value')", (text,))
    assert valid
    assert kind is not None
    assert set(json.loads(text)) == {"value"}


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(plain)
def test_what_is_plain_reads_back_as_it_was(value: Any) -> None:
    assert json.loads(to_json_text(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": float("nan")}, '{"a": "nan"}'),
        ([float("-inf"), 1.5], '["-inf", 1.5]'),
        ({(1, 2): {3: "x"}}, '{"(1, 2)": {"3": "x"}}'),
        ({"a": {1}}, '{"a": "{1}"}'),
        ({(1,): b"x"}, '{"(1,)": "b\'x\'"}'),
        ("é🎉", '"é🎉"'),
        ("half \ud83d", '"half ?"'),
    ],
)
def test_what_json_does_not_have_stands_as_text(value: Any, text: str) -> None:
    assert to_json_text(value) == text


odd = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(st.characters(), max_size=5) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.text() | st.floats() | st.none(), inner, max_size=3)
    ),
    max_leaves=8,
)
nested: Any = "bottom"
for _ in range(70):
    nested = [nested]


@given(odd | st.integers(2**63 - 2, 2**64 + 2))
@example(nested)
@example({"text": "\ud83d\ude00", "half": "\ud83d"})
@example({"a": 2**64, "b": -(2**63) - 1, "c": "1234567890123456789"})
@example({"a": float("nan"), 2**64: 1, True: 2, None: 3})
def test_a_sanitized_text_is_that_of_the_sanitized_value(value: Any) -> None:
    assert to_sanitized_json({"value": value}) == to_json_text(sanitize_value({"value": value}))
