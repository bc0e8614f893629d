"""The usage of a run has every model call once, however many graphs its reply passes through."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.delegation import Usage
from echelons.testing import Call, Reply, ScriptedModel, delegate

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

FOUND, READ, WRITTEN = (Usage(input_tokens=n, output_tokens=1, model_calls=1) for n in (1, 10, 100))
HEAD = Usage(input_tokens=1000, output_tokens=1, model_calls=1)


def build_library(asks: bool = False) -> Any:
    """Return a foreign graph of three model calls, the first in a graph of its own."""
    model = ScriptedModel([Reply(f"after {n}", usage=(n, 1)) for n in (1, 10, 100)] * 2)

    def reply(state: MessagesState) -> dict[str, Any]:
        return {"messages": model.invoke(state["messages"])}

    def reply_with_all(state: MessagesState) -> dict[str, Any]:
        return {"messages": [*state["messages"], model.invoke(state["messages"])]}

    def check(state: MessagesState) -> dict[str, Any]:
        if asks:
            interrupt("Is that all?")
        return {}

    shelf = StateGraph(MessagesState)
    shelf.add_node("find", reply)
    shelf.add_edge(START, "find")
    library = StateGraph(MessagesState)
    library.add_node("shelf", shelf.compile())
    library.add_node("read", reply)
    library.add_node("write", reply_with_all)
    library.add_node("check", check)
    for one, two in pairwise((START, "shelf", "read", "write", "check", END)):
        library.add_edge(one, two)
    return library.compile(name="library")


def build_team(shape: str) -> Agent:
    """Return a root that asks a graph: as its subordinate, or in a function or a tool."""
    graph = build_library()

    def library(task: str) -> Any:
        """Look something up."""
        return graph.invoke({"messages": [("user", task)]})["messages"][-1]

    call = Call("library", {"task": "look"}) if shape == "tool" else delegate("library", "look")
    model = ScriptedModel([Reply("", [call], usage=(1000, 1)), Reply("over", usage=(1000, 1))] * 2)
    if shape == "tool":
        return Agent("head", model=model, tools=[tool(library)])
    below = graph if shape == "graph" else library
    return Agent("head", model=model, subordinates=[below])


@pytest.mark.parametrize("shape", ["graph", "function", "tool"])
def test_each_reply_within_a_graph_is_counted_once(
    world: World, saver: SqliteCheckpointer, shape: str
) -> None:
    once = sum((HEAD, FOUND, READ, WRITTEN, HEAD), Usage())
    result_alone = Session(build_team(shape), saver, thread="result")
    watched = Session(build_team(shape), saver, thread="events")

    for _ in range(2):
        assert world.send(result_alone, "go").usage == once
        events = [*watched.send("go")]
        assert sum((each.usage for each in events if each.kind == "message"), Usage()) == once


def test_a_graph_that_goes_on_counts_no_reply_of_the_run_before(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [
        Reply("", [delegate("library", "look")], usage=(1000, 1)),
        Reply("over", usage=(1000, 1)),
    ]
    root = Agent("head", model=ScriptedModel(calls), subordinates=[build_library(asks=True)])
    session = Session(root, saver)

    first = world.send(session, "go")
    second = world.answer(session, {first.questions[0].id: "yes"})

    assert first.usage == sum((HEAD, FOUND, READ, WRITTEN), Usage())
    assert second.usage == HEAD
