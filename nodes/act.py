"""`act`: runs one tool call on LangGraph's `ToolNode`, with our own error handling.

Each call arrives in its own `Send`: calls run in parallel, each is committed when it ends,
and an interrupt in one never runs another again. Each call is recorded in a journal.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from echelons.effects.journal import Call, Journal, Nature, nature_of
from echelons.guards.gate import Halt, Pause, Step, gate_of
from echelons.nodes.base_node import Shell
from echelons.nodes.messages import mended
from echelons.nodes.planning.early_end import not_run
from echelons.nodes.tool_execution.at_most_once import Bar, Late, Once, Work, call_of
from echelons.nodes.tool_execution.detached_call import Latecomer, runs_in_a_thread
from echelons.text.error_lines import describe_error

PRIVATE = frozenset({"forward", "heads", "previous", "request", "response"})
"""Keys of a level's state that a tool must not write."""
LATECOMER_KEY = "__echelons_latecomer"
"""Key of the config under which a call's detached thread is passed to the tool wrapper."""
NOT_HAPPENED = "Error: the call was cut short and did not happen; it was not tried again."


class Act(Shell):
    """The node `act` of one level."""

    def __init__(self, tools: Sequence[BaseTool], journal: Journal) -> None:
        super().__init__("act")
        self._tools = ToolNode(list(tools), handle_tool_errors=explain, awrap_tool_call=_threaded)
        self._natures = {each.name: nature_of(each) for each in tools}
        self._threaded = {each.name for each in tools if runs_in_a_thread(each)}
        self._once = Once(journal)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the call, or return its recorded result if it has run before."""
        given = config or {}
        bar = _bar(gate_of(given).enter(Step.TOOL, given), input)
        return self._once.carry_out(self._work(input, given, kwargs), given, bar)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        given = config or {}
        gate = gate_of(given)
        bar = _bar(await gate.arun(lambda: gate.enter(Step.TOOL, given)), input)
        return await self._once.acarry_out(self._work(input, given, kwargs), given, bar)

    def _work(self, input: Any, config: RunnableConfig, kwargs: Mapping[str, Any]) -> Work:
        [given] = input
        nature = self._natures.get(given["name"], Nature.ONCE)
        call = call_of(config, given["id"] or "", given["name"], given["args"], nature)
        return _ToolWork(call, self._tools, given, kwargs, given["name"] in self._threaded)


def _bar(verdict: Halt | Pause | None, calls: Sequence[Any]) -> Bar | None:
    if not isinstance(verdict, Halt):
        return None
    halt = verdict

    def answer(begun: bool) -> Any:
        return _update([not_run(call, halt, begun) for call in calls])

    return Bar(halt, answer)


class _ToolWork(Work):
    """A call of a tool."""

    def __init__(
        self, call: Call, tools: ToolNode, given: Any, kwargs: Mapping[str, Any], threaded: bool
    ) -> None:
        super().__init__(call)
        self._tools = tools
        self._given = given
        self._kwargs = kwargs
        self._threaded = threaded

    def invoke(self, config: RunnableConfig) -> Any:
        return taken(self._tools.invoke([self._given], config, **self._kwargs))

    async def ainvoke(self, config: RunnableConfig, late: Late) -> Any:
        if not self._threaded:
            return taken(await self._tools.ainvoke([self._given], config, **self._kwargs))
        comer = Latecomer(lambda came: late(self._outcome(came)))
        own = {**config["configurable"], LATECOMER_KEY: comer}
        around: RunnableConfig = {**config, "configurable": own}
        try:
            return taken(await self._tools.ainvoke([self._given], around, **self._kwargs))
        except CancelledError:
            comer.leave()
            raise

    def happened(self, result: str) -> Any:
        return taken(_update([self._message(result, "success")]))

    def not_happened(self) -> Any:
        return _update([self._message(NOT_HAPPENED, "error")])

    def _outcome(self, came: Any) -> Any:
        """Return a detached tool thread's result in the form in which the node returns results."""
        if isinstance(came, GraphBubbleUp):
            return came
        if isinstance(came, Exception):
            came = self._message(explain(came), "error")
        return taken(_update(came if isinstance(came, list) else [came]))

    def _message(self, text: str, status: Any) -> ToolMessage:
        given = self._given
        return ToolMessage(text, tool_call_id=given["id"], name=given["name"], status=status)


@dataclass(frozen=True, slots=True)
class _InThread:
    """Stands in for a tool without an async form: runs it in a thread that may outlive the task."""

    tool: BaseTool
    comer: Latecomer

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None) -> Any:
        return await self.comer.ainvoke(self.tool, input, config)


async def _threaded(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
) -> Any:
    comer = request.runtime.config["configurable"].get(LATECOMER_KEY)
    if comer is None or request.tool is None:
        return await execute(request)
    tool: Any = _InThread(request.tool, comer)
    return await execute(request.override(tool=tool))


def _update(outputs: list[Any]) -> Any:
    """Return a call's outputs as the update that `ToolNode` makes of them."""
    if any(isinstance(each, Command) for each in outputs):
        return [each if isinstance(each, Command) else {"messages": [each]} for each in outputs]
    return {"messages": outputs}


def taken(outcome: Any) -> Any:
    """Return a tool's output with sanitized messages and without the level's private keys."""
    if isinstance(outcome, BaseMessage):
        return mended(outcome)
    if isinstance(outcome, Command):
        return replace(outcome, update=taken(outcome.update))
    if isinstance(outcome, Mapping):
        return {key: taken(value) for key, value in outcome.items() if key not in PRIVATE}
    return [taken(each) for each in outcome] if isinstance(outcome, list) else outcome


def explain(error: Exception) -> str:
    """Return the message shown to the model when a tool fails.

    The text of a `ToolException` is written for the model, so it is not changed.
    """
    return f"Error: {error if isinstance(error, ToolException) else describe_error(error)}"
