"""`act`: runs one call, of a tool on LangGraph's `ToolNode` or of a built-in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.prebuilt import InjectedState, ToolNode, ToolRuntime

from echelons.delegation.calls import find_meant_call
from echelons.delegation.effects import EffectCall, EffectKind, Journal, get_effect_kind
from echelons.errors import UnreadableRecord
from echelons.features.feature import BuiltIn, ToolScope
from echelons.guards.gate import Halt, Pause, Step, get_gate
from echelons.identity.lineage import CALLS_KEY
from echelons.identity.thread_history import Head, Past, ThreadHistory, build_past_step
from echelons.langgraph_internals import READ_KEY, TASK_ID_KEY, list_state_keys, supports_async
from echelons.models.usage import InnerCalls
from echelons.nodes.base_node import CancelOnStop, Node
from echelons.nodes.planning.relay import build_not_run_message
from echelons.nodes.planning.repeated_calls import mark_refused
from echelons.nodes.tool_execution.approval import (
    ToolApproval,
    ToolApprovals,
    build_rejected_update,
)
from echelons.nodes.tool_execution.async_only import is_async_only
from echelons.nodes.tool_execution.at_most_once import Refusal, execute_at_most_once
from echelons.nodes.tool_execution.current_request import with_root_request
from echelons.nodes.tool_execution.journaled_call import (
    JournaledCall,
    build_journal_call,
    change_answer,
    run_detached,
)
from echelons.plans import Plan, arun_plan_steps, build_step, run_plan_steps
from echelons.run_context import get_context
from echelons.text.input_limits import shorten_repr

if TYPE_CHECKING:
    from echelons.features.middleware.calls import CallEntry, ToolCalls


def reads_state(tool: BaseTool) -> bool:
    """Return whether a tool is given the state, as far as LangGraph finds that out."""
    functions = (getattr(tool, "func", None), getattr(tool, "coroutine", None))
    hints = [_read_hints(work) for work in (*functions, tool.args_schema) if work is not None]
    return any(_asks_for_state(name, kind) for hint in hints for name, kind in hint.items())


def extend_state(past: Past, config: RunnableConfig) -> Mapping[str, Any] | None:
    """Return the state of a task's level with the messages of the whole thread.

    `None` if these are the level's own alone.
    """
    state: dict[str, Any] = config["configurable"][READ_KEY](sorted(list_state_keys(config)))
    earlier = past.hide_cut(state).messages
    return {**state, "messages": [*earlier, *state["messages"]]} if earlier else None


def _read_hints(thing: Any) -> Mapping[str, Any]:
    if isinstance(thing, Mapping):  # a JSON Schema
        return {}
    try:
        return get_type_hints(thing, include_extras=True)
    except (AttributeError, NameError, TypeError):
        return {}


def _asks_for_state(name: str, kind: Any) -> bool:
    parts = (kind, get_origin(kind), *get_args(kind))
    wanted = (InjectedState, ToolRuntime)
    return name == "runtime" or any(
        isinstance(part, wanted) or (isinstance(part, type) and issubclass(part, wanted))
        for part in parts
    )


class Act(Node):
    """The node `act` of one level.

    Args:
        tools: The agent's own tools.
        journal: Records their calls.
        history: Returns whether a run is stored.
        approvals: Asks whether calls of the agent's own tools may run.
        built_in: The built-in tools whose calls it runs, by name.
        wraps: The wraps of its middleware around a call of its tools, if any.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool],
        journal: Journal,
        history: ThreadHistory,
        approvals: ToolApprovals,
        built_in: Mapping[str, BuiltIn] = MappingProxyType({}),
        *,
        wraps: ToolCalls | None = None,
    ) -> None:
        super().__init__("act")
        self._wraps = wraps
        self._built_in = built_in
        self._own_tools = tools
        self._effect_kinds = {tool.name: get_effect_kind(tool) for tool in tools}
        # In an event loop, LangChain runs them in a thread.
        self._threaded_tools = {tool.name for tool in tools if not supports_async(tool)}
        self._async_only_tools = {tool.name for tool in tools if is_async_only(tool)}
        self._state_readers = {tool.name for tool in tools if reads_state(tool)}
        self._journal = journal
        self._history = history
        self._approvals = approvals

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the call, or return its recorded result if it has run before."""
        return run_plan_steps(self._run_call(input, config or {}, kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        config = config or {}
        if (config.get("metadata") or {}).get("request_id"):
            return await arun_plan_steps(self._run_call(input, config, kwargs))
        # Of a subordinate, the whole level is cancelled.
        with CancelOnStop(config) as stopped:
            return await arun_plan_steps(self._run_call(input, config, kwargs))
        assert stopped.halt  # noqa: S101  only then it has been cancelled
        call = find_call(input, config)
        return {"messages": [build_not_run_message(call, stopped.halt, was_begun=True)]}

    def _run_call(self, sent: Any, config: RunnableConfig, kwargs: Mapping[str, Any]) -> Plan[Any]:
        """Run the call that was sent, through the wraps of middleware."""
        gate = get_gate(config)
        if gate.backpressure:
            yield gate.backpressure.build_start_step(config["configurable"][TASK_ID_KEY])
        call = find_call(sent, config)
        if tool := self._built_in.get(call["name"]):
            gate = get_gate(config)
            halt = yield build_step(partial(gate.enter, Step.TOOL, config), gate.arun)
            read_thread, refusal = partial(self._read_thread, config), _build_refusal(halt, call)
            scope = ToolScope(config, self._history, read_thread, refusal)
            return (yield from tool.execute(call, scope))
        with InnerCalls(config) as inner:
            if self._wraps is None:
                update = yield from self._execute(call, config, kwargs)
            else:
                past = yield build_past_step(self._history, _read_previous(config), config)

                def execute(entry: CallEntry) -> Plan[Any]:
                    return self._execute(entry.call, config, kwargs, entry)

                update = yield from self._wraps.run(call, past, config, execute)
        # The update of a call, its answer with what the models within have used.
        if not inner.usage.model_calls:
            return update
        used = inner.usage.model_dump()

        def note(answer: ToolMessage) -> ToolMessage:
            metadata = {**answer.response_metadata, CALLS_KEY: used}
            return answer.model_copy(update={"response_metadata": metadata})

        return change_answer(update, call["id"], note)

    def _read_thread(self, config: RunnableConfig) -> Plan[list[BaseMessage]]:
        """Return the messages of a task's thread, as they are when its step begins."""
        past = yield build_past_step(self._history, _read_previous(config), config)
        state: dict[str, Any] = config["configurable"][READ_KEY](["messages"])
        return [*past.messages, *state["messages"]]

    def _execute(
        self,
        tool_call: ToolCall,
        config: RunnableConfig,
        kwargs: Mapping[str, Any],
        entry: CallEntry | None = None,
    ) -> Plan[Any]:
        """Run a call that is approved and allowed, or return its recorded result."""
        # A tree checks its own tools when it is made; one in a tool of another has its rights.
        rights, name = get_context(config).rights, tool_call["name"]
        if rights and (why := rights.refuse_tool(name)):
            answer = ToolMessage(why, tool_call_id=tool_call["id"], name=name, status="error")
            return {"messages": [mark_refused(answer)]}
        gate = get_gate(config)
        call_config = entry.build_config() if entry else config
        approval = entry.approval if entry else None
        is_held = not approval and self._approvals.may_hold(tool_call["name"], call_config)
        enter = partial(gate.enter, Step.PERMISSION, config)
        if is_held and not (yield build_step(enter, gate.arun)):
            effect = self._build_effect_call(tool_call, config, entry)
            approval = yield from self._approvals.plan(effect, call_config)
            if approval.answer.outcome != "allowed":
                return build_rejected_update(tool_call, approval)
            if entry:
                entry.approval = approval
        halt = yield build_step(partial(gate.enter, Step.TOOL, config), gate.arun)
        refusal = _build_refusal(halt, tool_call)
        call, call_config = self._build_call(tool_call, call_config, kwargs, approval, entry)
        if tool_call["name"] in self._state_readers and (previous := _read_previous(config)):
            past = yield build_past_step(self._history, previous, config)
            call = replace(call, state=extend_state(past, config))
        return (yield from execute_at_most_once(self._journal, call, call_config, refusal))

    @cached_property
    def _tool_node(self) -> ToolNode:
        # Made when a tool is called: a root without tools has this node, too, to ask the user.
        # A call's errors are raised, and become its answer where its config is known.
        tools = list(self._own_tools)
        return ToolNode(tools, handle_tool_errors=False, awrap_tool_call=run_detached)

    def _build_effect_call(
        self, tool_call: ToolCall, config: RunnableConfig, entry: CallEntry | None = None
    ) -> EffectCall:
        kind = self._effect_kinds.get(tool_call["name"], EffectKind.ONCE)
        call = build_journal_call(
            config, tool_call["id"] or "", tool_call["name"], tool_call["args"], kind
        )
        if (received := getattr(tool_call, "received", None)) is not None:
            call = replace(call, received=received)
        return replace(call, entry=entry.number, is_wrapped=True) if entry else call

    def _build_call(
        self,
        tool_call: ToolCall,
        config: RunnableConfig,
        kwargs: Mapping[str, Any],
        approval: ToolApproval | None,
        entry: CallEntry | None,
    ) -> tuple[JournaledCall, RunnableConfig]:
        if get_context(config).request is None:
            config = with_root_request(config)
        edited = approval.answer.edited_arguments if approval else None
        if edited is not None:
            tool_call = ToolCall(
                name=tool_call["name"],
                args=dict(edited),
                id=tool_call["id"],
                type="tool_call",
            )
        call = JournaledCall(
            self._build_effect_call(tool_call, config, entry),
            (entry.tools if entry else None) or self._tool_node,
            tool_call,
            kwargs,
            is_threaded=tool_call["name"] in self._threaded_tools,
            needs_loop=tool_call["name"] in self._async_only_tools,
            is_edited=edited is not None,
            prior_answers=approval.places if approval else (),
            told=approval.told if approval else (),
            places=entry.places if entry else None,
            raised=entry.raised if entry else None,
        )
        return call, config


