"""`BoundModel`: a chat model with the arguments and the time of its calls."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import get_llm_cache
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import ChatPromptValue
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.runnables.config import merge_configs
from pydantic import ValidationError

from echelons.guards.gate import Halt, get_gate
from echelons.guards.limits import time_left
from echelons.models.replies import read_streams, read_unreadable
from echelons.models.request_messages import RequestBuilder, has_calls
from echelons.models.resolution import STRICTEST, describe_client
from echelons.models.usage import (
    INNER_CALLS,
    UNKNOWN_MODEL,
    WITH_USAGE,
    ModelDescription,
    StreamUsage,
)
from echelons.plans import PlanStep, adrive_plan, drive_plan

FIND_HALT: ContextVar[Callable[[], Halt | None] | None] = ContextVar("FIND_HALT", default=None)
"""Returns the halt of the agent whose model replies in this thread; asked at each chunk."""

FORWARDING_PACKAGES = frozenset({"langchain_openai", "langchain_anthropic"})
"""Packages whose models pass the arguments of a call on to their SDK, which takes a `timeout`."""


class TokenDeadline(BaseCallbackHandler):
    """Ends the streamed reply of an agent that has no time left; a timeout does not do that.

    A client's timeout is the longest silence, and a reply that is being written is not silent.
    """

    raise_error = True

    def __init__(self, config: RunnableConfig) -> None:
        self._config = config

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        """Check the time.

        Raises:
            TimeoutError: The deadline has passed.
        """
        if time_left(self._config) == 0:
            raise TimeoutError("the reply is not complete, and the agent has no time left")


def takes_timeout(model: Any) -> bool:
    """Return whether a call of a model takes a `timeout` in seconds."""
    packages = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    generate = getattr(model, "_generate", None)
    return bool(packages & FORWARDING_PACKAGES) or (
        generate is not None and "timeout" in signature(generate).parameters
    )


def limit_call(model: Any, config: RunnableConfig) -> tuple[RunnableConfig, dict[str, Any]]:
    """Return the config and the further arguments of a call of a model that takes a timeout.

    The timeout is what the agent with `config` has left, or that of the model if it is shorter.
    An agent without a deadline changes nothing.
    """
    left = time_left(config)
    if left is None:
        return config, {}
    timed = merge_configs(config, {"callbacks": [TokenDeadline(config)]})
    # A cache finds a reply by the arguments of its call, and this one is never the same.
    if getattr(model, "cache", None) or get_llm_cache():
        return timed, {}
    preset = getattr(model, "request_timeout", getattr(model, "default_request_timeout", None))
    return timed, {"timeout": _shorten(preset, max(left, 0.001))}


def _shorten(timeout: Any, left: float) -> Any:
    """Return a client's timeout, of which no part is longer than the seconds left."""
    if isinstance(timeout, (int, float)):
        return min(timeout, left)
    if isinstance(timeout, tuple):
        return tuple(_shorten(item, left) for item in timeout)
    if hasattr(timeout, "as_dict"):  # the `Timeout` of an HTTP library
        parts: Mapping[str, Any] = timeout.as_dict()
        return type(timeout)(**{name: _shorten(entry, left) for name, entry in parts.items()})
    return left


_PAST_TOOL = {
    "type": "function",
    "function": {
        "name": "past_tool",
        "description": "Not available. It stands for tools that were called earlier.",
        "parameters": {"type": "object", "properties": {}},
    },
}
"""Declared for a model without tools where the conversation has calls: some providers want one."""


