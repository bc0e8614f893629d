"""A call that the journal records: begun, ended or failed, in its agent's time or beyond it."""

from __future__ import annotations

import builtins
import json
import sys
from asyncio import CancelledError, current_task
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphBubbleUp, ParentCommand, is_invalid_resume
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolInvocationError
from langgraph.types import Command

from echelons.delegation.effects import EffectCall, EffectKind
from echelons.delegation.user_answers import UserAnswer
from echelons.errors import CallCutShort, EchelonsError
from echelons.guards.gate import Halt
from echelons.identity.failures import LoggedFailure, get_failure_log
from echelons.identity.lineage import FAILURE_KEY, NOTICES_KEY, OWN_KEYS, strip_own_metadata
from echelons.langgraph_internals import list_state_keys
from echelons.models.notices import mark_notice
from echelons.nodes.messages import accept_message
from echelons.nodes.planning.call_arguments import ToolArguments
from echelons.nodes.planning.relay import build_not_run_message
from echelons.nodes.planning.repeated_calls import mark_refused
from echelons.nodes.tool_execution.async_only import run_async
from echelons.nodes.tool_execution.scratchpad import AnswerPlaces
from echelons.plans import Plan, PlanStep
from echelons.run_context import get_context, with_context
from echelons.text.error_lines import read_error_text
from echelons.text.input_limits import shorten_repr
from echelons.tree.names import PRIVATE_KEYS

LateCallback: TypeAlias = Callable[[Any], None]
"""Called in any thread with the result of a call after its task was cancelled."""
INVALID_CALL_TEXT = "Error: not run: "
"""Start of the answer to a call whose arguments do not fit the tool's schema."""
_CANCELLED_TEXT = "the tool was cancelled by itself, not by the run"
NOT_HAPPENED_TEXT = "Error: the call was cut short and did not happen; it was not tried again."


def note_failure(answer: ToolMessage, error: Exception) -> ToolMessage:
    """Return the answer of a failed call with the class of its exception, for its repetition."""
    kind = type(error)
    noted = {"class": f"{kind.__module__}:{kind.__qualname__}", "text": read_error_text(error)}
    metadata = {**answer.response_metadata, FAILURE_KEY: noted}
    return answer.model_copy(update={"response_metadata": metadata})


def find_failure(update: Any) -> Mapping[str, Any] | None:
    """Return what `note_failure` has noted in the update of a call, `None` for any other."""
    match update:
        case {"messages": [ToolMessage(response_metadata={**metadata})]}:
            noted = metadata.get(FAILURE_KEY)
            return noted if isinstance(noted, Mapping) else None
    return None


def remove_failure(update: Any) -> Any:
    """Return the update of a failed call without what `note_failure` has noted."""
    [answer] = update["messages"]
    metadata = {key: value for key, value in answer.response_metadata.items() if key != FAILURE_KEY}
    return {"messages": [answer.model_copy(update={"response_metadata": metadata})]}


def rebuild_exception(noted: Mapping[str, Any]) -> Exception:
    """Return a recorded exception, so that a wrap decides as it did when the tool raised it.

    Its class is looked up among the modules that are loaded; nothing is imported. It has the text
    as its only argument, and is not initialized, as its arguments are unknown.
    """
    module, _, name = str(noted.get("class")).partition(":")
    text = str(noted.get("text", ""))
    kind: Any = builtins if module == "builtins" else sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, "__dict__", {}).get(part)
    if isinstance(kind, type) and issubclass(kind, Exception):
        with suppress(Exception):  # it may need more to be made
            error: Exception = kind.__new__(kind, text)
            error.args = (text,)
            return error
    return RuntimeError(f"{name}: {text}")


