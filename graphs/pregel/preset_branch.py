"""Where a node goes on to, when it has said so itself.

LangGraph asks a conditional edge after each run of its node, and makes a copy of every channel
first, a whole conversation among them, so that the edge sees what the node has written. A node
that knows the way gives its update as ``Decided``, and no copy is made. The edge stays: it is
what LangGraph draws, and what it asks when somebody has changed a state by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import StateGraph
from langgraph.graph._branch import BranchSpec

from echelons.nodes.base_node import Decided


class Foreseen(BranchSpec):
    """A conditional edge that is asked only when its node has not said where it goes on to."""

    def _route(
        self,
        input: Any,
        config: RunnableConfig,
        *,
        reader: Callable[[RunnableConfig], Any] | None,
        writer: Callable[..., Any],
    ) -> Runnable[Any, Any]:
        if isinstance(input, Decided):
            return self._finish(writer, input, input.goes, config)
        return super()._route(input, config, reader=reader, writer=writer)

    async def _aroute(
        self,
        input: Any,
        config: RunnableConfig,
        *,
        reader: Callable[[RunnableConfig], Any] | None,
        writer: Callable[..., Any],
    ) -> Runnable[Any, Any]:
        if isinstance(input, Decided):
            return self._finish(writer, input, input.goes, config)
        return await super()._aroute(input, config, reader=reader, writer=writer)


def add_foreseen_edges(
    builder: StateGraph[Any, Any, Any, Any], node: str, edge: Runnable[Any, Any], ends: list[str]
) -> None:
    """Do what ``add_conditional_edges`` does, for a node that may say itself where it goes."""
    builder.add_conditional_edges(node, edge, ends)
    branches = builder.branches[node]
    for name, branch in branches.items():
        branches[name] = Foreseen(*branch)
