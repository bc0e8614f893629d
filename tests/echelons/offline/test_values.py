"""Dates, times and numbers as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.offline.tool_calls import ToolParameter
from echelons.offline.values import find_moments, find_number, find_when


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("a table tomorrow at 8pm for two", "tomorrow at 8pm"),
        ("at 8pm, tomorrow", "8pm, tomorrow"),
        ("tonight", "tonight"),
        ("on Friday 5 May 2026 at 20:30", "Friday 5 May 2026 at 20:30"),
        ("May 5th", "May 5th"),
        ("in May", "May"),
        ("next weekend", "next weekend"),
        ("for two at 8 please", "8"),
        ("the day after tomorrow in the evening", "the day after tomorrow in the evening"),
        ("book for tomorrow, a quiet table for two people, at 8pm", "tomorrow at 8pm"),
        ("at noon", "noon"),
        ("we may march on", ""),
        ("room 20 for 2", ""),
        ("1.2.3.4", ""),
    ],
)
def test_a_day_and_an_hour_are_found(text: str, when: str) -> None:
    assert find_when(text) == when


@given(st.text(st.sampled_from("0123456789 May:-/.pm,to")) | st.text())
def test_moments_lie_in_their_text(text: str) -> None:
    for moment in find_moments(text):
        assert text[moment.start : moment.end] == moment.text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("people", "a table for 2", 2),
        ("people", "for four people at 8pm", 4),
        ("guests", "for six on 5 May", 6),
        ("people", "I have 3 questions", None),
        ("nights", "three-night stay for two", 3),
        ("people", "for 3 nights", None),
        ("adults", "two adults and three children", 2),
        ("children", "two adults and three children", 3),
        ("people", "in 2026, on 5 May", None),
    ],
)
def test_a_number_is_taken_by_the_word_after_it(name: str, text: str, value: int | None) -> None:
    assert find_number(ToolParameter(name, "integer").stems, text) == value
