"""LangChain's middleware around the calls of models and tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple, cast

from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langchain_core.tools import BaseTool, ToolException
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import get_runtime
from langgraph.types import Command

from echelons.delegation.calls import MendedCall
from echelons.errors import ConfigurationError, EchelonsError
from echelons.features.feature import AgentHooks, AgentStep, ModelCall, Outcome
from echelons.features.middleware.level import (
    CallChain,
    LevelMiddleware,
    build_failure,
    build_hook_state,
    change_conversation,
    find_foreign_key,
    get_command_update,
    list_names,
    mark_returned,
)
from echelons.guards.gate import Step
from echelons.identity.thread_history import Past
from echelons.langgraph_internals import READ_KEY, SCRATCHPAD_KEY, list_state_keys, parent_config
from echelons.models.bound_model import BoundModel, takes_timeout
from echelons.models.door import CallRefused, ask, note_dropped
from echelons.nodes.model_call import ModelAnswer, ModelInput
from echelons.nodes.planning.tool_calls import answer_open_calls
from echelons.nodes.tool_execution.approval import ToolApproval
from echelons.nodes.tool_execution.journaled_call import (
    find_failure,
    rebuild_exception,
    remove_failure,
    sanitize_output,
)
from echelons.nodes.tool_execution.scratchpad import AnswerPlaces, Scratchpad
from echelons.plans import Plan, PlanStep, arun_plan_steps, build_step, run_plan_steps
from echelons.run_context import CONTEXT_KEY, get_context
from echelons.text.input_limits import shorten_repr

MODEL_WRAP = "wrap_model_call"
STREAM = "on_stream_chunk"
TOOL_WRAP = "wrap_tool_call"


class ModelCalls(AgentHooks):
    """The model calls of one agent, wrapped by its middleware."""

    def __init__(
        self,
        middleware: LevelMiddleware,
        model: Any,
        tools: Sequence[Any],
        state_keys: frozenset[str],
    ) -> None:
        self._model = model
        self._tools = tools
        self._own_names = {tool.name for tool in tools if isinstance(tool, BaseTool)}
        self._state_keys = state_keys
        self._wraps = middleware.find(MODEL_WRAP)
        self._watchers = middleware.find(STREAM)

    @property
    def wraps_calls(self) -> bool:
        """Whether the middleware wraps model calls, or reads their streams."""
        return bool(self._wraps or self._watchers)

    def around_step(
        self, step: AgentStep, proceed: Callable[[AgentStep], Plan[Outcome]]
    ) -> Plan[Outcome]:
        """Add what the wraps update of the state, and note whether there is a reply to act on."""
        outcome = yield from proceed(step)
        if outcome.reply:
            outcome.update["replied"] = outcome.halt is None
            for update in outcome.updates:
                more = dict(update)
                if "messages" in more:
                    before, new = outcome.update["messages"], more.pop("messages")
                    outcome.update |= change_conversation(new, step.past, step.state, before)
                outcome.update |= more
        return outcome

    def around_model(
        self, call: ModelCall, proceed: Callable[[ModelCall], Plan[ModelAnswer]]
    ) -> Plan[ModelAnswer]:
        """Call the model through all wraps, in place of the loop."""
        return self._call(call) if self.wraps_calls else proceed(call)

    def _call(self, call: ModelCall) -> Plan[ModelAnswer]:
        """Call the model through all wraps.

        Raises:
            ConfigurationError: A middleware has failed.
        """
        bound, gate, config = call.model, call.step.gate, call.config
        request = self._build_request(bound, call.input, config)
        answer, calls, heard = ModelAnswer(is_counted=True), count(), list[_Heard]()

        def execute(changed: Any) -> Plan[ModelResponse[Any]]:
            answer.updates.clear()
            bound_model = self._bind(bound, request, changed, config)
            # The first call has passed the gate already.
            if next(calls):
                verdict = yield build_step(partial(gate.enter, Step.MODEL, config), gate.arun)
                if verdict:
                    raise CallRefused(verdict)
            watch = _Watch(self._watchers, config)
            first = [changed.system_message] if changed.system_message else []
            messages: list[BaseMessage] = [*first, *changed.messages]
            reply = yield from ask(bound_model, messages, watch.config)
            heard.append(_Heard(bound_model, messages, reply))
            watch.end(reply)
            halt = yield build_step(partial(gate.leave, reply, config), gate.arun)
            answer.halt = halt or answer.halt
            return ModelResponse(result=[reply])

        chain = CallChain(MODEL_WRAP, self._wraps, partial(self._read_result, answer, config))
        done: Any = None
        try:
            done = yield PlanStep(
                lambda: chain.run(request, lambda sent: run_plan_steps(execute(sent)), config),
                lambda: chain.arun(request, lambda sent: arun_plan_steps(execute(sent)), config),
            )
        except CallRefused as refused:
            return ModelAnswer(refused=refused.halt, is_counted=True)
        finally:
            yield from _note_dropped(heard, done, config)
        replies = [message for message in done.result if isinstance(message, AIMessage)]
        if not replies:
            raise self._fail(f"it returned no reply, but {shorten_repr(done.result)}", config)
        is_model_s = any(message.is_kept_in(replies[0]) for message in heard)
        answer.reply = replies[0] if is_model_s else mark_returned(replies[0])
        if more := [message for message in done.result if message is not replies[0]]:
            answer.updates.insert(0, {"messages": more})
        return answer

    def _build_request(
        self,
        bound: BoundModel,
        input: ModelInput,
        config: RunnableConfig,
    ) -> ModelRequest[Any]:
        return ModelRequest(
            model=bound.unbound or self._model,
            messages=cast("list[Any]", answer_open_calls(input.messages)),
            system_message=input.system,
            tools=[*self._tools, *input.more_tools],
            state=build_hook_state(input.past, input.state, config),  # type: ignore[arg-type]  # a mapping, as theirs
            runtime=get_runtime(),
        )

    def _read_result(self, answer: ModelAnswer, config: RunnableConfig, result: Any) -> Any:
        if isinstance(result, AIMessage):
            return ModelResponse(result=[result])
        if isinstance(result, ExtendedModelResponse):
            if result.command is not None:
                answer.updates.append(self._read_command(result.command, config))
            result = result.model_response
        return result if isinstance(result, ModelResponse) else None

    def _read_command(self, command: Command[Any], config: RunnableConfig) -> Mapping[str, Any]:
        update = get_command_update(command)
        if update is None:
            raise self._fail(f"its command {shorten_repr(command)} does more than update", config)
        if foreign := find_foreign_key(update, self._state_keys - {"jump_to"}):
            why = f"it updates {foreign!r}, which is not in the state; declare it in state_schema"
            raise self._fail(why, config)
        return update

    def _bind(
        self, bound: BoundModel, first: ModelRequest[Any], changed: Any, config: RunnableConfig
    ) -> BoundModel:
        """Return the model of a request, with its tools."""
        if not isinstance(changed.messages, list) or not hasattr(changed.model, "bind_tools"):
            raise self._fail("its request has no messages, or no chat model", config)
        if changed.response_format is not None:
            raise self._fail("it sets response_format, which agents do not have", config)
        shown = list(changed.tools or ())
        unknown = [
            tool.name
            for tool in shown
            if isinstance(tool, BaseTool) and tool.name not in self._own_names
        ]
        if unknown:
            why = f"it adds the tools {', '.join(unknown)}; give them in its attribute tools"
            raise self._fail(why, config)
        same_tools = len(shown) == len(first.tools) and all(
            one is other for one, other in zip(shown, first.tools, strict=True)
        )
        is_same = changed.model is first.model and same_tools
        if is_same and changed.tool_choice is None and not changed.model_settings:
            return bound
        settings = dict(changed.model_settings)
        if changed.tool_choice is not None:
            settings["tool_choice"] = changed.tool_choice
        model = changed.model
        bound_model = model.bind_tools(shown, **settings) if shown else model.bind(**settings)
        return BoundModel.from_runnable(bound_model, model if takes_timeout(model) else None)

    def _fail(self, why: str, config: RunnableConfig) -> EchelonsError:
        return build_failure(config, list_names(self._wraps), MODEL_WRAP, why)


class _Heard(NamedTuple):
    """A reply that the wraps were given, with the model and what it has read."""

    model: BoundModel
    messages: list[BaseMessage]
    reply: Any

    def is_kept_in(self, reply: AIMessage | None) -> bool:
        """Return whether a reply that the wraps have returned is this one, changed or not."""
        if reply is None or self.reply is reply:
            return reply is not None
        return bool(reply.id) and getattr(self.reply, "id", None) == reply.id


def _note_dropped(
    heard: Sequence[_Heard], done: ModelResponse[Any] | None, config: RunnableConfig
) -> Plan[None]:
    """Record the replies that the wraps have not returned: their calls were made."""
    replies = [reply for reply in done.result if isinstance(reply, AIMessage)] if done else []
    kept = replies[0] if replies else None
    for reply in heard:
        if reply.is_kept_in(kept):
            kept = None
        else:
            yield from note_dropped(reply.model, reply.messages, reply.reply, config)


class _Watch(BaseCallbackHandler):
    """Gives `on_stream_chunk` the chunks of one reply, or the reply if it is not streamed."""

    raise_error = True
    run_inline = True

    def __init__(self, watchers: Sequence[Any], config: RunnableConfig) -> None:
        self._watchers = watchers
        self._given = config
        self._was_streamed = False
        self.config = merge_configs(config, {"callbacks": [self]}) if watchers else config

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        """Tell of a chunk."""
        if isinstance(chunk, ChatGenerationChunk) and isinstance(chunk.message, AIMessageChunk):
            self._was_streamed = True
            self._tell(chunk.message)

    def end(self, reply: Any) -> None:
        """Tell of a whole reply that was not streamed."""
        if self._watchers and not self._was_streamed and isinstance(reply, AIMessage):
            self._tell(AIMessageChunk(**{**reply.model_dump(), "type": "AIMessageChunk"}))

    def _tell(self, chunk: AIMessageChunk) -> None:
        for watcher in self._watchers:
            try:
                watcher.on_stream_chunk(chunk, get_runtime())
            except Exception as error:
                raise build_failure(self._given, watcher.name, STREAM, error) from error


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
        context = replace(context, first_place=self.places.first)
        changed = {**configurable, SCRATCHPAD_KEY: pad, CONTEXT_KEY: context}
        return {**self.config, "configurable": changed}


class ToolCalls:
    """The calls of one agent's tools, wrapped by its middleware."""

    def __init__(self, middleware: LevelMiddleware, tools: list[BaseTool]) -> None:
        self._wraps = middleware.find(TOOL_WRAP)
        self._tools = {tool.name: tool for tool in tools}
        self._chain = CallChain(TOOL_WRAP, self._wraps, _read_result)

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
        return build_failure(config, list_names(self._wraps), TOOL_WRAP, why)


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
