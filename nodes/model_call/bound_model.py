"""`BoundModel`: a model as `reason` calls it, with its tools; and one that a function chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig

from echelons.errors import ModelCannotCall, ModelNotChosen
from echelons.guards.gate import Halt, Pause, get_allowance
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import Past
from echelons.models import resolve_model
from echelons.models.call_timeouts import limit_call, takes_timeout
from echelons.nodes.model_call.budgeted_call import (
    UNKNOWN_MODEL,
    CallRefused,
    ModelDescription,
    acall_within,
    call_within,
)
from echelons.nodes.model_call.state_function import StateFunction
from echelons.nodes.planning.tool_calls import answer_open_calls

KEPT_NAMES = 32
"""Most models that are kept of those that a function chooses by name."""


@dataclass(frozen=True, slots=True)
class BoundModel:
    """A chat model, and what each of its calls is given.

    Attributes:
        model: The model, without a binding that only adds arguments.
        arguments: The arguments of each call, such as its tools.
        timed_model: The chat model itself, if its calls take a timeout.
        takes_prompt_value: Whether it takes a prompt value as it is.
        unbound: The model without its tools, if a function has chosen it.
        description: What is known of the model.
    """

    model: Runnable[Any, Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    timed_model: BaseChatModel | None = None
    takes_prompt_value: bool = False
    unbound: Any = None
    description: ModelDescription = UNKNOWN_MODEL

    @classmethod
    def from_runnable(
        cls,
        model: Runnable[Any, Any],
        timed_model: BaseChatModel | None = None,
        unbound: Any = None,
    ) -> BoundModel:
        """Return a model to which its tools are bound."""
        own, arguments = _unwrap_binding(model)
        described = ModelDescription.describe(own)
        return cls(own, arguments, timed_model, _takes_prompt_value(own), unbound, described)

    def invoke(self, messages: list[BaseMessage], config: RunnableConfig) -> Any:
        """Return the model's reply to some messages.

        Raises:
            CallRefused: The agent has a budget, of which nothing is left.
        """
        own, options = config, dict[str, Any]()
        if self.timed_model:
            own, options = limit_call(self.timed_model, config)
        given = self._build_prompt(messages)
        call = partial(self.model.invoke, given, own, **{**self.arguments, **options})
        if (allowance := get_allowance(config)) is None:
            return call()
        return call_within(allowance, self.description, messages, config, call)

    async def ainvoke(self, messages: list[BaseMessage], config: RunnableConfig) -> Any:
        """Async version of `invoke`; the deadline of a run cancels it."""
        call = partial(self.model.ainvoke, self._build_prompt(messages), config, **self.arguments)
        if (allowance := get_allowance(config)) is None:
            return await call()
        return await acall_within(allowance, self.description, messages, config, call)

    def answer(self, given: ModelInput, config: RunnableConfig) -> ModelAnswer:
        """Return what has come of a call, which the agent's budget may refuse."""
        try:
            return ModelAnswer(self.invoke(given.build_prompt(), config))
        except CallRefused as refused:
            return ModelAnswer(refused=refused.verdict)

    async def aanswer(self, given: ModelInput, config: RunnableConfig) -> ModelAnswer:
        """Async version of `answer`."""
        try:
            return ModelAnswer(await self.ainvoke(given.build_prompt(), config))
        except CallRefused as refused:
            return ModelAnswer(refused=refused.verdict)

    def _build_prompt(self, messages: list[BaseMessage]) -> LanguageModelInput:
        # LangChain converts a list to this, with two calls for each message of the thread.
        return ChatPromptValue(messages=messages) if self.takes_prompt_value else messages


class ModelInput(NamedTuple):
    """What a model is called with, and what it was made of.

    Attributes:
        system: Its instructions.
        messages: The conversation, as far as the model reads it.
        past: The segments before the present one.
        state: The level's state.
    """

    system: SystemMessage | None
    messages: Sequence[BaseMessage]
    past: Past
    state: Mapping[str, Any]

    def build_prompt(self) -> list[BaseMessage]:
        """Return the messages for the model: the instructions, and no call without an answer."""
        first = [self.system] if self.system else []
        return answer_open_calls(chain(first, self.messages))


@dataclass(slots=True)
class ModelAnswer:
    """What has come of a model call, with what a middleware has made of it.

    Attributes:
        reply: The reply.
        halt: The halt that one of the calls through a middleware has led to.
        refused: The gate's refusal of another call of a middleware.
        updates: What the middleware updates of the state, in order.
    """

    reply: Any = None
    halt: Halt | None = None
    refused: Halt | Pause | None = None
    updates: list[Mapping[str, Any]] = field(default_factory=list)


class ModelFunction:
    """A function that chooses the model of each call.

    Args:
        function: Returns a chat model, or its name.
        tools: The tools that are bound to each model.
    """

    def __init__(self, function: Any, tools: Sequence[Any]) -> None:
        self._function = StateFunction(function, ModelNotChosen)
        self._tools = tools
        self._resolve = lru_cache(KEPT_NAMES)(resolve_model)

    def choose(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> BoundModel | Halt:
        """Return the model of a call, or the halt that has ended the function.

        Raises:
            ModelNotChosen: The function raised, or returned no model.
            ModelCannotCall: The model has no tool calls.
            ModelError: A model of that name cannot be made.
            EventLoopMissing: The function is async, and the run is not a session's.
        """
        chosen = self._function.invoke(past, state, config)
        return chosen if isinstance(chosen, Halt) else self._bind_tools(chosen, config)

    async def achoose(
        self, past: Past, state: Mapping[str, Any], config: Mapping[str, Any]
    ) -> BoundModel:
        """Async version of `choose`."""
        return self._bind_tools(await self._function.ainvoke(past, state, config), config)

    def _bind_tools(self, chosen: Any, config: Mapping[str, Any]) -> BoundModel:
        model: Any = self._resolve(chosen) if isinstance(chosen, str) and chosen else chosen
        if isinstance(model, type) or not callable(getattr(model, "bind_tools", None)):
            raise self._function.refuse(chosen, config)
        if not supports_tool_calls(model):
            raise ModelCannotCall(require_identity(config).agent, type(model).__name__)
        timed = model if takes_timeout(model) else None
        return BoundModel.from_runnable(model.bind_tools(self._tools), timed, model)


def supports_tool_calls(model: Any) -> bool:
    """Return whether a model supports tool calls; that of a function is known when it is asked."""
    # `BaseChatModel` has the method, but it only raises.
    return getattr(type(model), "bind_tools", None) is not BaseChatModel.bind_tools


def _takes_prompt_value(model: Runnable[Any, Any]) -> bool:
    """Return whether LangChain's own methods take a model's input.

    A model, or a binding, with its own `invoke` may expect the list of messages.
    """
    bound = model
    if isinstance(model, RunnableBinding) and _has_methods_of(RunnableBinding, model):
        bound = model.bound
    return isinstance(bound, BaseChatModel) and _has_methods_of(BaseChatModel, bound)


def _unwrap_binding(model: Any) -> tuple[Runnable[Any, Any], dict[str, Any]]:
    """Return the model that a binding calls, and the arguments that it adds to a call.

    A binding also merges its configs into that of each call. One that has none is left out.
    """
    arguments: dict[str, Any] = {}
    while isinstance(model, RunnableBinding) and _has_methods_of(RunnableBinding, model):
        if model.config or model.config_factories:
            break
        model, arguments = model.bound, {**model.kwargs, **arguments}
    return model, arguments


def _has_methods_of(base: Any, model: Any) -> bool:
    own = type(model)
    return own.invoke is base.invoke and own.ainvoke is base.ainvoke
