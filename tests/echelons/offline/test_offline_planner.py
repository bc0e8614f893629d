"""The planner as a chat model: LangChain's contract, and determinism."""

from __future__ import annotations

import json
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.tools import tool
from pydantic import BaseModel

from echelons.offline.planner import OfflinePlanner, build_message
from echelons.tree.members import RosterEntry

TRIP = "Plan a trip to Rome with food for two"

texts = st.text(max_size=60) | st.lists(
    st.sampled_from(
        [
            "trip",
            "food",
            "no",
            "already",
            "hotels",
            "near",
            "Rome",
            "from",
            "to",
            "in",
            "for",
            "two",
            "at",
            "8pm",
            "and",
            ",",
            ".",
            "?",
            "table",
            "reserve",
            "Your",
            "part:",
            "Earlier:",
            "we",
            "have",
            "there",
            "the",
            "my",
            "is",
            "booked",
            "(",
            ")",
            "\n",
        ]
    ),
    max_size=30,
).map(" ".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
names = st.sampled_from(["call_subordinate", "report", "find_food", "x"]) | st.text(max_size=5)


@st.composite
def histories(draw: st.DrawFn) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for i in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["human", "ai", "call", "tool"]))
        if kind == "human":
            messages.append(HumanMessage(draw(texts)))
        elif kind == "ai":
            messages.append(AIMessage(draw(texts)))
        elif kind == "call":
            args = draw(st.dictionaries(st.sampled_from(["message", "subordinate"]), json_values))
            calls = [{"id": str(i), "name": draw(names), "args": args, "type": "tool_call"}]
            messages.append(AIMessage("", tool_calls=calls))
        else:
            status = draw(st.sampled_from(["success", "error"]))
            artifact = draw(st.none() | st.dictionaries(st.just("status"), json_values))
            text = draw(texts)
            messages.append(
                ToolMessage(text, tool_call_id=str(i - 1), status=status, artifact=artifact)
            )
    return messages


tools = st.lists(
    json_values
    | st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "function": st.fixed_dictionaries(
                {"name": names},
                optional={
                    "description": texts,
                    "parameters": st.fixed_dictionaries(
                        {},
                        optional={
                            "properties": st.dictionaries(
                                st.sampled_from(["place", "when", "people", "q", "x_y", ""]),
                                json_values
                                | st.fixed_dictionaries(
                                    {"type": st.sampled_from(["string", "integer", "array"])}
                                ),
                                max_size=4,
                            ),
                            "required": st.lists(st.sampled_from(["place", "when"])),
                        },
                    ),
                },
            ),
        }
    ),
    max_size=4,
)


@pytest.fixture
def bound(delegating: Any, reporting: Any) -> Any:
    """The planner of an agent in the middle of a tree."""
    entries = [
        RosterEntry("hotels", "Beds", {"hotels": 0.9, "trip": 0.5}),
        RosterEntry("food", "Kitchens", {"food": 0.9, "trip": 0.5}),
    ]
    return OfflinePlanner().bind_tools([delegating(entries), reporting])


def test_the_same_conversation_gives_the_same_message(bound: Any) -> None:
    first = bound.invoke([HumanMessage(TRIP, id="1")])
    again = bound.invoke([HumanMessage(TRIP, id="2")])
    assert [call["name"] for call in first.tool_calls] == ["call_subordinate"] * 2
    assert first.tool_calls == again.tool_calls
    assert first.usage_metadata == again.usage_metadata


def test_call_ids_are_unique_and_change_with_the_conversation(bound: Any) -> None:
    first = bound.invoke(TRIP)
    ids = [call["id"] for call in first.tool_calls]
    assert len(set(ids)) == 2
    later = bound.invoke([HumanMessage(TRIP), AIMessage("done"), HumanMessage(TRIP)])
    assert not set(ids) & {call["id"] for call in later.tool_calls}


def test_reply_names_its_agent(bound: Any) -> None:
    for message in (bound.invoke(TRIP), OfflinePlanner().invoke("hello")):
        assert message.response_metadata["model_name"] == "offline planner"
        assert message.response_metadata["model_provider"] == "echelons"


