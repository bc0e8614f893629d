"""What nothing can store or send is mended, and costs no more than itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent, Session
from echelons.checkpoints.storage.serde import AllowlistSerializer
from echelons.testing import Call, ScriptedModel
from echelons.text.error_lines import (
    MAX_SANITIZED_DEPTH,
    MAX_TEXT_LENGTH,
    TOO_DEEP_NOTE,
    sanitize_value,
)

HALVES = st.text(st.sampled_from("a\ud83d\ude00\udc80é"), max_size=5)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | HALVES | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HALVES, inner, max_size=3),
    max_leaves=20,
)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@given(PLAIN)
def test_whatever_is_mended_can_be_stored_and_sent(value: Any) -> None:
    mended = sanitize_value(value)

    tag, stored = AllowlistSerializer().dumps_typed(mended)
    assert repr(AllowlistSerializer().loads_typed((tag, stored))) == repr(mended)
    json.dumps(mended, ensure_ascii=False).encode()


@given(PLAIN)
def test_what_was_mended_once_needs_no_mending(value: Any) -> None:
    assert repr(sanitize_value(sanitize_value(value))) == repr(sanitize_value(value))


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("\ud83d\ude00", "😀"),
        ("a\ud83db", "a\ufffdb"),
        ({"\udfff": 1}, {"\ufffd": 1}),
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (2**64, str(2**64)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (True, True),
        (("a", "b"), ["a", "b"]),
    ],
)
def test_a_value_is_mended_to_this(broken: Any, whole: Any) -> None:
    assert sanitize_value(broken) == whole


def test_a_number_that_python_does_not_write_down_is_written_in_hexadecimal() -> None:
    assert int(sanitize_value(10**5000), 16) == 10**5000


def test_what_stands_too_deep_is_left_out_with_a_note() -> None:
    assert sanitize_value(nested(MAX_SANITIZED_DEPTH)) == nested(MAX_SANITIZED_DEPTH)
    assert TOO_DEEP_NOTE in str(sanitize_value(nested(MAX_SANITIZED_DEPTH + 1)))


def test_the_end_of_a_text_that_is_too_long_is_left_out_with_a_note() -> None:
    assert sanitize_value("x" * MAX_TEXT_LENGTH) == "x" * MAX_TEXT_LENGTH
    assert sanitize_value("x" * (MAX_TEXT_LENGTH + 5)).endswith(
        "x\n[5 characters more were left out]"
    )


@pytest.mark.parametrize("number", [10**30, -(10**30), nested(300)], ids=["big", "small", "deep"])
def test_arguments_that_cannot_be_stored_reach_the_tool_in_a_form_that_can(number: Any) -> None:
    taken: list[Any] = []

    def count(number: object) -> str:
        """Count."""
        taken.append(number)
        return "counted"

    model = ScriptedModel([Call("count", {"number": number}), "done"])
    with Session(Agent("head", model=model, tools=[count]), ":memory:") as session:
        assert session.send("go").result().text == "done"
        stored = session.thread_store.get(session.thread_id).messages[1]

    held = sanitize_value(number, depth=3)  # in the list of calls, the call, and its arguments
    assert taken == [held]
    assert stored.tool_calls[0]["args"] == {"number": held}  # type: ignore[attr-defined]
