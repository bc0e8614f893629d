"""The tokens that calls of models may use and have used, models called inside of tools included."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers.context import register_configure_hook

from echelons.delegation.request import Usage
from echelons.guards.budget import (
    DEFAULT_REPLY_TOKENS,
    NO_ALLOWANCE,
    Allowance,
    CallEstimate,
    get_allowance,
)
from echelons.guards.gate import CallUsage, NotedCall, get_gate
from echelons.models.replies import read_length_refusal
from echelons.models.resolution import ClientRules
from echelons.text.error_lines import describe_error
from echelons.text.input_limits import shorten_repr


class ModelDescription(NamedTuple):
    """The facts known of a model before it is called."""

    # As its provider knows it, else that of its class.
    name: str
    reply_tokens: int = DEFAULT_REPLY_TOKENS

    @classmethod
    def describe(cls, model: Any) -> ModelDescription:
        """Return the description of a model."""
        limit: Any = getattr(model, "max_tokens", None)
        is_given = isinstance(limit, int) and limit > 0
        return cls(get_model_name(model), limit if is_given else DEFAULT_REPLY_TOKENS)


UNKNOWN_MODEL: Final = ModelDescription("")


def estimate_call(
    model: ModelDescription, messages: Sequence[BaseMessage], allowance: Allowance
) -> CallEstimate:
    """Return what a call may use at most, as far as its budget needs to know.

    The tokens of an earlier call are known; only the messages after it are counted.
    """
    if "tokens" not in allowance.grants and "money" not in allowance.grants:
        return CallEstimate(model.name)
    counted, begin = 0, 0
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        # By its type: most are none.
        if message.type != "ai" or not isinstance(message, AIMessage):
            continue
        if usage := get_whole_usage(message):
            counted = usage["input_tokens"] + usage["output_tokens"]
            begin = place + 1
            break
    return CallEstimate(model.name, counted + estimate_tokens(messages[begin:]), model.reply_tokens)


def estimate_tokens(messages: Sequence[BaseMessage]) -> int:
    """Return about how many tokens some messages have.

    One token for four characters, and three more, as LangChain's `count_tokens_approximately`
    counts, with a hundred calls for each message.
    """
    total = 0
    for message in messages:
        calls = message.tool_calls if isinstance(message, AIMessage) else ()
        total += len(f"{message.content}{calls or ''}") // 4 + 3
    return total


def read_usage(
    model: ModelDescription, messages: Sequence[BaseMessage], reply: Any, allowance: Allowance
) -> CallUsage:
    """Return what a reply reports to have used, or what an estimator says if it reports nothing."""
    name = model.name
    if not isinstance(reply, AIMessage):
        return CallUsage(name, None, fault=f"usage unknown: {name} returned no message")
    name = str(reply.response_metadata.get("model_name") or name)
    if usage := get_whole_usage(reply):
        return CallUsage(name, dict(usage))
    if allowance.estimator is None:
        return CallUsage(name, None, fault=f"usage unknown: {name} reports none")
    fault = f"usage unknown: {name} reports none, and the estimator of its budget"
    try:
        estimate = allowance.estimator(list(messages), reply)
    except Exception as error:  # noqa: BLE001  code of others
        return CallUsage(name, None, fault=f"{fault} has failed: {describe_error(error)}")
    match estimate:
        case (int(read), int(written)) if read >= 0 and written >= 0:
            counted = {"input_tokens": read, "output_tokens": written}
            return CallUsage(name, counted, is_estimated=True)
    return CallUsage(name, None, fault=f"{fault} returned {shorten_repr(estimate)}")


def build_noted_call(
    model: ModelDescription,
    messages: Sequence[BaseMessage],
    reply: Any,
    allowance: Allowance | None,
) -> NotedCall:
    """Return a call that has ended as it is recorded, with an estimate if it reports nothing."""
    used = read_usage(model, messages, reply, allowance or NO_ALLOWANCE)
    is_message = isinstance(reply, BaseMessage)
    estimate = 0
    if used.usage is None:
        estimate = estimate_tokens([*messages, reply] if is_message else messages)
    return NotedCall(used, estimate, reply_id=(reply.id or "") if is_message else "")


def get_model_name(model: Any) -> str:
    """Return the name of a model, as its provider knows it, else that of its class."""
    for key in ("model_name", "model"):
        name = getattr(model, key, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


def get_whole_usage(message: AIMessage) -> UsageMetadata | None:
    """Return the tokens of a reply as its model reports them; `None` if it reports none.

    LangChain's cache then gives it a cost alone, and no message is read back with that.
    """
    usage = message.usage_metadata
    return usage if usage and "input_tokens" in usage else None


_REFUSING: Final[dict[int, weakref.ref[Any]]] = {}
"""The clients whose servers have refused to report usage in a stream, by their ids."""
_OPTION = "stream_options"
_BAD_REQUESTS = (400, 422)


WITH_USAGE: Final[Mapping[str, Any]] = {"stream_usage": True}
"""The argument of a call that asks for it."""


class StreamUsage:
    """A model whose streamed replies report usage only when asked to."""

    def __init__(self, model: Any) -> None:
        self._model = model

    @classmethod
    def find(cls, model: Any, rules: ClientRules, arguments: Mapping[str, Any]) -> Self | None:
        """Return what asks a model for it; `None` if there is nothing to ask for."""
        settings = {**(getattr(model, "model_kwargs", None) or {}), **arguments}
        is_open = (
            rules.wire_format == "openai"
            and hasattr(model, "_should_stream_usage")
            and hasattr(model, "_should_stream")
            # A user who has set it has decided.
            and getattr(model, "stream_usage", True) is None
            and settings.keys().isdisjoint({_OPTION, "stream_usage"})
        )
        return cls(model) if is_open else None

    def is_wanted(
        self, config: RunnableConfig, arguments: Mapping[str, Any], *, is_async: bool
    ) -> bool:
        """Return whether a call has to ask: its reply is streamed, and would not report it."""
        if id(self._model) in _REFUSING:
            return False
        around = config.get("callbacks")
        handlers = [
            *(around if isinstance(around, list) else getattr(around, "handlers", ())),
            *(getattr(self._model, "callbacks", None) or ()),
        ]
        manager = SimpleNamespace(handlers=handlers)
        options = {"async_api": is_async, "run_manager": manager, **arguments}
        return bool(self._model._should_stream(**options))

    def note_refusal(self, error: Exception) -> bool:
        """Return whether an error refuses to report usage, and remember it for the client."""
        status = getattr(error, "status_code", None)
        if status not in _BAD_REQUESTS or _OPTION not in str(error):
            return False
        key = id(self._model)
        _REFUSING[key] = weakref.ref(self._model, lambda _: _REFUSING.pop(key, None))
        return True


LOG = logging.getLogger(__name__)
_NO_AGENT = ("", "", "")


class InnerCalls(BaseCallbackHandler):
    """A block of an agent's node whose calls of models are counted when they end.

    They count for limits, budgets and usage as calls of the agent, and are refused at its next
    step. Agents of a tree that runs within count for themselves.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.usage = Usage()
        self.reply_ids: set[str] = set()
        self._config = config
        self._agent = _get_agent(config.get("metadata"))
        self._begun: dict[UUID, tuple[ModelDescription, Sequence[BaseMessage]]] = {}
        self._token: Token[InnerCalls | None] | None = None

    def __enter__(self) -> Self:
        self._token = INNER_CALLS.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token:
            INNER_CALLS.reset(self._token)

    def is_of(self, config: Mapping[str, Any]) -> bool:
        """Return whether it counts the calls of the agent in a config."""
        return _get_agent(config.get("metadata")) == self._agent

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note what a chat model reads."""
        self._begin(run_id, messages[0], metadata)

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note what a model of texts reads."""
        self._begin(run_id, [HumanMessage(prompt) for prompt in prompts], metadata)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a call with what its reply reports."""
        self._end(run_id, _read_reply(response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a call that has failed, as it was made, unless it was refused for its length."""
        if read_length_refusal(error):
            self._begun.pop(run_id, None)
        self._end(run_id, None)

    def _begin(
        self, run_id: UUID, messages: Sequence[BaseMessage], metadata: Mapping[str, Any] | None
    ) -> None:
        # Of an agent within, its own tree counts it.
        if _get_agent(metadata) in (_NO_AGENT, self._agent):
            name = str((metadata or {}).get("ls_model_name") or "")
            self._begun[run_id] = ModelDescription(name or "unknown"), messages

    def _end(self, run_id: UUID, reply: AIMessage | None) -> None:
        if (begun := self._begun.pop(run_id, None)) is None:
            return
        call = build_noted_call(*begun, reply, get_allowance(self._config))
        if reply is None:
            call = call._replace(has_failed=True)
        else:
            self.usage += Usage.from_call(call.used)
        if call.reply_id:
            self.reply_ids.add(call.reply_id)
        try:
            get_gate(self._config).note_call(call, self._config)
        except Exception as error:  # noqa: BLE001  the tool has its reply, and goes on
            LOG.warning("a model call of a tool is not counted: %s", describe_error(error))


