"""What comes in from outside fits its rule, or is refused with the value and the way out."""

from __future__ import annotations

from decimal import Decimal
from math import inf, nan
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.text.input_limits import (
    LONGEST_ID,
    LONGEST_NAME,
    MAX_INPUT_DEPTH,
    MAX_SHOWN,
    MESSAGE_BYTES,
    NOTE_BYTES,
    check_id,
    check_label,
    check_metadata,
    check_value,
    is_label,
    measure_size,
    shorten_repr,
)
from tests.error_codes import raises_code

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@pytest.mark.parametrize("given_", ["a", "A-1._:z", "x" * LONGEST_ID, 5, UUID(int=5), "-", "..."])
def test_an_id_of_these_characters_is_taken(given_: Any) -> None:
    assert check_id(given_, "thread_id") == str(given_)


@pytest.mark.parametrize(
    "given_",
    [
        *("", "x" * (LONGEST_ID + 1), "a b", "a/b", "a\n", "a\0b", "é", "٣", "a|b", "\ud800"),
        *("a;--", "../a", "a%00", "a\u200b", None, 1.5, b"a", [], {}, len),
    ],
    ids=ascii,
)
def test_any_other_id_is_refused(given_: Any) -> None:
    with raises_code("invalid_id") as refused:
        check_id(given_, "thread_id")

    assert refused.value.id in str(refused.value)
    assert str(LONGEST_ID) in str(refused.value)
    assert "thread_id" in str(refused.value)


@pytest.mark.parametrize("name", ["a", "Trip to Rome", "日本", "a/b:c|d", "x" * LONGEST_NAME, "🙂"])
def test_people_may_call_something_so(name: str) -> None:
    assert is_label(name)
    check_label(name, "name")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            " ",
            " a",
            "a ",
            "a\nb",
            "a\0",
            "a\x1b[31m",
            "\ud83d",
            "\u202e",
            "a\u2028b",
            "\ufeff",
        ),
        *("x" * (LONGEST_NAME + 1), None, 5, b"a", ["a"]),
    ],
    ids=ascii,
)
def test_reserved_name_is_refused(name: Any) -> None:
    assert not is_label(name)
    with raises_code("invalid_id") as refused:
        check_label(name, "name of a thing")

    assert refused.value.id in str(refused.value)
    assert str(refused.value).isprintable()


@given(JSON)
def test_json_is_taken_as_it_is(value: Any) -> None:
    assert check_value(value, "the answer") == value


@pytest.mark.parametrize(
    "value",
    [
        *(object(), {1, 2}, b"x", Decimal(1), int, lambda: 1, 2**64, -(2**63) - 1, 10**5000),
        *({"a": [{"b": object()}]}, {b"key": 1}, {(1, 2): 3}, nan, [-inf], {"share": inf}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    with raises_code("invalid_value") as refused:
        check_value(value, "the answer to 'q'")

    assert "the answer to 'q'" in str(refused.value)
    assert refused.value.value in str(refused.value)


@pytest.mark.parametrize(
    "value", ["\ud800", ["a", "\udfff"], {"\udc80": 1}, {"a": {"b": "x\ud83d"}}]
)
def test_half_a_character_is_refused_wherever_it_stands(value: Any) -> None:
    with raises_code("invalid_text") as refused:
        check_value(value, "the answer")

    str(refused.value).encode()


def nested(depth: int, mapping: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if mapping else [value]
    return value


@pytest.mark.parametrize("mapping", [False, True])
def test_a_value_may_be_nested_so_deep_and_no_deeper(mapping: bool) -> None:
    check_value(nested(MAX_INPUT_DEPTH, mapping), "the answer")
    for depth in (MAX_INPUT_DEPTH + 1, 100_000):
        with raises_code("input_too_deep") as refused:
            check_value(nested(depth, mapping), "the answer")
        assert str(MAX_INPUT_DEPTH) in str(refused.value)


def test_a_value_may_not_hold_itself() -> None:
    circle: list[Any] = []
    circle.append(circle)
    ring: dict[str, Any] = {}
    ring["ring"] = [ring]
    for each in (circle, ring):
        with raises_code("input_too_deep"):
            check_value(each, "the answer")


def test_a_value_may_be_so_large_and_no_larger() -> None:
    check_value("x" * MESSAGE_BYTES, "the answer")
    for value in ("x" * (MESSAGE_BYTES + 1), "é" * (MESSAGE_BYTES // 2 + 1)):
        with raises_code("input_too_large") as refused:
            check_value(value, "the answer")
        assert refused.value.size > refused.value.limit == MESSAGE_BYTES


def test_many_small_things_are_large_too() -> None:
    smallest: list[Any] = [None, [], {}]
    for each in smallest:
        value = [each] * MESSAGE_BYTES
        with raises_code("input_too_large"):
            check_value(value, "the answer")


def test_what_holds_the_same_again_and_again_is_given_up_soon() -> None:
    laughs: list[Any] = ["ha"]
    for _ in range(50):
        laughs = [laughs, laughs]

    with raises_code("input_too_large"):
        check_value(laughs, "the answer")


@given(JSON)
def test_the_size_is_that_of_the_parts(value: Any) -> None:
    whole = measure_size(value, "it", MESSAGE_BYTES)

    assert measure_size([value, value], "it", MESSAGE_BYTES) == 2 * whole + measure_size(
        [], "it", 100
    )


def test_notes_are_texts_and_numbers_under_plain_keys() -> None:
    notes = {"team": "trips:head", "n": 1, "x.y": 0.5, "on": True}

    assert check_metadata(notes) == notes
    assert check_metadata(None) == {}


@pytest.mark.parametrize(
    ("notes", "error"),
    [
        ({"a b": "x"}, "invalid_note"),
        ({"": "x"}, "invalid_note"),
        ({5: "x"}, "invalid_note"),
        ({"a\0": "x"}, "invalid_note"),
        ({"a": None}, "invalid_note"),
        ({"a": ["x"]}, "invalid_note"),
        ({"a": {"b": 1}}, "invalid_note"),
        ({"a": b"x"}, "invalid_note"),
        ({"a": 2**70}, "invalid_note"),
        ({"a": "\ud800"}, "invalid_text"),
        ({"a": "x" * NOTE_BYTES}, "input_too_large"),
        ({str(n): "x" for n in range(NOTE_BYTES)}, "input_too_large"),
    ],
)
def test_notes_of_any_other_kind_are_refused(notes: Any, error: str) -> None:
    with raises_code(error):
        check_metadata(notes)


class Rude:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [Rude(), 10**5000, "x" * 10**6, [[["a"] * 99] * 99] * 99, "a\nb"],
    ids=lambda value: type(value).__name__,
)
def test_whatever_is_refused_is_shown_on_one_short_line(value: Any) -> None:
    shown = shorten_repr(value)

    assert 0 < len(shown) <= MAX_SHOWN
    assert "\n" not in shown
