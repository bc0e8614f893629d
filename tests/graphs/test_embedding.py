"""A compiled tree is a node of another graph, which keeps its states and lends it its thread."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from echelons import Agent, ThreadStore
from echelons.testing import Call, ScriptedModel, delegate

TASK: Any = {"messages": [("user", "plan")]}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


def team() -> Agent:
    """Return a tree whose lowest agent asks a human."""
    model = ScriptedModel(
        {
            "head": [delegate("eat", "dinner"), "planned"],
            "eat": [Call("ask", {"question": "Sure?"}), "thanks"],
        }
    )
    return Agent("head", model=model, subordinates=[Agent("eat", tools=[ask])])


def host(tree: Any, saver: Any = None) -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("tree", tree)
    builder.add_edge(START, "tree")
    builder.add_edge("tree", END)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("called", ["as a node", "inside a function"])
async def test_a_tree_inside_another_graph_is_asked_and_answered_through_it(called: str) -> None:
    tree = team().compile()
    node = tree if called == "as a node" else lambda state: tree.invoke(dict(state))
    outer = host(node, InMemorySaver())

    stopped = outer.invoke(TASK, CONFIG)
    result = outer.invoke(Command(resume="yes"), CONFIG)

    assert [each.value for each in stopped["__interrupt__"]] == ["Sure?"]
    assert result["messages"][-1].text == "planned"


def test_the_thread_of_an_embedded_tree_is_its_own() -> None:
    saver = InMemorySaver()
    host(team().compile(), saver).invoke(TASK, CONFIG)

    trace = ThreadStore(saver).trace("t")

    assert trace.agent == "head"
    assert trace.thread_id != "t"
    assert [each.agent for each in trace.walk()] == ["head", "eat"]


def test_two_trees_in_one_graph_have_two_threads() -> None:
    saver = InMemorySaver()
    model = ScriptedModel(["done"])
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    for name in ("north", "south"):
        builder.add_node(name, Agent(name, model=model).compile())
        builder.add_edge(START, name)
    builder.compile(checkpointer=saver).invoke(TASK, CONFIG)

    assert len({call.thread_id for call in model.calls}) == 2


def test_a_tree_that_is_called_twice_on_a_thread_starts_anew_each_time() -> None:
    model = ScriptedModel(lambda messages: f"{len(messages)} messages")
    outer = host(Agent("head", guidance="", model=model).compile(), InMemorySaver())
    outer.invoke(TASK, CONFIG)
    outer.invoke(TASK, CONFIG)

    # The host keeps the conversation and hands it over; the tree has none of its own.
    assert [len(call.messages) for call in model.calls] == [1, 3]