class DetachedCall:
    """A call whose thread may outlive the task that waits for it.

    Args:
        on_late_result: Called with the result if the thread ends only after `detach`.
    """

    def __init__(self, on_late_result: LateCallback) -> None:
        self._on_late_result = on_late_result
        self._lock = Lock()
        self._results: list[Any] = []
        self._is_detached = False

    def detach(self) -> None:
        """Stop waiting; from now on the result goes to the callback."""
        with self._lock:
            self._is_detached = True
            came = list(self._results)
        for result in came:
            self._on_late_result(result)

    async def ainvoke(self, tool: BaseTool, input: Any, config: RunnableConfig | None) -> Any:
        """Run the tool in a thread, as LangChain would."""
        return await run_in_executor(config, self._run, tool, input, config)

    def _run(self, tool: BaseTool, input: Any, config: RunnableConfig | None) -> Any:
        try:
            result = tool.invoke(input, config)
        except Exception as error:
            self._deliver(error)
            raise
        self._deliver(result)
        return result

    def _deliver(self, result: Any) -> None:
        with self._lock:
            self._results.append(result)
            left = self._is_detached
        if left:
            self._on_late_result(result)


@dataclass(frozen=True, slots=True)
class JournaledCall:
    """A tool call that is recorded in the journal.

    Attributes:
        call: Its description in the journal.
        tools: The node that runs it.
        tool_call: The call in the model's message.
        kwargs: Further arguments of LangGraph.
        is_threaded: Whether the tool runs in a thread in an event loop.
        needs_loop: Whether the tool is only async: a synchronous run needs its session's loop.
        is_edited: Whether a human has changed its arguments, which the model reads.
        prior_answers: The answers of humans before it begins; the tool does not get it.
        told: The questions to the user before it begins, for the superior of its agent.
        places: The places of its answers, where a middleware around it may ask, too.
        raised: Takes the exception of its tool, where a middleware around it is to get that.
        state: The state that the tool reads, if it is another than that of the level.
    """

    call: EffectCall
    tools: ToolNode
    tool_call: Any
    kwargs: Mapping[str, Any]
    is_threaded: bool
    needs_loop: bool = False
    is_edited: bool = False
    prior_answers: Sequence[Any] = ()
    told: Sequence[UserAnswer] = ()
    places: AnswerPlaces | None = None
    raised: list[Exception] | None = None
    state: Mapping[str, Any] | None = None

    @property
    def _input(self) -> Any:
        """The input of LangGraph's `ToolNode`."""
        if self.state is None:
            return [self.tool_call]
        # As `create_agent` has sent it: with a state of its own.
        kind = "tool_call_with_context"
        return {"__type": kind, "tool_call": self.tool_call, "state": self.state}

    def plan(self, config: RunnableConfig, on_late_result: LateCallback) -> Plan[Any]:
        """Execute the call and return the node's update; an exception becomes its answer."""
        try:
            done = yield PlanStep(
                partial(self._run, config), partial(self._arun, config, on_late_result)
            )
            if isinstance(done, Halt):
                return self.build_refused_update(done, was_begun=True)
            return self._accept(done, config)
        # A tool raises anything; signals go on.
        except Exception as error:
            cause, failure = self._find_cause(error), None
            if isinstance(cause, CallCutShort):
                raise
            if cause:
                log, noted = get_failure_log(config), (cause, config, self.call.tool)
                failure = yield PlanStep(partial(log.record, *noted), partial(log.arecord, *noted))
            return self._build_error_result(cause or error, failure, config)

    def _run(self, config: RunnableConfig) -> Any:
        try:
            if not self.needs_loop:
                return self.tools.invoke(self._input, config, **self.kwargs)
            work = partial(self.tools.ainvoke, self._input, config, **self.kwargs)
            return run_async(partial(_await_tool, work), config)
        except CancelledError as error:
            # The session's loop was closed, also around a tree in the tool.
            if isinstance(error.__cause__, FutureCancelled):
                raise
            raise EchelonsError(_CANCELLED_TEXT, code="tool_cancelled") from error

    async def _arun(self, config: RunnableConfig, on_late_result: LateCallback) -> Any:
        if self.is_threaded:
            return await self._arun_detached(config, on_late_result)
        return await _await_tool(partial(self.tools.ainvoke, self._input, config, **self.kwargs))

    async def _arun_detached(self, config: RunnableConfig, on_late_result: LateCallback) -> Any:
        # The call may be cancelled and go on in its thread, whose result comes late.
        detached = DetachedCall(
            lambda late: on_late_result(self._convert_late_result(late, config))
        )
        inner = with_context(config, replace(get_context(config), detached_call=detached))
        try:
            return await _await_tool(partial(self.tools.ainvoke, self._input, inner, **self.kwargs))
        except CancelledError:
            detached.detach()
            raise

    def check_recorded(self, result: Any, config: RunnableConfig) -> Any:
        """Return a recorded update, or an error if it steers: earlier versions recorded such."""
        try:
            return sanitize_output(result, config, was_recorded=True)
        except ToolException as error:
            return {"messages": [self._build_message(f"Error: {error}", "error")]}

    def build_reported_result(self, result: str) -> Any:
        """Return the update of a call that happened, with the result that a human states."""
        return sanitize_output({"messages": [self._build_message(result, "success")]}, {})

    def build_not_happened_result(self) -> Any:
        """Return the update of a call that a human says did not happen."""
        return {"messages": [mark_notice(self._build_message(NOT_HAPPENED_TEXT, "error"))]}

    def build_cut_short_result(self, error: CallCutShort) -> Any:
        """Return the update of a call that was given up, and about which no human is asked."""
        return {"messages": [self._build_message(f"Error: {error}", "error")]}

    def build_refused_update(self, halt: Halt, was_begun: bool = False) -> Any:
        """Return the update of a call that does not run, or that was cut short."""
        return {"messages": [build_not_run_message(self.tool_call, halt, was_begun)]}

    def _convert_late_result(self, result: Any, config: RunnableConfig) -> Any:
        """Return a detached tool thread's result in the form in which the node returns results."""
        if isinstance(result, GraphBubbleUp) and not isinstance(result, ParentCommand):
            return result
        if isinstance(result, Exception):
            error = self._find_cause(result) or result
        else:
            outputs = result if isinstance(result, list) else [result]
            # As `ToolNode` does.
            has_commands = any(isinstance(output, Command) for output in outputs)
            update = (
                {"messages": outputs}
                if not has_commands
                else [
                    output if isinstance(output, Command) else {"messages": [output]}
                    for output in outputs
                ]
            )
            try:
                return self._accept(update, config)
            except ToolException as refused:
                error = refused
        failure = get_failure_log(config).record(error, config, self.call.tool)
        return self._build_error_result(error, failure, config)

    def _accept(self, done: Any, config: Mapping[str, Any]) -> Any:
        """Return what the tool returned as the update of its call."""
        # An output whose answer shows the model the facts on the arguments. That is what a
        # person has changed, and what a tool takes that checks them itself and has refused
        # them, such as one of an MCP server.
        outcome = bind_answer(sanitize_output(done, config), self.tool_call["id"])
        has_schema = isinstance(getattr(self._tool, "args_schema", None), Mapping)
        if not (self.is_edited or has_schema):
            return outcome

        def add(answer: ToolMessage) -> ToolMessage:
            notices = [self._build_note()] if self.is_edited else []
            if has_schema and answer.status == "error":
                notices += filter(None, [self._build_advice()])
            if not notices:
                return answer
            return _add_notices(answer, notices)

        return change_answer(outcome, self.tool_call["id"], add)

    @property
    def _tool(self) -> BaseTool | None:
        """The tool; `None` if the agent has lost it since the call began."""
        return self.tools.tools_by_name.get(self.call.tool)

    def _build_advice(self, *, is_refused: bool = False) -> str:
        """Return what to send in place of arguments that do not fit; empty if they do."""
        if (tool := self._tool) is None:
            return ""
        arguments = ToolArguments(tool)
        misfits = is_refused or arguments.find_misfit(self.tool_call["args"])
        wanted = arguments.describe() if misfits else ""
        return f"Send arguments of this schema: {wanted}" if wanted else ""

    def _build_note(self) -> str:
        shown = json.dumps(self.tool_call["args"], default=repr, ensure_ascii=False)
        return f"A human has changed the arguments of this call to {shown}"

    def _find_cause(self, error: Exception) -> Exception | None:
        """Return the exception that the tool raised, `None` if the call did not fit its schema.

        Raises:
            GraphBubbleUp: It is an interrupt.
            ValidationError: It is a wrong answer to an interrupt, which is asked again.
        """
        if isinstance(error, ParentCommand):
            # Of a node of a graph that the tool has run.
            return _refuse_command(error.args[0])
        if isinstance(error, GraphBubbleUp) or is_invalid_resume(error):
            raise error
        if not isinstance(error, ToolInvocationError):
            return error
        # LangGraph takes every error of pydantic for one of the call, also one in the tool's body.
        schema = getattr(self._tool, "args_schema", None)
        if isinstance(schema, type) and error.source.title in (
            schema.__name__,
            getattr(schema, "model_config", {}).get("title"),
        ):
            return None
        return error.source

    def _build_error_result(
        self, error: Exception, failure: LoggedFailure | None, config: RunnableConfig
    ) -> Any:
        """Return the update of a call whose tool failed, or that was not run without a failure."""
        if failure is None:
            text = f"{INVALID_CALL_TEXT}{get_failure_log(config).redact(read_error_text(error))}"
            if advice := self._build_advice(is_refused=True):
                text = f"{text}\n{advice}"
            return {"messages": [mark_refused(self._build_message(text, "error"))]}
        text = failure.reason
        if isinstance(error, ToolException):
            # Its text is written for the model: all of it.
            text = failure.add_reference(get_failure_log(config).redact(read_error_text(error)))
        answer = self._build_message(f"Error: {text}", "error")
        if advice := self._build_advice():
            answer = _add_notices(answer, [advice])
        if self.raised is not None:
            self.raised.append(error)
            answer = note_failure(answer, error)
        return {"messages": [answer]}

    def _build_message(self, text: str, status: Any) -> ToolMessage:
        call = self.tool_call
        text = f"{text}\n{self._build_note()}" if self.is_edited else text
        return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status=status)


