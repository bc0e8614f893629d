"""The model call of a step: which model, the prompt that it reads, and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.runtime import get_runtime

from echelons.agent import bind_state
from echelons.errors import ConfigurationError, EchelonsError, ModelError, model_cannot_call
from echelons.features.feature import AgentHooks, AgentStep, ModelCall, Prompt
from echelons.guards.gate import Halt, Pause
from echelons.guards.limits import DEFAULT_RESULT_TOKENS
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import Past
from echelons.models import resolve_model
from echelons.models.bound_model import BoundModel, takes_timeout
from echelons.models.door import CallRefused, ask
from echelons.models.notices import Shorten, View, with_view
from echelons.nodes.base_node import CancelOnStop
from echelons.nodes.long_results import Examination, LongResults
from echelons.nodes.tool_execution.async_only import arun_function, run_function
from echelons.nodes.tool_execution.current_request import find_payload
from echelons.plans import Plan, PlanStep, arun_plan_steps, run_plan_steps
from echelons.run_context import get_context
from echelons.text.error_lines import describe_failure, sanitize_value
from echelons.text.input_limits import read_text
from echelons.tree.names import MAX_TOOLS, PATH_SEPARATOR, PRIVATE_KEYS


class StateFunction:
    """A function of the state, or of the state and LangGraph's runtime, sync or async.

    Args:
        function: The function.
        failure: The class of the error of one that fails, with its `code` and its `text`.
    """

    def __init__(self, function: Any, failure: type[EchelonsError], code: str, text: str) -> None:
        bind = bind_state(function)
        assert bind is not None  # noqa: S101  the agent was checked when it was made
        self._bind = bind
        self._failure, self._code, self._text = failure, code, text

    def build_step(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> PlanStep:
        """Return its call as a step of a plan, see `invoke`."""
        call = (past, state, config)
        return PlanStep(partial(self.invoke, *call), partial(self.ainvoke, *call))

    def invoke(self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]) -> Any | Halt:
        """Return what it returns, or the halt that has ended it.

        Raises:
            EchelonsError: It raised; the class is that of `failure`.
            EventLoopMissing: It is async, and the run is not a session's.
        """
        try:
            return run_function(self._bind_arguments(past, state, config), config)
        except Exception as error:
            raise self._build_failure(error, config) from error

    async def ainvoke(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Any | Halt:
        """Async version of `invoke`."""
        try:
            return await arun_function(self._bind_arguments(past, state, config), config)
        except Exception as error:
            raise self._build_failure(error, config) from error

    def refuse(self, returned: object, config: Mapping[str, Any]) -> EchelonsError:
        """Return the error of a function that returned something else than it should."""
        why = f"it returned a value of type {type(returned).__name__}"
        return self._make_failure(why, config)

    def _bind_arguments(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Callable[[], Any]:
        shown = {key: value for key, value in state.items() if key not in PRIVATE_KEYS}
        shown["messages"] = [*past.messages, *state["messages"]]
        payload = find_payload(config, state["messages"])
        # A text that is no input, which a graph around the tree may give, has none.
        if payload is not None or get_context(config).contract:
            shown["payload"] = payload
        return self._bind(shown, get_runtime())

    def _build_failure(self, error: Exception, config: Mapping[str, Any]) -> EchelonsError:
        why = describe_failure(error, self._code, get_failure_log(config).redactor)
        return self._make_failure(why, config)

    def _make_failure(self, why: str, config: Mapping[str, Any]) -> EchelonsError:
        agent = PATH_SEPARATOR.join(require_identity(config).path)
        return self._failure(self._text, code=self._code, agent=agent, why=why)


KEPT_NAMES = 32
"""Most models that are kept of those that a function chooses by name."""


class ModelInput(NamedTuple):
    """The input of a model call, and its sources.

    Attributes:
        system: Its instructions.
        messages: The conversation, as far as the model reads it.
        past: The segments before the present one.
        state: The level's state.
        more_tools: The tools that it has beside those bound to it at first.
    """

    system: SystemMessage | None
    messages: Sequence[BaseMessage]
    past: Past
    state: Mapping[str, Any]
    more_tools: Sequence[Any] = ()

    def build_prompt(self) -> list[BaseMessage]:
        """Return the messages for the model, with the instructions first."""
        return [*([self.system] if self.system else []), *self.messages]

    def ask(self, model: BoundModel, config: RunnableConfig) -> Plan[Any]:
        """Return the model's reply."""
        return ask(model, self.build_prompt(), config)

    def answer(self, model: BoundModel, config: RunnableConfig) -> ModelAnswer:
        """Return what has come of a model's call, which the agent's budget may refuse."""
        try:
            return ModelAnswer(run_plan_steps(self.ask(model, config)))
        except CallRefused as refused:
            return ModelAnswer(refused=refused.halt)

    async def aanswer(self, model: BoundModel, config: RunnableConfig) -> ModelAnswer:
        """Async version of `answer`."""
        try:
            return ModelAnswer(await arun_plan_steps(self.ask(model, config)))
        except CallRefused as refused:
            return ModelAnswer(refused=refused.halt)


