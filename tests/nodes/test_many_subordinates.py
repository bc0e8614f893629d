"""Very many subordinates share one node, and each works as if it had its own."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from echelons import Agent, DelegationResponse, ThreadStore
from echelons.nodes.subordinate import MAX_NODES
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import list_notices

CONFIG: Any = {"configurable": {"thread_id": "t"}}
MANY = MAX_NODES + 1


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


def crowd(scripts: dict[str, Any], **own: Any) -> Agent:
    """Return a superior of one subordinate more than get nodes of their own."""
    model = ScriptedModel({"*": lambda _: "nobody asked", **scripts})
    below = [Agent(f"a{n}", **(own if n == 7 else {})) for n in range(MANY)]
    return Agent("head", model=model, subordinates=below)


def answers(messages: list[Any]) -> list[ToolMessage]:
    return [each for each in messages if isinstance(each, ToolMessage)]


def test_the_request_reaches_the_one_that_it_is_for() -> None:
    scripts = {
        "head": [[delegate("a0", "x"), delegate(f"a{MANY - 1}", "y")], "end"],
        "a0": ["first"],
        f"a{MANY - 1}": ["last"],
    }
    graph = crowd(scripts).compile(":memory:")

    messages = graph.invoke({"messages": [("user", "go")]}, CONFIG)["messages"]

    assert [each.text for each in answers(messages)] == ["first", "last"]
    assert [DelegationResponse.load(each.artifact).path.name for each in answers(messages)] == [
        "a0",
        f"a{MANY - 1}",
    ]


async def test_a_question_of_one_in_a_crowd_is_asked_and_answered() -> None:
    scripts = {
        "head": [delegate("a7", "x"), "end"],
        "a7": [Call("ask", {"question": "Sure?"}), "thanks"],
    }
    graph = crowd(scripts, tools=[ask]).compile(":memory:")

    stopped = await graph.ainvoke({"messages": [("user", "go")]}, CONFIG)
    result = await graph.ainvoke(Command(resume="yes"), CONFIG)

    assert [each.value for each in stopped["__interrupt__"]] == ["Sure?"]
    assert [each.text for each in answers(result["messages"])] == ["thanks"]
    assert list_notices(result["messages"]) == [
        ['a7 asked the user: "Sure?" The answer was: "yes"']
    ]


def test_its_thread_is_its_own() -> None:
    scripts = {"head": [delegate("a7", "one"), delegate("a7", "two"), "end"], "a7": ["done"]}
    graph = crowd(scripts).compile(":memory:")
    graph.invoke({"messages": [("user", "go")]}, CONFIG)
    store = ThreadStore(graph.checkpointer)  # type: ignore[arg-type]

    [thread_id] = store.subordinates("t")

    assert store.get(thread_id).path == "head/a7"
    assert store.get(thread_id).segments == 2


@pytest.mark.parametrize(("count", "nodes"), [(2, {"a0", "a1"}), (MANY, {"dispatch"})])
def test_a_node_for_each_up_to_a_number_and_one_for_all_above(count: int, nodes: set[str]) -> None:
    below = [Agent(f"a{n}") for n in range(count)]
    graph = Agent("head", model=ScriptedModel(["end"]), subordinates=below).compile()

    delegation: Any = dict(graph.get_subgraphs())["delegate"]

    assert set(delegation.nodes) - {"__start__", "refuse"} == nodes
