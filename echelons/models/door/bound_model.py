"""`BoundModel`: a chat model with the arguments of its calls, such as its tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig

from echelons.models.call_timeouts import limit_call
from echelons.models.door.call_usage import UNKNOWN_MODEL, ModelDescription
from echelons.plans import PlanStep


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

    def build_step(self, messages: Sequence[BaseMessage], config: RunnableConfig) -> PlanStep:
        """Return the call of the model with some messages; a deadline limits it in both worlds."""
        prompt: LanguageModelInput = [*messages]
        if self.takes_prompt_value:
            # LangChain converts a list to this, with two calls for each message of the thread.
            prompt = ChatPromptValue(messages=messages)
        return PlanStep(
            partial(self._invoke, prompt, config),
            # The deadline of a run cancels it.
            partial(self.model.ainvoke, prompt, config, **self.arguments),
        )

    def _invoke(self, prompt: LanguageModelInput, config: RunnableConfig) -> Any:
        if self.timed_model is None:
            return self.model.invoke(prompt, config, **self.arguments)
        timed, options = limit_call(self.timed_model, config)
        return self.model.invoke(prompt, timed, **{**self.arguments, **options})


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
