"""``act``: runs one tool call, on LangGraph's ToolNode, with error handling of ours.

Each call arrives in a ``Send`` of its own, so calls run side by side, each is committed
when it ends, and an interrupt in one never runs another again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from echelons.nodes.failures import describe
from echelons.nodes.mending import mended
from echelons.nodes.shell import Shell

PRIVATE = frozenset({"heads", "previous", "request", "response"})
"""Keys of a level's state that are no tool's to write."""


class Act(Shell):
    """The node ``act`` of one level."""

    def __init__(self, tools: Sequence[BaseTool]) -> None:
        super().__init__("act")
        self._tools = ToolNode(list(tools), handle_tool_errors=explain)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the call."""
        return taken(self._tools.invoke(input, config, **kwargs))

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the call."""
        return taken(await self._tools.ainvoke(input, config, **kwargs))


def taken(outcome: Any) -> Any:
    """Return what the level takes of a tool's outcome.

    Its messages, mended, and whatever it updates but the level's private keys.
    """
    if isinstance(outcome, BaseMessage):
        return mended(outcome)
    if isinstance(outcome, Command):
        return replace(outcome, update=taken(outcome.update))
    if isinstance(outcome, Mapping):
        return {key: taken(value) for key, value in outcome.items() if key not in PRIVATE}
    return [taken(each) for each in outcome] if isinstance(outcome, list) else outcome


def explain(error: Exception) -> str:
    """Return what the model is told when a tool fails.

    A ``ToolException`` is written for the model, so its text goes as it is.
    """
    return f"Error: {error if isinstance(error, ToolException) else describe(error)}"
