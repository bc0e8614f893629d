"""What a tool does in the world is declared on the tool, in whichever order."""

from __future__ import annotations

import pytest
from langchain_core.tools import tool

from echelons import effect
from echelons.effects.journal import Call, Entry, Nature, State, nature_of
from echelons.effects.unknown_outcome import ANSWERS, LONGEST, is_unknown, outcome_of, question


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

    assert nature_of(below) is Nature.IDEMPOTENT
    assert nature_of(above) is Nature.READS_ONLY


def test_what_is_not_declared_may_happen_once() -> None:
    assert nature_of(len) is Nature.ONCE
    assert nature_of(tool(open_door)) is Nature.ONCE


def call(**arguments: object) -> Call:
    return Call("thread", "task", "1", "book", "head/scout", arguments, Nature.ONCE)


def test_a_question_shows_the_beginning_of_what_is_long_and_counts_what_is_left_out() -> None:
    given = {f"a{number}": number for number in range(30)} | {"a0": "x" * 1000}

    shown = question(call(**given), Entry(State.STARTED, "now", 1))["arguments"]

    assert len(shown["a0"]) == LONGEST
    assert shown["…"] == "10 more"


def test_every_answer_that_a_question_shows_is_understood() -> None:
    asked = question(call(city="Rome"), Entry(State.STARTED, "now", 1))

    assert is_unknown(asked)
    assert [outcome_of(each) for each in asked["answers"]] == [outcome_of(each) for each in ANSWERS]
    assert None not in [outcome_of(each) for each in ANSWERS]


@pytest.mark.parametrize("value", [None, "x", {}, {"kind": "outcome_unknown"}, {"kind": 7}])
def test_another_question_is_not_taken_for_it(value: object) -> None:
    assert not is_unknown(value)
