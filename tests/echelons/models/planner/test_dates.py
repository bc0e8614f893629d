"""Dates and times as people say them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.models.planner.dates import (
    find_date_range,
    find_moments,
    find_when,
    to_iso_date,
    to_iso_time,
)


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
        ("at noon", "noon"),
        ("we may march on", ""),
        ("room 20 for 2", ""),
        ("1.2.3.4", ""),
    ],
)
def test_it_is_heard_when_something_is_to_be(text: str, when: str) -> None:
    assert find_when(text) == when


def test_a_day_and_an_hour_far_apart_are_put_together() -> None:
    assert find_when("book for tomorrow, a quiet table for two people, at 8pm") == "tomorrow at 8pm"


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("from 3 to 7 May", "3 May", "7 May"),
        ("May 3-7, 2026", "May 3, 2026", "May 7, 2026"),
        ("2026-05-03 until 2026-05-07", "2026-05-03", "2026-05-07"),
        ("from Monday to Thursday", "Monday", "Thursday"),
        ("on Monday", "Monday", ""),
        ("some day", "", ""),
    ],
)
def test_a_span_has_two_edges(text: str, first: str, last: str) -> None:
    assert find_date_range(text) == (first, last)


@pytest.mark.parametrize(
    ("said", "iso"),
    [
        ("5 May 2026", "2026-05-05"),
        ("31.12.2026", "2026-12-31"),
        ("31 February 2026", ""),
        ("Friday", ""),
        ("5 May", ""),
    ],
)
def test_only_a_whole_date_is_written_as_iso(said: str, iso: str) -> None:
    assert to_iso_date(said) == iso


def test_hours_are_written_as_iso() -> None:
    assert [to_iso_time(said) for said in ("12am", "12pm", "8.30 pm", "25:00", "")] == [
        "00:00:00",
        "12:00:00",
        "20:30:00",
        "",
        "",
    ]


@given(st.text(st.sampled_from("0123456789 May:-/.pm,to")) | st.text())
def test_moments_lie_in_the_text_they_are_of(text: str) -> None:
    for moment in find_moments(text):
        assert text[moment.start : moment.end] == moment.text
        to_iso_date(moment.text)
        to_iso_time(moment.text)
