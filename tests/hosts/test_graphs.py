"""Agents of LangChain and graphs of LangGraph, around our trees and inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from tests.hosts.checks import (
    ANSWERED,
    GIVEN,
    LIKE_AN_AGENT,
    check_guest,
    check_host,
    check_two_calls,
)
from tests.hosts.graphs import graph_with_two_calls
from tests.hosts.process import THREAD
from tests.hosts.trees import build_tree

if TYPE_CHECKING:
    from tests.hosts.conftest import Visit

APPROVED = {"decisions": [{"type": "approve"}]}


@pytest.mark.parametrize("host", ["agent_with_tool", "graph_with_tool_node"])
def test_a_tool_asks_its_host_from_the_third_level_and_goes_on_in_another_process(
    visit: Visit, host: str
) -> None:
    last = check_host(visit, f"tests.hosts.graphs:{host}")

    assert last["tools"] == [["travel", ANSWERED]]


def test_a_node_asks_its_host_from_the_third_level_and_goes_on_in_another_process(
    visit: Visit,
) -> None:
    last = check_host(visit, "tests.hosts.graphs:graph_with_node", asked="Breakfast? Rome")

    assert last["said"][-2] == ANSWERED


def test_two_calls_of_one_message_ask_at_once(visit: Visit) -> None:
    check_two_calls(visit, "tests.hosts.graphs:agent_with_two_calls")


def test_a_host_asks_before_the_call_and_the_tree_after_it(visit: Visit) -> None:
    host = "tests.hosts.graphs:agent_with_approval"
    [held] = visit(host=host)["questions"]

    [(question, text)] = visit({held: APPROVED}, host=host)["questions"].items()
    last = visit({question: "yes"}, host=host)

    assert text == GIVEN
    assert last["tools"] == [["travel", ANSWERED]]


def test_an_agent_inside_a_tree_inside_an_agent_asks_the_outer_one(visit: Visit) -> None:
    host = "tests.hosts.graphs:agent_around_agent"
    [(question, text)] = visit(host=host)["questions"].items()

    last = visit({question: "yes"}, host=host)

    assert text == "Breakfast? Rome"
    assert last["tools"] == [["head", '{"name": "Ibis, breakfast: yes"}']]


@pytest.mark.parametrize("guest", ["agent", "typed_agent"])
def test_an_agent_on_the_third_level_asks_and_goes_on_in_another_process(
    visit: Visit, guest: str
) -> None:
    last = check_guest(visit, f"tests.hosts.graphs:{guest}")

    assert last["said"] == '{"name": "Ibis, breakfast: yes"}'
    assert last["streamed"] >= LIKE_AN_AGENT


def test_a_graph_on_the_third_level_reads_its_input_asks_and_goes_on_in_another_process(
    visit: Visit,
) -> None:
    last = check_guest(visit, "tests.hosts.graphs:graph", asked="Breakfast? Rome, 2 nights")

    assert last["said"] == '{"name": "Ibis, yes"}'
    assert last["streamed"] >= {"task", "message", "question", "answer", "response"}


def test_two_calls_in_one_task_ask_one_after_the_other(visit: Visit) -> None:
    host = "tests.hosts.graphs:graph_with_two_calls"
    asked = []
    answers = None
    # A ToolNode of a plain graph passes on the first of its calls that asks.
    for answer in ("yes", "no"):
        [(question, text)] = visit(answers, host=host)["questions"].items()
        asked.append(text)
        answers = {question: answer}

    last = visit(answers, host=host)

    assert asked == [GIVEN, 'Breakfast? {"city": "Bari", "nights": 1}']
    assert last["tools"] == [["travel", ANSWERED], ["travel", '{"name":"Ibis, breakfast: no"}']]


def test_calls_in_one_task_are_threads_of_their_own() -> None:
    saver = InMemorySaver()
    host = graph_with_two_calls(saver)
    state = host.invoke({"messages": [("user", "Rome")]}, THREAD)
    # Where the first call asks early enough, the second one has not begun before the answer.
    for _ in range(2):
        [asked] = state["__interrupt__"]
        state = host.invoke(Command(resume={asked.id: "yes"}), THREAD)
    rows = [row.metadata for row in saver.list(THREAD)]

    threads = {str(row.get("agent_thread_id")) for row in rows if row.get("agent") == "travel"}
    assert len(threads) == 2


def test_calls_that_begin_in_another_order_when_they_go_on_keep_their_trees() -> None:
    """In a ToolNode they run side by side, so any of them may be the first."""
    calls: list[Any] = [
        {"name": "travel", "args": {"city": city}, "id": city, "type": "tool_call"}
        for city in ("Rome", "Bari")
    ]

    def host(order: list[Any], saver: Any) -> Any:
        tool = build_tree().as_tool()

        def call(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            return {"messages": [tool.invoke(each, config) for each in order]}

        builder = StateGraph(MessagesState)
        builder.add_node("tools", call)
        builder.add_edge(START, "tools")
        return builder.compile(checkpointer=saver)

    saver = InMemorySaver()
    asked = host(calls, saver).invoke({"messages": [("user", "Rome")]}, THREAD)
    [rome] = asked["__interrupt__"]
    turned = host(calls[::-1], saver)
    [bari] = turned.invoke(Command(resume={rome.id: "yes"}), THREAD)["__interrupt__"]
    state = turned.invoke(Command(resume={bari.id: "no", rome.id: "yes"}), THREAD)
    # No tree has taken up the other's: each was asked, and has the answer that it was given.
    told = {each.tool_call_id: each.text for each in state["messages"] if each.type == "tool"}
    assert "Bari" in bari.value["question"]
    assert told == {"Rome": ANSWERED, "Bari": '{"name":"Ibis, breakfast: no"}'}
