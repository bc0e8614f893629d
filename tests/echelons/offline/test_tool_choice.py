"""Choosing: a tool is used when the task speaks of it, and acts only when it is told to."""

from typing import Any

import pytest

from echelons.offline.tool_calls import MAX_TOOLS, ToolChoice, ToolSpec, choose_tools
from echelons.offline.turn import TaskBrief, TaskContext

TEXT = {"type": "string"}


def tool(name: str, about: str, *required: str, **properties: Any) -> ToolSpec:
    schema = {"properties": properties, "required": list(required)}
    read = ToolSpec.from_openai({"name": name, "description": about, "parameters": schema})
    assert read is not None
    return read


FOOD = tool("find_food", "Find restaurants and markets", "place", place=TEXT, dish=TEXT)
RESERVE = tool(
    "reserve_table",
    "Ask a human to reserve a table",
    "restaurant",
    restaurant=TEXT,
    when=TEXT,
    people={"type": "integer"},
)
KITCHEN = (FOOD, RESERVE)


def chosen(tools: tuple[ToolSpec, ...], text: str, *, alone: bool = True) -> ToolChoice:
    return choose_tools(tools, TaskContext(TaskBrief.from_text(text)), alone)


def called(tools: tuple[ToolSpec, ...], text: str, *, alone: bool = True) -> list[str]:
    return [name for name, _ in chosen(tools, text, alone=alone).calls]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Find a restaurant in Rome for four people", "find_food"),
        ("Where can we eat in Rome?", "find_food"),
        ("Reserve a table at Roscioli for 4", "reserve_table"),
        ("Book dinner at Roscioli", "reserve_table"),
        ("A table for two at Roscioli, please", "reserve_table"),
        ("Can you get us a table at Roscioli?", "reserve_table"),
        ("Find restaurants in Rome and reserve a table at Roscioli", "reserve_table find_food"),
        ("Is there a table free at Roscioli in Rome?", "find_food"),
        ("Restaurants in Rome, no table needed at Roscioli", "find_food"),
        ("We have reserved a table at Roscioli. Markets in Rome?", "find_food"),
        ("Markets in Rome.\nYour part: markets", "find_food"),
        ("Book a flight to Rome and find markets\nYour part: markets", "find_food"),
    ],
)
def test_a_table_is_reserved_only_when_the_task_says_so(text: str, names: str) -> None:
    assert called(KITCHEN, text) == names.split()


def test_act_without_arguments_asks_for_them() -> None:
    choice = chosen(KITCHEN, "Reserve a table")
    assert (choice.calls, choice.tool, choice.missing) == ((), "reserve_table", ("restaurant",))


def test_words_that_several_tools_share_decide_nothing() -> None:
    tools = (
        tool("flight_status", "Status of a flight", "code", code=TEXT),
        tool("find_flights", "Find a flight", "to", to=TEXT),
    )
    assert called(tools, "a flight to Rome") == ["find_flights"]
    assert called(tools, "Find a flight to Rome") == ["find_flights"]


def test_first_complete_lookup_is_the_fallback() -> None:
    tools = (tool("weather", "Forecasts", "city", city=TEXT), tool("search", "", "q", q=TEXT))
    assert called(tools, "What is up in Rome?") == ["weather"]
    assert called(tools, "What is up?") == ["search"]
    assert called(tools, "What is up?", alone=False) == []
    assert called(tools, "The weather in Rome, please", alone=False) == ["weather"]


def test_an_act_is_never_a_way_out() -> None:
    tools = (tool("send_alarm", "Ring all bells"), tool("open_door", "Unlock the door"))
    assert chosen(tools, "hello") == ToolChoice()


def test_a_verb_that_is_meant_for_others_sets_nothing_off() -> None:
    alarm = (tool("send_alarm", "Ring all bells"),)
    assert called(alarm, "Send the letter", alone=False) == []
    assert called(alarm, "Send an alarm", alone=False) == ["send_alarm"]


def test_incomplete_arguments_ask_for_the_rest() -> None:
    route = (tool("route", "Roads", "from", "to", **{"from": TEXT, "to": TEXT}),)
    assert chosen(route, "Plan something from Rome").missing == ("to",)
    assert chosen(route, "hello") == ToolChoice()


def test_not_all_tools_are_called_at_once() -> None:
    tools = tuple(tool(f"list_{name}", "") for name in ("ants", "bees", "cats", "dogs", "elks"))
    more = (*tools, tool("list_flies", ""), tool("list_gnus", ""))
    assert len(called(more, "ants bees cats dogs elks flies gnus")) == MAX_TOOLS
