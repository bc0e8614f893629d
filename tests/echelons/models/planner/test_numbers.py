"""Numbers: which one a parameter means."""

import pytest

from echelons.models.planner.numbers import find_number
from echelons.models.planner.tool_parameters import ToolParameter


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("people", "a table for 2", 2),
        ("people", "for four people at 8pm", 4),
        ("party_size", "for six on 5 May", 6),
        ("guests", "the two of us", 2),
        ("people", "I have 3 questions", None),
        ("nights", "three-night stay for two", 3),
        ("nights", "a week in Rome for two", 7),
        ("days", "2 weeks", 14),
        ("times_a_day", "twice a day", None),
        ("max_price", "a hotel under 200 per night", 200),
        ("budget", "up to €1,500 for 2 people", 1500),
        ("adults", "two adults and three children", 2),
        ("children", "two adults and three children", 3),
        ("limit", "limit 5, please", 5),
        ("people", "in 2026, on 5 May", None),
    ],
)
def test_the_number_beside_the_right_word_is_meant(name: str, text: str, value: int | None) -> None:
    assert find_number(ToolParameter(name, "integer"), text) == value


def test_description_names_what_is_counted() -> None:
    size = ToolParameter("n", "integer", "How many people will come")
    assert find_number(size, "5 nights for 3 people") == 3


def test_a_lone_number_is_meant_where_one_is_needed() -> None:
    assert find_number(ToolParameter("code", "integer", required=True), "open 42") == 42
    assert find_number(ToolParameter("code", "integer"), "open 42") is None
    assert find_number(ToolParameter("code", "integer", required=True), "open 42 or 43") is None
    assert find_number(ToolParameter("code", "integer", required=True), "for 3 people") is None


def test_a_number_out_of_bounds_is_not_given() -> None:
    people = ToolParameter("people", "integer", bounds=(1, 8))
    assert find_number(people, "for 20 people") is None
    assert find_number(people, "for 2.5 people") is None
