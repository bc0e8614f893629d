"""A tool call as it runs on LangGraph's `ToolNode`, and the updates that stand for its result.

In an event loop a tool without an async form runs in a thread, which may outlive its task.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolInvocationError
from langgraph.types import Command

from echelons.effects.journal import EffectCall, EffectKind
from echelons.nodes.messages import sanitize_message
from echelons.nodes.planning.refused_calls import mark_refused
from echelons.nodes.tool_execution.detached_call import DetachedCall, LateCallback
from echelons.text.error_lines import describe_error

PRIVATE_KEYS = frozenset({"forward", "heads", "previous", "request", "response"})
"""Keys of a level's state that a tool must not write."""
DETACHED_CALL_KEY = "__echelons_latecomer"
"""Key of the config under which a call's detached thread is passed to the tool wrapper."""
INVALID_CALL_TEXT = "Error: not run: "
"""Start of the answer to a call whose arguments do not fit the tool's schema."""
NOT_HAPPENED_TEXT = "Error: the call was cut short and did not happen; it was not tried again."


@dataclass(frozen=True, slots=True)
class JournaledCall:
    """A tool call that is recorded in the journal.

    Attributes:
        call: Its description in the journal.
        tools: The node that runs it.
        tool_call: The call in the model's message.
        kwargs: Further arguments of LangGraph.
        is_threaded: Whether the tool runs in a thread in an event loop.
    """

    call: EffectCall
    tools: ToolNode
    tool_call: Any
    kwargs: Mapping[str, Any]
    is_threaded: bool

    def invoke(self, config: RunnableConfig) -> Any:
        """Execute the call and return the node's update."""
        return sanitize_output(self.tools.invoke([self.tool_call], config, **self.kwargs))

    async def ainvoke(self, config: RunnableConfig, on_late_result: LateCallback) -> Any:
        """Async version of `invoke`."""
        if not self.is_threaded:
            return sanitize_output(
                await self.tools.ainvoke([self.tool_call], config, **self.kwargs)
            )
        # The call may be cancelled and go on in its thread, whose result comes late.
        detached = DetachedCall(lambda late: on_late_result(self._convert_late_result(late)))
        configurable = {**config["configurable"], DETACHED_CALL_KEY: detached}
        own: RunnableConfig = {**config, "configurable": configurable}
        try:
            return sanitize_output(await self.tools.ainvoke([self.tool_call], own, **self.kwargs))
        except CancelledError:
            detached.detach()
            raise

    def build_reported_result(self, result: str) -> Any:
        """Return the update of a call that happened, with the result that a human states."""
        return sanitize_output({"messages": [self._build_message(result, "success")]})

    def build_not_happened_result(self) -> Any:
        """Return the update of a call that a human says did not happen."""
        return {"messages": [self._build_message(NOT_HAPPENED_TEXT, "error")]}

    def _convert_late_result(self, result: Any) -> Any:
        """Return a detached tool thread's result in the form in which the node returns results."""
        if isinstance(result, GraphBubbleUp):
            return result
        if isinstance(result, Exception):
            result = self._build_message(format_tool_error(result), "error")
        outputs = result if isinstance(result, list) else [result]
        # As `ToolNode` does.
        if any(isinstance(each, Command) for each in outputs):
            return sanitize_output(
                [each if isinstance(each, Command) else {"messages": [each]} for each in outputs]
            )
        return sanitize_output({"messages": outputs})

    def _build_message(self, text: str, status: Any) -> ToolMessage:
        given = self.tool_call
        return ToolMessage(text, tool_call_id=given["id"], name=given["name"], status=status)


def build_journal_call(
    config: Mapping[str, Any],
    call_id: str,
    tool: str,
    arguments: Mapping[str, Any],
    nature: EffectKind,
) -> EffectCall:
    """Return the journal's description of the call that a LangGraph task executes."""
    given, metadata = config["configurable"], config.get("metadata") or {}
    # The namespace of a task ends with its node and its id.
    task_id = str(given.get("checkpoint_ns", "")).rpartition(":")[2]
    path = str(metadata.get("agent_path", ""))
    thread_id = str(given.get("thread_id", ""))
    request_id = str(metadata.get("request_id", ""))
    return EffectCall(thread_id, task_id, call_id, tool, path, arguments, nature, request_id)


@dataclass(frozen=True, slots=True)
class _DetachedTool:
    """Stands in for a tool without an async form: runs it in a thread that may outlive the task."""

    tool: BaseTool
    call: DetachedCall

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None) -> Any:
        return await self.call.ainvoke(self.tool, input, config)


async def run_detached(
    request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]
) -> Any:
    """Run a call, in a thread that may outlive its task if its config says so."""
    detached = request.runtime.config["configurable"].get(DETACHED_CALL_KEY)
    if detached is None or request.tool is None:
        return await execute(request)
    tool: Any = _DetachedTool(request.tool, detached)
    return await execute(request.override(tool=tool))


def sanitize_output(outcome: Any) -> Any:
    """Return a tool's output with sanitized messages and without the level's private keys."""
    if (
        isinstance(outcome, ToolMessage)
        and outcome.status == "error"
        and outcome.text.startswith(INVALID_CALL_TEXT)
    ):
        outcome = mark_refused(outcome)
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
    if isinstance(error, ToolInvocationError):
        return f"{INVALID_CALL_TEXT}{error}"
    return f"Error: {error if isinstance(error, ToolException) else describe_error(error)}"