@dataclass(frozen=True, slots=True)
class BoundModel:
    """A chat model, and what each of its calls is given."""

    # Without a binding that only adds arguments.
    model: Runnable[Any, Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # The chat model itself, if its calls take a timeout.
    timed_model: BaseChatModel | None = None
    takes_prompt_value: bool = False
    # Without its tools, if a function has chosen it.
    unbound: Any = None
    description: ModelDescription = UNKNOWN_MODEL
    requests: RequestBuilder = field(default_factory=partial(RequestBuilder, STRICTEST))
    # Asks for the usage of streamed replies; `None` if it need not be asked.
    usage: StreamUsage | None = None

    @classmethod
    def from_runnable(
        cls,
        model: Runnable[Any, Any],
        timed_model: BaseChatModel | None = None,
        unbound: Any = None,
    ) -> BoundModel:
        """Return a model to which its tools are bound."""
        chat_model, arguments = _unwrap_binding(model)
        described = ModelDescription.describe(chat_model)
        requests = RequestBuilder(describe_client(chat_model, arguments))
        # A model, or a binding, with its own `invoke` may expect the list of messages.
        bound = chat_model
        if isinstance(chat_model, RunnableBinding) and _has_methods_of(RunnableBinding, chat_model):
            bound = chat_model.bound
        takes_value = isinstance(bound, BaseChatModel) and _has_methods_of(BaseChatModel, bound)
        # What a server refuses is remembered for the client, so for the object of the user.
        usage = StreamUsage.find(chat_model, requests.rules, arguments)
        kept = read_streams(chat_model, requests.rules.wire_format)
        return cls(kept, arguments, timed_model, takes_value, unbound, described, requests, usage)

    def build_step(self, request: list[BaseMessage], config: RunnableConfig) -> PlanStep:
        """Return the call of the model with a request that `requests` has built.

        A deadline limits it in both worlds.
        """
        prompt: LanguageModelInput = request
        if self.takes_prompt_value:
            # LangChain converts a list to this, with two calls for each message of the thread.
            prompt = ChatPromptValue(messages=request)
        arguments = self.arguments
        if "tools" not in arguments and self.requests.rules.needs_user_turns and has_calls(request):
            arguments = {**arguments, **self._declare_past_tool()}
        call, acall = self._invoke, self._ainvoke
        if self.usage:
            call, acall = self._invoke_with_usage, self._ainvoke_with_usage
        return PlanStep(
            partial(call, prompt, config, arguments), partial(acall, prompt, config, arguments)
        )

    def _declare_past_tool(self) -> Mapping[str, Any]:
        """Return the arguments that declare a tool, as the model's client writes them."""
        bind_tools: Any = getattr(self.model, "bind_tools", None)
        if getattr(type(self.model), "bind_tools", None) in (None, BaseChatModel.bind_tools):
            return {}
        bound = bind_tools([_PAST_TOOL])
        return bound.kwargs if isinstance(bound, RunnableBinding) else {}

    def _invoke(
        self, prompt: LanguageModelInput, config: RunnableConfig, arguments: Mapping[str, Any]
    ) -> Any:
        if self.timed_model is not None:
            config, options = limit_call(self.timed_model, config)
            arguments = {**arguments, **options}
        before = INNER_CALLS.set(None)
        # A thread cannot be cancelled: the handler of the reply's chunks asks.
        halts_before = FIND_HALT.set(partial(get_gate(config).find_halt, config))
        try:
            return self.model.invoke(prompt, config, **arguments)
        except ValidationError as error:
            return _require_readable(error)
        finally:
            FIND_HALT.reset(halts_before)
            INNER_CALLS.reset(before)

    async def _ainvoke(
        self, prompt: LanguageModelInput, config: RunnableConfig, arguments: Mapping[str, Any]
    ) -> Any:
        # The deadline of a run cancels it.
        before = INNER_CALLS.set(None)
        try:
            return await self.model.ainvoke(prompt, config, **arguments)
        except ValidationError as error:
            return _require_readable(error)
        finally:
            INNER_CALLS.reset(before)

    def _invoke_with_usage(
        self, prompt: LanguageModelInput, config: RunnableConfig, arguments: Mapping[str, Any]
    ) -> Any:
        plan = self._ask_for_usage(config, arguments, is_async=False)
        return drive_plan(plan, partial(self._invoke, prompt, config))

    async def _ainvoke_with_usage(
        self, prompt: LanguageModelInput, config: RunnableConfig, arguments: Mapping[str, Any]
    ) -> Any:
        plan = self._ask_for_usage(config, arguments, is_async=True)
        return await adrive_plan(plan, partial(self._ainvoke, prompt, config))

    def _ask_for_usage(
        self, config: RunnableConfig, arguments: Mapping[str, Any], *, is_async: bool
    ) -> Generator[Mapping[str, Any], Any, Any]:
        """Yield the arguments of each call of the model, and return the reply."""
        if self.usage and self.usage.is_wanted(config, arguments, is_async=is_async):
            try:
                return (yield {**arguments, **WITH_USAGE})
            except Exception as error:
                if not self.usage.note_refusal(error):
                    raise
        return (yield arguments)


def _require_readable(error: ValidationError) -> Any:
    """Return the reply in an error of a model's client, or raise the error."""
    if reply := read_unreadable(error):
        return reply
    raise error


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
    kind = type(model)
    return kind.invoke is base.invoke and kind.ainvoke is base.ainvoke