@dataclass(slots=True)
class ModelAnswer:
    """The outcome of a model call, with the changes of hooks.

    Attributes:
        reply: The reply.
        halt: The halt that the call has led to, if a hook has counted the reply.
        refused: The refusal of a call, or the stop that has cancelled it.
        updates: The updates of the state by hooks, in order.
        cut: The text of the model so far, if its reply was cut off.
        is_counted: Whether the gate has counted the reply already.
    """

    reply: Any = None
    halt: Halt | None = None
    refused: Halt | Pause | None = None
    updates: list[Mapping[str, Any]] = field(default_factory=list)
    cut: AIMessage | None = None
    is_counted: bool = False


class ModelFunction:
    """A function that chooses the model of each call.

    Args:
        function: Returns a chat model, or its name.
        tools: The tools that are bound to each model.
    """

    def __init__(self, function: Any, tools: Sequence[Any]) -> None:
        self._function = StateFunction(
            function,
            ModelError,
            code="model_not_chosen",
            text="no model was chosen for {agent!r}: {why}; let the function return a LangChain "
            "chat model or a name, and resume the turn",
        )
        self._tools = tools
        self._resolve = lru_cache(KEPT_NAMES)(resolve_model)

    def choose(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Plan[BoundModel | Halt]:
        """Return the model of a call, or the halt that has ended the function.

        Raises:
            ModelError: The function raised, or returned no model; the model has no tool calls; a
                model of that name cannot be made.
            EventLoopMissing: The function is async, and the run is not a session's.
        """
        chosen = yield self._function.build_step(past, state, config)
        return chosen if isinstance(chosen, Halt) else self._bind_tools(chosen, config)

    def _bind_tools(self, chosen: Any, config: Mapping[str, Any]) -> BoundModel:
        model: Any = self._resolve(chosen) if isinstance(chosen, str) and chosen else chosen
        if isinstance(model, type) or not callable(getattr(model, "bind_tools", None)):
            raise self._function.refuse(chosen, config)
        if not supports_tool_calls(model):
            raise model_cannot_call(require_identity(config).agent, type(model).__name__)
        timed = model if takes_timeout(model) else None
        return BoundModel.from_runnable(model.bind_tools(self._tools), timed, model)


def supports_tool_calls(model: Any) -> bool:
    """Return whether a model supports tool calls; that of a function is known when it is asked."""
    # `BaseChatModel` has the method, but it only raises.
    return getattr(type(model), "bind_tools", None) is not BaseChatModel.bind_tools


class SystemPrompt:
    """The prompt of an agent and the guidance.

    Args:
        prompt: The agent's own: a text, a message, or a function of the state and the runtime.
        guidance: The text after it.
    """

    def __init__(self, prompt: Any = "", guidance: str = "") -> None:
        is_fixed = isinstance(prompt, str | SystemMessage)
        self._guidance = guidance
        self._function = None if is_fixed else _build_function(prompt)
        self._message = _join_texts(guidance, prompt) if is_fixed else None

    def build(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> Plan[SystemMessage | Halt | None]:
        """Return the message, `None` if it is empty, or the halt that has ended its function.

        Raises:
            ConfigurationError: The function raised, or returned no prompt.
            EventLoopMissing: It is async, and the run is not a session's.
        """
        if self._function is None:
            return self._message
        prompt = yield self._function.build_step(past, state, config)
        return prompt if isinstance(prompt, Halt) else self._read_prompt(prompt, config)

    def _read_prompt(self, prompt: Any, config: Mapping[str, Any]) -> SystemMessage | None:
        text = prompt if isinstance(prompt, SystemMessage) else read_text(prompt)
        if text is None:
            assert self._function is not None  # noqa: S101  a fixed prompt was checked
            raise self._function.refuse(prompt, config)
        return _join_texts(self._guidance, text)


def _append_text(message: SystemMessage | None, text: str) -> SystemMessage:
    """Return a system message with a text at its end."""
    if message is None:
        return SystemMessage(text)
    if isinstance(message.content, str):
        content: Any = f"{message.content}\n\n{text}"
    else:
        content = [*message.content, {"type": "text", "text": text}]
    return message.model_copy(update={"content": content})


def _join_texts(guidance: str, prompt: str | SystemMessage) -> SystemMessage | None:
    """Return a system message with the agent's own prompt first, and the guidance after it."""
    if isinstance(prompt, str):
        text = "\n\n".join(filter(None, (prompt, guidance)))
        return SystemMessage(sanitize_value(text)) if text else None
    return _append_text(prompt, guidance) if guidance else prompt


def _build_function(prompt: Any) -> StateFunction:
    return StateFunction(
        prompt,
        ConfigurationError,
        code="prompt_failed",
        text="the prompt of {agent!r} failed: {why}; let the function return a str or a "
        "SystemMessage, and resume the turn",
    )


@dataclass(eq=False)
class AgentModel:
    """The model of one agent.

    Attributes:
        model: The chat model with the agent's tools bound, or a function that chooses one.
        prompt: The prompt before the thread.
        timed_model: The chat model itself, if its calls take a timeout.
        shown_tools: The tools that are bound to the model.
        results: The shown form of long results.
        bind_more: Binds the model to other tools than those shown.
        reading_schema: The tool that reads on in long results, as the model is shown it.
        always_shortens: Whether hooks may add long results to a request that has none.
        announces_notices: Whether the instructions name the mark of what the library says.
    """

    model: Runnable[Any, Any] | ModelFunction
    prompt: SystemPrompt
    timed_model: BaseChatModel | None = None
    shown_tools: Sequence[Any] = ()
    results: LongResults = field(default_factory=lambda: LongResults(DEFAULT_RESULT_TOKENS))
    bind_more: Callable[[Sequence[Any]], Runnable[Any, Any]] | None = None
    reading_schema: Any = None
    always_shortens: bool = False
    announces_notices: bool = False

    def __post_init__(self) -> None:
        self._bound: BoundModel | None = None
        self._reading: BoundModel | None = None
        if not isinstance(self.model, ModelFunction):
            self._bound = BoundModel.from_runnable(self.model, self.timed_model)

    def prepare(
        self, step: AgentStep, prompt_hooks: Sequence[Callable[..., Plan[Prompt]]]
    ) -> Plan[ModelCall | Halt]:
        """Return the call of a step, or the halt that has ended a function of the agent's."""
        past, state = step.past, step.state
        where = (past, state, step.config)
        if self._bound:
            bound = self._bound
        else:
            assert isinstance(self.model, ModelFunction)  # noqa: S101  there is a model, or this
            chosen = yield from self.model.choose(*where)
            if isinstance(chosen, Halt):
                return chosen
            bound = chosen
        system = yield from self.prompt.build(*where)
        if isinstance(system, Halt):
            return system
        messages = [*past.messages, *state["messages"]]
        bound, shorten, more = self._offer_reading(bound, messages)
        prompt = Prompt(system, messages, self.shown_tools, shorten)
        for prepare in prompt_hooks:
            prompt = yield from prepare(prompt, step)
        model_input = ModelInput(prompt.system, prompt.messages, past, state, more)
        view = View(step.joined.mark, self.announces_notices, shorten)
        return ModelCall(step, bound, model_input, with_view(step.config, view), prompt.metadata)

    def ask(self, call: ModelCall) -> Plan[ModelAnswer]:
        """Call the model, within all hooks."""
        where = (call.model, call.config)
        work = PlanStep(partial(call.input.answer, *where), partial(call.input.aanswer, *where))
        return cast("ModelAnswer", (yield work))

    def _offer_reading(
        self, bound: BoundModel, messages: Sequence[BaseMessage]
    ) -> tuple[BoundModel, Shorten | None, Sequence[Any]]:
        """Return the model, what shortens its results, and the tool that reads on in them.

        From the first long result on, the tool is there in every request of the thread.
        """
        examination, shorten = self.results.examine(messages), self.results.shorten
        if examination is Examination.WHOLE:
            return bound, shorten if self.always_shortens else None, ()
        bind = self.bind_more if bound.unbound is None else bound.unbound.bind_tools
        has_room = len(self.shown_tools) < MAX_TOOLS
        if bind is None or examination is not Examination.CUT or not has_room:
            return bound, shorten, ()
        more = (self.reading_schema,)
        if bound is self._bound and self._reading:
            return self._reading, shorten, more
        model = bind([*self.shown_tools, *more])
        reading = BoundModel.from_runnable(model, bound.timed_model, bound.unbound)
        if bound is self._bound:
            self._reading = reading
        return reading, shorten, more


class StopHooks(AgentHooks):
    """Cancels the model call of a root in an event loop; of a subordinate, the level is cancelled.

    They are the loop's, and stand within the hooks of all features. In a synchronous run the reply
    ends at its next chunk, see `check_halt`.
    """

    def around_model(
        self, call: ModelCall, proceed: Callable[[ModelCall], Plan[ModelAnswer]]
    ) -> Plan[ModelAnswer]:
        """Run the call in a block that a stop ends."""
        return _cancel_on_stop(call, proceed) if call.step.is_async else proceed(call)


def _cancel_on_stop(
    call: ModelCall, proceed: Callable[[ModelCall], Plan[ModelAnswer]]
) -> Plan[ModelAnswer]:
    answer = ModelAnswer()
    with CancelOnStop(call.config) as stopped:
        answer = yield from proceed(call)
    if stopped.halt:
        answer.refused = stopped.halt
    return answer
