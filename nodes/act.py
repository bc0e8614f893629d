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

from echelons.effects.journal import EffectCall, EffectKind, Journal, get_effect_kind
from echelons.guards.gate import Halt, Pause, Step, get_gate
from echelons.nodes.base_node import Node
from echelons.nodes.messages import sanitize_message
from echelons.nodes.planning.early_end import build_not_run_message
from echelons.nodes.tool_execution.at_most_once import (
    AtMostOnce,
    JournaledCall,
    LateCallback,
    Refusal,
    build_journal_call,
)
from echelons.nodes.tool_execution.detached_call import DetachedCall, runs_in_thread
from echelons.text.error_lines import describe_error

PRIVATE_KEYS = frozenset({"forward", "heads", "previous", "request", "response"})
"""Keys of a level's state that a tool must not write."""
DETACHED_CALL_KEY = "__echelons_latecomer"
"""Key of the config under which a call's detached thread is passed to the tool wrapper."""
NOT_HAPPENED_TEXT = "Error: the call was cut short and did not happen; it was not tried again."


class Act(Node):
    """The node `act` of one level."""

    def __init__(self, tools: Sequence[BaseTool], journal: Journal) -> None:
        super().__init__("act")
        self._tools = ToolNode(
            list(tools), handle_tool_errors=format_tool_error, awrap_tool_call=_run_detached
        )
        self._effect_kinds = {each.name: get_effect_kind(each) for each in tools}
        self._threaded_tools = {each.name for each in tools if runs_in_thread(each)}
        self._at_most_once = AtMostOnce(journal)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the call, or return its recorded result if it has run before."""
        given = config or {}
        bar = _build_refusal(get_gate(given).enter(Step.TOOL, given), input)
        return self._at_most_once.execute(self._build_call(input, given, kwargs), given, bar)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        given = config or {}
        gate = get_gate(given)
        bar = _build_refusal(await gate.arun(lambda: gate.enter(Step.TOOL, given)), input)
        return await self._at_most_once.aexecute(self._build_call(input, given, kwargs), given, bar)

    def _build_call(
        self, input: Any, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> JournaledCall:
        [given] = input
        nature = self._effect_kinds.get(given["name"], EffectKind.ONCE)
        call = build_journal_call(config, given["id"] or "", given["name"], given["args"], nature)
        return _JournaledToolCall(
            call, self._tools, given, kwargs, given["name"] in self._threaded_tools
        )


def _build_refusal(verdict: Halt | Pause | None, calls: Sequence[Any]) -> Refusal | None:
    if not isinstance(verdict, Halt):
        return None
    halt = verdict

    def build_update(begun: bool) -> Any:
        return _build_output_update([build_not_run_message(call, halt, begun) for call in calls])

    return Refusal(halt, build_update)


class _JournaledToolCall(JournaledCall):
    """A call of a tool."""

    def __init__(
        self,
        call: EffectCall,
        tools: ToolNode,
        given: Any,
        kwargs: Mapping[str, Any],
        threaded: bool,
    ) -> None:
        super().__init__(call)
        self._tools = tools
        self._tool_call = given
        self._kwargs = kwargs
        self._threaded = threaded

    def invoke(self, config: RunnableConfig) -> Any:
        return sanitize_output(self._tools.invoke([self._tool_call], config, **self._kwargs))

    async def ainvoke(self, config: RunnableConfig, on_late_result: LateCallback) -> Any:
        if not self._threaded:
            return sanitize_output(
                await self._tools.ainvoke([self._tool_call], config, **self._kwargs)
            )
        comer = DetachedCall(lambda came: on_late_result(self._convert_late_result(came)))
        own = {**config["configurable"], DETACHED_CALL_KEY: comer}
        around: RunnableConfig = {**config, "configurable": own}
        try:
            return sanitize_output(
                await self._tools.ainvoke([self._tool_call], around, **self._kwargs)
            )
        except CancelledError:
            comer.detach()
            raise

    def build_reported_result(self, result: str) -> Any:
        return sanitize_output(_build_output_update([self._build_message(result, "success")]))

    def build_not_happened_result(self) -> Any:
        return _build_output_update([self._build_message(NOT_HAPPENED_TEXT, "error")])

    def _convert_late_result(self, result: Any) -> Any:
        """Return a detached tool thread's result in the form in which the node returns results."""
        if isinstance(result, GraphBubbleUp):
            return result
        if isinstance(result, Exception):
            result = self._build_message(format_tool_error(result), "error")
        return sanitize_output(
            _build_output_update(result if isinstance(result, list) else [result])
        )

    def _build_message(self, text: str, status: Any) -> ToolMessage:
        given = self._tool_call
        return ToolMessage(text, tool_call_id=given["id"], name=given["name"], status=status)


@dataclass(frozen=True, slots=True)
class _DetachedTool:
    """Stands in for a tool without an async form: runs it in a thread that may outlive the task."""

    tool: BaseTool
    call: DetachedCall

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None) -> Any:
        return await self.call.ainvoke(self.tool, input, config)


async def _run_detached(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
) -> Any:
    comer = request.runtime.config["configurable"].get(DETACHED_CALL_KEY)
    if comer is None or request.tool is None:
        return await execute(request)
    tool: Any = _DetachedTool(request.tool, comer)
    return await execute(request.override(tool=tool))


def _build_output_update(outputs: list[Any]) -> Any:
    """Return a call's outputs as the update that `ToolNode` makes of them."""
    if any(isinstance(each, Command) for each in outputs):
        return [each if isinstance(each, Command) else {"messages": [each]} for each in outputs]
    return {"messages": outputs}


def sanitize_output(outcome: Any) -> Any:
    """Return a tool's output with sanitized messages and without the level's private keys."""
    if isinstance(outcome, BaseMessage):
        return sanitize_message(outcome)
    if isinstance(outcome, Command):
        return replace(outcome, update=sanitize_output(outcome.update))
    if isinstance(outcome, Mapping):
        return {
            key: sanitize_output(value) for key, value in outcome.items() if key not in PRIVATE_KEYS
        }
    return [sanitize_output(each) for each in outcome] if isinstance(outcome, list) else outcome


def format_tool_error(error: Exception) -> str:
    """Return the message shown to the model when a tool fails.

    The text of a `ToolException` is written for the model, so it is not changed.
    """
    return f"Error: {error if isinstance(error, ToolException) else describe_error(error)}"