async def _await_tool(work: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of a call.

    Raises:
        EchelonsError: The tool has raised `CancelledError` by itself, such as for a task that it
            has waited for; it would pass for a cancellation of its agent.
    """
    try:
        return await work()
    except CancelledError as error:
        task = current_task()
        if task is None or task.cancelling():
            raise
        raise EchelonsError(_CANCELLED_TEXT, code="tool_cancelled") from error


def _add_notices(answer: ToolMessage, notices: Sequence[str]) -> ToolMessage:
    """Return the answer to a call with what the library says beside it."""
    metadata = {**answer.response_metadata, NOTICES_KEY: [*notices]}
    return answer.model_copy(update={"response_metadata": metadata})


def bind_answer(outcome: Any, call_id: str | None) -> Any:
    """Return the update of a call with its one answer bound to it.

    A tool may return a message that it has kept, or that another agent's tool has made. LangGraph
    checks the ids in commands alone: the call would stay open, or another one would be answered.
    """
    match outcome:
        case {"messages": [ToolMessage() as answer]} if answer.tool_call_id != call_id:
            bound = answer.model_copy(update={"tool_call_id": call_id})
            return {**outcome, "messages": [bound]}
    return outcome


def change_answer(
    outcome: Any, call_id: str | None, change: Callable[[ToolMessage], ToolMessage]
) -> Any:
    """Return the update of a call with its answer changed."""
    if isinstance(outcome, list):
        return [change_answer(item, call_id, change) for item in outcome]
    if isinstance(outcome, Mapping) and "messages" in outcome:
        return {**outcome, "messages": change_answer(outcome["messages"], call_id, change)}
    if isinstance(outcome, Command):
        return replace(outcome, update=change_answer(outcome.update, call_id, change))
    if isinstance(outcome, ToolMessage) and outcome.tool_call_id == call_id:
        return change(outcome)
    return outcome


def build_journal_call(
    config: Mapping[str, Any],
    call_id: str,
    tool: str,
    arguments: Mapping[str, Any],
    nature: EffectKind,
) -> EffectCall:
    """Return the journal's description of the call that a LangGraph task executes."""
    configurable, metadata = config["configurable"], config.get("metadata") or {}
    # The namespace of a task ends with its node and its id.
    task_id = str(configurable.get("checkpoint_ns", "")).rpartition(":")[2]
    path = str(metadata.get("agent_path", ""))
    thread_id = str(configurable.get("thread_id", ""))
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
    detached = get_context(request.runtime.config).detached_call
    if detached is None or request.tool is None:
        return await execute(request)
    tool: Any = _DetachedTool(request.tool, detached)
    return await execute(request.override(tool=tool))


def sanitize_output(outcome: Any, config: Mapping[str, Any], *, was_recorded: bool = False) -> Any:
    """Return a tool's output with sanitized messages and without the level's private keys.

    Unless it `was_recorded`, which keeps our own marks, its messages have none of ours: a tool
    could say with them what the user has never said.

    Raises:
        ToolException: It has a command that does anything but update the agent's own state, or
            updates a key that the state does not have.
    """
    if isinstance(outcome, BaseMessage):
        # A tool may turn its exceptions into answers itself (`handle_tool_error`).
        if type(outcome) is ToolMessage and outcome.status == "error":
            text = get_failure_log(config).redact(outcome.text)
            if text != outcome.text:
                outcome = outcome.model_copy(update={"content": text})
        if not (was_recorded or OWN_KEYS.isdisjoint(outcome.response_metadata)):
            metadata = strip_own_metadata(outcome)
            outcome = outcome.model_copy(update={"response_metadata": metadata})
        return accept_message(outcome, config)
    if isinstance(outcome, list):
        return [sanitize_output(item, config, was_recorded=was_recorded) for item in outcome]
    if isinstance(outcome, Mapping):
        return {
            key: sanitize_output(value, config, was_recorded=was_recorded)
            for key, value in outcome.items()
            if key not in PRIVATE_KEYS
        }
    if isinstance(outcome, Command):
        if outcome.graph or outcome.goto or not isinstance(outcome.update, Mapping):
            raise _refuse_command(outcome)
        keys = list_state_keys(config)
        if keys and (unknown := outcome.update.keys() - keys):
            raise _refuse_update(unknown)
        update = sanitize_output(outcome.update, config, was_recorded=was_recorded)
        return replace(outcome, update=update)
    return outcome


def _refuse_update(keys: Iterable[Any]) -> ToolException:
    """Return the error of a tool whose command updates keys that are not in its agent's state."""
    names = ", ".join(sorted(map(shorten_repr, keys)))
    return ToolException(
        f"the tool has run, and its result is lost: its Command updates {names}, which the state "
        "of its agent does not have; return what the model is to know in a ToolMessage, and keep "
        "the rest in the store"
    )


def _refuse_command(command: Command[Any]) -> ToolException:
    """Return the error of a tool whose command would steer a graph, or leaves its call open.

    It would lead past the steps of a level, and out of a root's into no graph at all.
    """
    shown = ", ".join(
        f"{name}={shorten_repr(value)}"
        for name, value in (("graph", command.graph), ("goto", command.goto))
        if value
    )
    return ToolException(
        f"the tool has run, and its result is lost: it returned Command({shown or 'no update'}), "
        "and a tool can only update the messages of its agent; return a text, or "
        'Command(update={"messages": […]}) with a ToolMessage for the call'
    )