INNER_CALLS: Final[ContextVar[InnerCalls | None]] = ContextVar("inner_calls", default=None)
"""What counts the calls of models in a context; a call that is counted elsewhere resets it."""
register_configure_hook(INNER_CALLS, inheritable=True)


def find_inner_calls(config: Mapping[str, Any] | None) -> InnerCalls | None:
    """Return what counts the calls of models around the caller; `None` outside of a block."""
    counting = INNER_CALLS.get()
    return counting if counting and counting.is_of(config or {}) else None


def is_counted(config: RunnableConfig) -> bool:
    """Return whether a model that is called with a config is counted when its call ends."""
    handlers = getattr(config.get("callbacks"), "handlers", ())
    return any(isinstance(handler, InnerCalls) and handler.is_of(config) for handler in handlers)


def _get_agent(metadata: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the key of the agent at work; threads of two databases may have one id."""
    facts = metadata or {}
    return tuple(str(facts.get(key, "")) for key in ("agent_thread_id", "agent_path", "turn_id"))


def _read_reply(response: LLMResult) -> AIMessage | None:
    """Return the reply in a result, `None` if there is none; of a text, a message with it."""
    generation = next(
        (generation for several in response.generations for generation in several), None
    )
    if isinstance(generation, ChatGeneration):
        message = generation.message
        return message if isinstance(message, AIMessage) else None
    return None if generation is None else AIMessage(generation.text)
