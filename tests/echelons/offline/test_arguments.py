"""Arguments: what a task gives for a tool, and nothing besides."""

from typing import Any

import pytest

from echelons.offline.tool_calls import ToolSpec, fill_arguments
from echelons.offline.turn import TaskBrief, TaskContext
from echelons.offline.words import TokenizedText


def tool(name: str, properties: dict[str, Any], *required: str, about: str = "") -> ToolSpec:
    schema = {"properties": properties, "required": list(required)}
    read = ToolSpec.from_openai({"name": name, "description": about, "parameters": schema})
    assert read is not None
    return read


def given(used: ToolSpec, text: str, *earlier: str) -> dict[str, Any] | None:
    said = TaskContext(TaskBrief.from_text(text), tuple(map(TokenizedText, earlier)))
    filled = fill_arguments(used, said)
    return None if filled.missing else filled.values


TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
FLIGHTS = tool(
    "find_flights",
    {"destination": TEXT, "origin": TEXT, "departure_date": TEXT, "return_date": TEXT},
    "destination",
    about="Find flights to a city",
)
TABLE = tool(
    "reserve_table", {"restaurant": TEXT, "when": TEXT, "people": WHOLE}, "restaurant", "when"
)
STAY = tool(
    "find_hotels", {"city": TEXT, "nights": WHOLE, "breakfast": {"type": "boolean"}}, "city"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I want to fly to Rome from London", {"destination": "Rome", "origin": "London"}),
        ("flights to rome", {"destination": "Rome"}),
        ("Flights to Rome", {"destination": "Rome"}),
        ("Flights from London please", None),
    ],
)
def test_a_journey_has_ends_and_days(text: str, expected: dict[str, Any] | None) -> None:
    assert given(FLIGHTS, text) == expected


def test_a_table_needs_a_house_and_an_hour() -> None:
    text = "Book a table for two at the restaurant Da Enzo tomorrow at 8pm"
    assert given(TABLE, text) == {"restaurant": "Da Enzo", "when": "tomorrow at 8pm", "people": 2}
    filled = fill_arguments(TABLE, TaskContext(TaskBrief("Book a table in Rome tonight")))
    assert filled.missing == ("restaurant",)
    assert "when" in filled.values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hotels in Rome for 3 nights", {"nights": 3}),
        ("hotels in Rome", {}),
    ],
)
def test_optional_arguments_without_value_are_left_out(text: str, expected: dict[str, Any]) -> None:
    assert given(STAY, text) == {"city": "Rome", **expected}


def test_required_place_comes_from_earlier_messages() -> None:
    assert given(STAY, "and hotels there?", "fly to Rome from London") == {"city": "Rome"}
    assert given(STAY, "hotels", "fly to Rome", "fly to Oslo") == {"city": "Rome"}
    assert given(STAY, "hotels in paris", "fly to Rome") == {"city": "Paris"}
    assert given(FLIGHTS, "And from Paris?", "to Rome from London") == {
        "destination": "Rome",
        "origin": "Paris",
    }


def test_superior_passes_earlier_messages_on() -> None:
    assert given(STAY, "and hotels there?\nEarlier: fly to Rome") == {"city": "Rome"}


def test_a_question_gets_the_task_without_the_lines_of_a_superior() -> None:
    search = tool("search", {"question": TEXT}, "question")
    assert given(search, "What grew?\nYour part: grew") == {"question": "What grew?"}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"enum": ["economy", "business class"]}, "in business class", "business class"),
        ({"enum": ["open", "overdue"]}, "the overdue ones", "overdue"),
        ({"enum": ["red", "blue"]}, "no red, blue please", "blue"),
        ({"enum": ["red", "blue"]}, "green", None),
        ({"const": "fixed"}, "whatever", "fixed"),
        ({"type": "string"}, "nothing of the kind", None),
        ({"type": "boolean"}, "nothing of the kind", False),
        ({"type": "null"}, "nothing", None),
        ({"type": "object", "properties": {"city": TEXT}}, "anywhere", None),
    ],
)
def test_values_are_taken_by_the_schema(schema: dict[str, Any], text: str, value: object) -> None:
    used = tool("use", {"grade": schema}, "grade")
    assert given(used, text) == (None if value is None else {"grade": value})


@pytest.mark.parametrize(
    ("name", "description", "text", "value"),
    [
        ("time", "", "tomorrow at 8pm", "8pm"),
        ("hotel", "Name of the hotel in the city", "book Hotel Artemide in Rome", "Hotel Artemide"),
        ("note", "What the human wants to be told", "Rome", None),
    ],
)
def test_parameter_name_decides_where_its_value_is_found(
    name: str, description: str, text: str, value: str | None
) -> None:
    used = tool("use", {name: {"type": "string", "description": description}})
    expected = {} if value is None else {name: value}
    assert given(used, text) == expected


def test_a_tool_without_arguments_can_always_be_called() -> None:
    assert given(tool("now", {}), "anything") == {}
