"""The effect of a tool is declared on the tool, in any order of decorators."""

from __future__ import annotations

import pytest
from langchain_core.tools import tool

from echelons import effect
from echelons.delegation.effects import (
    EXAMPLE_ANSWERS,
    MAX_ARGUMENT_LENGTH,
    CallState,
    EffectCall,
    EffectKind,
    JournalEntry,
    build_outcome_question,
    get_effect_kind,
    is_outcome_question,
    parse_outcome,
)


def book(city: str) -> str:
    """Book a room."""
    return city


def open_door() -> None:
    """Open the door."""


async def abook(city: str) -> str:
    """Book a room."""
    return city


@pytest.mark.parametrize("made", [book, abook])
def test_a_declaration_holds_above_and_below_the_tool_decorator(made: object) -> None:
    below = tool(effect(idempotent=True)(made))  # type: ignore[call-overload]
    above = effect(reads_only=True)(tool(made))  # type: ignore[call-overload]

    assert get_effect_kind(below) is EffectKind.IDEMPOTENT
    assert get_effect_kind(above) is EffectKind.READS_ONLY


def test_what_is_not_declared_may_happen_once() -> None:
    assert get_effect_kind(len) is EffectKind.ONCE
    assert get_effect_kind(tool(open_door)) is EffectKind.ONCE


def call(**arguments: object) -> EffectCall:
    return EffectCall("thread", "task", "1", "book", "head/scout", arguments, EffectKind.ONCE)


def test_a_question_shows_the_beginning_of_what_is_long_and_counts_what_is_left_out() -> None:
    given = {f"a{number}": number for number in range(30)} | {"a0": "x" * 1000}

    shown = build_outcome_question(call(**given), JournalEntry(CallState.STARTED, "now", 1))[
        "arguments"
    ]

    assert len(shown["a0"]) == MAX_ARGUMENT_LENGTH
    assert shown["…"] == "10 more"


def test_every_answer_that_a_question_shows_is_understood() -> None:
    asked = build_outcome_question(call(city="Rome"), JournalEntry(CallState.STARTED, "now", 1))

    assert is_outcome_question(asked)
    assert [parse_outcome(each) for each in asked["answers"]] == [
        parse_outcome(each) for each in EXAMPLE_ANSWERS
    ]
    assert None not in [parse_outcome(each) for each in EXAMPLE_ANSWERS]


@pytest.mark.parametrize("value", [None, "x", {}, {"kind": "outcome_unknown"}, {"kind": 7}])
def test_another_question_is_not_taken_for_it(value: object) -> None:
    assert not is_outcome_question(value)