def find_call(sent: Any, config: RunnableConfig) -> ToolCall:
    """Return the call that a `Send` names by its id, from the latest reply that has it.

    In rows from before, and for calls without an id of their own, the `Send` holds the call.

    Raises:
        UnreadableRecord: The update of a `Command` has taken the call out of the conversation.
    """
    if not isinstance(sent, str):
        [call] = sent
        return cast("ToolCall", call)
    state: dict[str, Any] = config["configurable"][READ_KEY](["messages"])
    is_past_reply = False
    # A `Command` that resumes may have added replies after it.
    for message in reversed(state["messages"]):
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                if call["id"] == sent:
                    meant = ToolCall(
                        name=call["name"], args=call["args"], id=sent, type="tool_call"
                    )
                    return find_meant_call(message, meant)
            is_past_reply = True
        elif is_past_reply and isinstance(message, ToolMessage) and message.tool_call_id == sent:
            # An earlier call of the same id has been answered.
            break
    why = (
        f"the call {shorten_repr(sent)} waits, and no reply has it any more; write the calls to run"
        ' with update_state(config, {"messages": [reply]}, as_node="reason")'
    )
    raise UnreadableRecord("ToolCall", why)


def _read_previous(config: RunnableConfig) -> Head | None:
    """Return the end of the segment before that of a task; a root has no segments."""
    if "previous" not in list_state_keys(config):
        return None
    state: dict[str, Any] = config["configurable"][READ_KEY](["previous"])
    return state.get("previous")


def _build_refusal(halt: Halt | Pause | None, call: ToolCall) -> Refusal | None:
    if not isinstance(halt, Halt):
        return None
    return Refusal(
        halt,
        lambda begun: {"messages": [build_not_run_message(call, halt, begun)]},
    )
