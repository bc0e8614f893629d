"""`ToolCalls`: the calls of an agent's tools, through `wrap_tool_call`.

Within all wraps come the approval and the effect journal. A wrap that calls its handler again makes
another entry of the same call in the journal: each entry has an effect at most once. The exception
of a tool is raised to the wraps, also when it is only repeated from the journal, and becomes the
answer of the call if they let it pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import get_runtime
from langgraph.types import Command

from echelons.delegation.calls import MendedCall
from echelons.errors import ConfigurationError
from echelons.features.middleware.conversation import build_hook_state
from echelons.features.middleware.level import CallChain, LevelMiddleware, build_failure, list_names
from echelons.identity.thread_history import Past
from echelons.langgraph_internals import READ_KEY, SCRATCHPAD_KEY, list_state_keys, parent_config
from echelons.nodes.tool_execution.approval import ToolApproval
from echelons.nodes.tool_execution.journaled_call import sanitize_output
from echelons.nodes.tool_execution.scratchpad import AnswerPlaces, Scratchpad
from echelons.nodes.tool_execution.tool_failure import (
    find_failure,
    rebuild_exception,
    remove_failure,
)
from echelons.plans import Plan, PlanStep, arun_plan_steps, run_plan_steps
from echelons.run_context import CONTEXT_KEY, get_context
from echelons.text.input_limits import shorten_repr

WRAP = "wrap_tool_call"


@dataclass(slots=True)
class CallEntry:
    """One entry of a call: what is run when a wrap calls its handler."""

    # As the wraps have left it.
    call: ToolCall
    # From 1.
    number: int
    # The node that runs it; `None` for that of the agent's tools.
    tools: ToolNode | None
    config: RunnableConfig
    # The places of its answers among those of the task.
    places: AnswerPlaces
    # Of an earlier entry with the same arguments.
    approval: ToolApproval | None = None
    # Takes the exception that its tool raises.
    raised: list[Exception] = field(default_factory=list)

    def build_config(self) -> RunnableConfig:
        """Return the config of the task in which its answers begin at their first place."""
        configurable, context = self.config["configurable"], get_context(self.config)
        pad = replace(configurable[SCRATCHPAD_KEY], interrupt_counter=self.places)
        context = context._replace(first_place=self.places.first)
        changed = {**configurable, SCRATCHPAD_KEY: pad, CONTEXT_KEY: context}
        return {**self.config, "configurable": changed}


class ToolCalls:
    """The calls of one agent's tools, wrapped by its middleware."""

    def __init__(self, middleware: LevelMiddleware, tools: list[BaseTool]) -> None:
        self._wraps = middleware.find(WRAP)
        self._tools = {tool.name: tool for tool in tools}
        self._chain = CallChain(WRAP, self._wraps, _read_result)

    def run(
        self,
        call: ToolCall,
        past: Past,
        config: RunnableConfig,
        execute: Callable[[CallEntry], Plan[Any]],
    ) -> Plan[Any]:
        """Return the update of a call through all wraps.

        Raises:
            ConfigurationError: A middleware has failed.
            GraphInterrupt: The tool, a wrap or the approval asks.
        """
        run = _Run(self, call, past, config)

        def handle(request: ToolCallRequest) -> Any:
            entry = run.begin(request)
            return run.end(entry, run_plan_steps(execute(entry)))

        async def ahandle(request: ToolCallRequest) -> Any:
            entry = run.begin(request)
            return run.end(entry, await arun_plan_steps(execute(entry)))

        before = parent_config.set(run.config)
        try:
            result = yield PlanStep(
                partial(self._chain.run, run.request, handle, config),
                partial(self._chain.arun, run.request, ahandle, config),
            )
            return run.finish(result)
        except Exception as error:
            if (update := run.find_answer(error)) is None:
                raise
            return update
        finally:
            parent_config.reset(before)

    def find_tool(self, name: str) -> BaseTool | None:
        """Return a tool of the agent by its name."""
        return self._tools.get(name)

    def fail(self, why: str, config: RunnableConfig) -> ConfigurationError:
        """Return the error of these middleware."""
        return build_failure(config, list_names(self._wraps), WRAP, why)


