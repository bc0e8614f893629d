"""A Shell is a node in both worlds, shows what it runs, and is nothing but itself."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from echelons.nodes.base_node import Node


class State(TypedDict, total=False):
    """Which body has run."""

    ran: str


class Worlds(Node):
    """Tells in which world it runs."""

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return {"ran": "here"}

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return {"ran": "in the loop"}


def graph_of(node: Node) -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(name="small")


async def test_each_world_has_its_own_body() -> None:
    graph = graph_of(Worlds("node"))

    assert graph.invoke({}) == {"ran": "here"}
    assert await graph.ainvoke({}) == {"ran": "in the loop"}


def test_a_shell_without_a_body_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Node("node")  # type: ignore[abstract]


def test_the_graphs_that_a_shell_runs_are_found_by_inspection() -> None:
    below = graph_of(Worlds("inner"))

    outer = graph_of(Worlds("outer", subgraphs=[below]))

    assert dict(outer.get_subgraphs()) == {"node": below}
    assert Worlds("outer").deps == []


def test_a_shell_is_equal_to_itself_only() -> None:
    one, other = Worlds("node"), Worlds("node")

    assert one == one
    assert one != other
    assert len({one, other, one}) == 2
    assert one != RunnableLambda(lambda x: x)


def test_a_shell_shows_its_kind_and_name() -> None:
    assert repr(Worlds("node")) == "Worlds('node')"
    assert Worlds("node").get_name() == "node"
