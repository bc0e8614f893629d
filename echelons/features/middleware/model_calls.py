"""`ModelCalls`: the calls of an agent's model, through `wrap_model_call` and `on_stream_chunk`.

They are hooks as features have them, and stand within all of those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, cast

from langchain.agents.middleware.types import (
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langchain_core.tools import BaseTool
from langgraph.runtime import get_runtime
from langgraph.types import Command

from echelons.errors import EchelonsError
from echelons.features.feature import AgentHooks, AgentStep, ModelCall, Outcome
from echelons.features.middleware.conversation import (
    build_hook_state,
    change_conversation,
    find_foreign_key,
    get_command_update,
    mark_returned,
)
from echelons.features.middleware.level import CallChain, LevelMiddleware, build_failure, list_names
from echelons.guards.gate import Step
from echelons.models.call_timeouts import takes_timeout
from echelons.models.door.ask import CallRefused, ask, note_dropped
from echelons.models.door.bound_model import BoundModel
from echelons.nodes.model_call.model_input import ModelAnswer, ModelInput
from echelons.nodes.planning.tool_calls import answer_open_calls
from echelons.plans import Plan, PlanStep, arun_plan_steps, build_step, run_plan_steps
from echelons.text.input_limits import shorten_repr

WRAP = "wrap_model_call"
STREAM = "on_stream_chunk"


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
        self._wraps = middleware.find(WRAP)
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

        chain = CallChain(WRAP, self._wraps, partial(self._read_result, answer, config))
        done: Any = None
        try:
            done = yield PlanStep(
                lambda: chain.run(request, lambda sent: run_plan_steps(execute(sent)), config),
                lambda: chain.arun(request, lambda sent: arun_plan_steps(execute(sent)), config),
            )
        except CallRefused as refused:
            return ModelAnswer(refused=refused.verdict, is_counted=True)
        finally:
            yield from _note_dropped(heard, done, config)
        return self._complete(answer, done, heard, config)

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

    def _complete(
        self,
        answer: ModelAnswer,
        done: ModelResponse[Any],
        heard: Sequence[_Heard],
        config: RunnableConfig,
    ) -> ModelAnswer:
        replies = [message for message in done.result if isinstance(message, AIMessage)]
        if not replies:
            raise self._fail(f"it returned no reply, but {shorten_repr(done.result)}", config)
        is_model_s = any(message.is_kept_in(replies[0]) for message in heard)
        answer.reply = replies[0] if is_model_s else mark_returned(replies[0])
        if more := [message for message in done.result if message is not replies[0]]:
            answer.updates.insert(0, {"messages": more})
        return answer

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
        return build_failure(config, list_names(self._wraps), WRAP, why)


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