class _Run:
    """One call on its way through the wraps."""

    def __init__(
        self, calls: ToolCalls, call: ToolCall, past: Past, config: RunnableConfig
    ) -> None:
        self._calls = calls
        self._entries: list[CallEntry] = []
        self._failed: tuple[Exception, Any] | None = None
        configurable = config["configurable"]
        self._places = AnswerPlaces()
        pad = replace(configurable[SCRATCHPAD_KEY], interrupt_counter=self._places)
        # What a wrap asks by itself takes a place, too.
        self.config: RunnableConfig = {
            **config,
            "configurable": {**configurable, SCRATCHPAD_KEY: pad},
        }
        state = configurable[READ_KEY](sorted(list_state_keys(config)))
        whole = build_hook_state(past.hide_cut(state), state, config)
        runtime, tool = get_runtime(), calls.find_tool(call["name"])
        self.request = ToolCallRequest(
            tool_call=call,
            tool=tool,
            state=whole,
            runtime=ToolRuntime(
                state=whole,
                tool_call_id=call["id"],
                config=self.config,
                context=runtime.context,
                store=runtime.store,
                stream_writer=runtime.stream_writer,
                execution_info=runtime.execution_info,
                server_info=runtime.server_info,
            ),
        )

    def begin(self, request: ToolCallRequest) -> CallEntry:
        """Return the entry with which a handler is called."""
        call = request.tool_call
        if call["id"] != self.request.tool_call["id"]:
            raise self._calls.fail("it changes the id of the call", self.config)
        name = request.tool.name if request.tool else call["name"]
        declared, tools = self._calls.find_tool(name), None
        if request.tool is not None and request.tool is not declared:
            # One that a wrap has made for this call.
            tools = ToolNode([request.tool], handle_tool_errors=False)
        elif declared is None:
            raise self._calls.fail(f"it calls the tool {name!r}, which is not there", self.config)
        sent = ToolCall(name=name, args=call["args"], id=call["id"], type="tool_call")
        whole: Any = self.request.tool_call
        if isinstance(whole, MendedCall) and call["args"] == whole["args"]:
            sent = MendedCall.build(self.request.tool_call, call["args"])
            sent["name"] = name
        approved = (entry for entry in self._entries if entry.call == sent and entry.approval)
        before = next(approved, None)
        places = self._places.begin_entry()
        approval = before.approval if before else None
        entry = CallEntry(sent, len(self._entries) + 1, tools, self.config, places, approval)
        self._entries.append(entry)
        return entry

    def end(self, entry: CallEntry, update: Any) -> Any:
        """Return the answer of an entry for the wraps.

        Raises:
            Exception: The error of the tool.
        """
        self._places.end_entry(entry.places)
        # Stored, as a wrap may ask next, and LangGraph finds its place by counting the answers.
        Scratchpad(self.config).note_answers()
        if noted := find_failure(update):
            error = entry.raised[-1] if entry.raised else rebuild_exception(noted)
            self._failed = error, update
            raise error
        match update:
            case [Command() as command]:
                return command
            case {"messages": [ToolMessage() as message]}:
                return message
        return update

    def finish(self, result: Any) -> Any:
        """Return the update of a call for what the outermost wrap has returned.

        Raises:
            ConfigurationError: It leaves the call without an answer, or leads elsewhere.
        """
        update = {"messages": [result]} if isinstance(result, ToolMessage) else result
        update = [update] if isinstance(update, Command) else update
        if isinstance(update, list):
            # As of a tool that returns several; a list without a command is no update.
            update = (
                [{"messages": [e]} if isinstance(e, ToolMessage) else e for e in update]
                if any(isinstance(part, Command) for part in update)
                else {"messages": update}
            )
        call_id = self.request.tool_call["id"]
        if not any(answer.tool_call_id == call_id for answer in _iterate_answers(update)):
            why = f"it returned {shorten_repr(result)}, which does not answer the call {call_id!r}"
            raise self._calls.fail(why, self.config)
        try:
            return sanitize_output(update, self.config, was_recorded=True)
        except ToolException as error:
            raise self._calls.fail(str(error), self.config) from error

    def find_answer(self, error: Exception) -> Any:
        """Return the answer of a call whose tool has raised an exception that no wrap has caught.

        `None` if it is another exception.
        """
        if self._failed is None or error is not self._failed[0]:
            return None
        return remove_failure(self._failed[1])


def _iterate_answers(update: Any) -> Iterator[ToolMessage]:
    """Yield the answers to calls in an update."""
    for part in update if isinstance(update, list) else [update]:
        content = part.update if isinstance(part, Command) else part
        messages = content.get("messages") if isinstance(content, Mapping) else content
        listed = messages if isinstance(messages, list | tuple) else [messages]
        yield from (message for message in listed if isinstance(message, ToolMessage))


def _read_result(result: Any) -> Any:
    is_update = isinstance(result, list | dict)  # of a tool that returns several commands
    return result if isinstance(result, ToolMessage | Command) or is_update else None
