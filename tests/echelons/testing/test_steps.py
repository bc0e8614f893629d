"""Steps: what a script may hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.testing import Call, Reply, delegate, report
from echelons.testing.steps import as_reply, split_arguments, split_words
from tests.error_codes import raises_code


def test_a_single_call_may_stand_for_a_list_of_one() -> None:
    assert Reply(calls=Call("search")).calls == (Call("search"),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad",
    [
        {"latency": -1.0},
        {"latency": float("nan")},
        {"latency": float("inf")},
        {"calls": ["search"]},
        {"usage": (1,)},
        {"usage": (-1, 2)},
        {"usage": (1.5, 2)},
        {"usage": 3},
    ],
)
def test_a_reply_that_cannot_be_played_is_refused_where_it_is_written(bad: Any) -> None:
    with raises_code("invalid_script", match="a script cannot hold"):
        Reply(**bad)


@pytest.mark.parametrize(
    ("step", "reply"),
    [
        ("hello", Reply("hello")),
        ("", Reply("")),
        (Call("a"), Reply(calls=[Call("a")])),
        ([Call("a"), Call("b")], Reply(calls=[Call("a"), Call("b")])),
        (Reply("x", latency=1), Reply("x", latency=1)),
    ],
)
def test_plain_steps_stand_for_replies(step: object, reply: Reply) -> None:
    assert as_reply(step) == reply


@pytest.mark.parametrize("step", [None, 1, [], ["a"], {"a": 1}])
def test_anything_else_stands_for_no_reply(step: object) -> None:
    assert as_reply(step) is None


def test_a_delegation_without_a_name_leaves_the_choice_to_routing() -> None:
    assert delegate(None, "find food") == Call(
        "call_subordinate", {"message": "find food", "reset": False}
    )


def test_a_delegation_names_its_subordinate_and_whether_it_starts_over() -> None:
    assert delegate("food", "again", reset=True, id="c1") == Call(
        "call_subordinate", {"message": "again", "reset": True, "subordinate": "food"}, "c1"
    )


def test_a_report_carries_whatever_else_the_tool_takes() -> None:
    assert report("partial", "half", confidence=0.4, reason="budget") == Call(
        "report", {"status": "partial", "result": "half", "confidence": 0.4, "reason": "budget"}
    )


@given(st.text())
def test_words_and_arguments_add_up_to_the_text(text: str) -> None:
    assert "".join(split_words(text)) == text
    assert "".join(split_arguments(text)) == text
    assert all(split_words(text))
    assert all(split_arguments(text))