def test_usage_counts_four_characters_as_a_token() -> None:
    message = build_message([HumanMessage("x" * 33)], [])
    usage = message.usage_metadata
    assert usage is not None
    assert usage["input_tokens"] == 10  # "human: " and 33 characters
    assert usage["output_tokens"] == -(-len(message.text) // 4)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def _sum(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    return total


def _same(whole: AIMessage, streamed: AIMessageChunk) -> bool:
    return (
        whole.content == streamed.content
        and whole.tool_calls == streamed.tool_calls
        and whole.usage_metadata == streamed.usage_metadata
        and whole.response_metadata == streamed.response_metadata
    )


@pytest.mark.parametrize("text", [TRIP, "hello  there,\n you", ""])
async def test_a_stream_adds_up_to_the_message(bound: Any, text: str) -> None:
    for model in (bound, OfflinePlanner()):
        whole = model.invoke(text)
        chunks = list(model.stream(text))
        assert _same(whole, _sum(chunks))
        assert _same(whole, _sum([chunk async for chunk in model.astream(text)]))
        assert _same(await model.ainvoke(text), _sum(chunks))


def _plain(place: str) -> str:
    """Find food in a place."""
    return place


class FindFood(BaseModel):
    """Find food in a place."""

    place: str


FORMS = [
    _plain,
    tool(_plain),
    FindFood,
    {"title": "find", "description": "Food", "type": "object", "required": ["place"],
     "properties": {"place": {"type": "string"}}},
    {"name": "find", "description": "Food", "input_schema": FindFood.model_json_schema()},
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("choice", [None, "auto", "any", "none", {"type": "function"}])
def test_tools_in_any_form_are_bound(form: Any, choice: Any) -> None:
    model = OfflinePlanner().bind_tools([form], tool_choice=choice, parallel_tool_calls=True)
    assert model.invoke("food in Rome").tool_calls[0]["args"] == {"place": "Rome"}


def test_structured_output_is_a_tool_like_any_other() -> None:
    model = OfflinePlanner().with_structured_output(FindFood)
    assert model.invoke("food in Rome") == FindFood(place="Rome")


def test_two_threads_of_one_planner_do_not_know_of_each_other(bound: Any) -> None:
    alone = bound.invoke("hotels there?")
    bound.invoke("hotels in Rome")
    assert bound.invoke("hotels there?").tool_calls == alone.tool_calls


def test_no_call_is_repeated_in_a_turn(bound: Any) -> None:
    messages: list[BaseMessage] = [HumanMessage(TRIP)]
    made = bound.invoke(messages)
    messages.append(made)
    messages += [
        ToolMessage("no", tool_call_id=call["id"], status="error") for call in made.tool_calls
    ]
    end = bound.invoke(messages)
    assert [call["name"] for call in end.tool_calls] == ["report"]
    messages += [end, ToolMessage("noted", tool_call_id=end.tool_calls[0]["id"])]
    last = bound.invoke(messages)
    assert last.tool_calls == []
    assert "hotels (no)" in last.text


@given(histories(), tools)
def test_no_conversation_and_no_tool_is_too_odd(
    messages: list[BaseMessage], odd: list[Any]
) -> None:
    first = build_message(messages, odd)
    assert first == build_message(messages, odd)
    ids = [call["id"] for call in first.tool_calls]
    assert len(set(ids)) == len(ids)
    assert bool(first.text) != bool(first.tool_calls)
    json.dumps([call["args"] for call in first.tool_calls])


@given(texts)
def test_only_bound_tools_and_names_on_the_roster_are_called(text: str) -> None:
    roster = "- hotels: Beds. Can: hotels (0.9)\n- food: Eats. Can: food (0.9), table (0.5)"
    whom = {"type": "string", "enum": ["hotels", "food"]}
    schema = {"properties": {"subordinate": whom}}
    function = {"name": "call_subordinate", "description": roster, "parameters": schema}
    made = build_message([HumanMessage(f"{text} food {text}")], [{"function": function}])
    assert {call["name"] for call in made.tool_calls} <= {"call_subordinate"}
    assert {call["args"]["subordinate"] for call in made.tool_calls} <= {"hotels", "food"}


LONG = {
    "one word": "a" * 100_000,
    "few words": "in Rome and " * 8_000,
    "dates": "from May 5 to 7, " * 6_000,
    "refusals": "no hotels, we already have flights, " * 3_000,
    "numbers": "1,000 for 2 at 8 " * 6_000,
    "quotes": '"' * 100_000,
    "spaces": " \n" * 50_000,
    "accents": "e\u0301" * 50_000,
    "many words": " ".join(f"w{i}x" for i in range(15_000)),
}


@pytest.mark.parametrize("kind", LONG)
def test_a_long_task_is_planned_without_a_quadratic_rule(
    kind: str, delegating: Callable[..., Any], function: Callable[..., Any]
) -> None:
    text = {"type": "string", "description": "Such as " + LONG[kind][:2_000]}
    whole = {"type": "integer"}
    reserve = function(
        "reserve_table", LONG[kind], {"place": text, "when": text, "people": whole}, "place", "when"
    )
    team = delegating([RosterEntry("food", LONG[kind][:3_000], {"food": 0.9, "what to eat": 0.9})])
    messages: list[BaseMessage] = [HumanMessage(LONG[kind]), HumanMessage(f"{LONG[kind]} there")]
    build_message([HumanMessage("warm up the stemmer")], [team, reserve])
    began = process_time()
    build_message(messages, [team, reserve])
    assert process_time() - began < 5  # seconds; a quadratic rule takes minutes
