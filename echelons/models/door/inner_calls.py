"""`InnerCalls`: counts the models that a tool or a function of an agent calls by itself.

LangChain notifies its callback handlers of each call. A handler in a context variable reaches every
model that is called in the context of the tool, whatever config the call is given. What the tool
does in threads and processes of its own is not seen.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Any, Final, Self
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers.context import register_configure_hook

from echelons.delegation.request import Usage
from echelons.guards.budget import get_allowance
from echelons.guards.gate import get_gate
from echelons.models.door.call_usage import ModelDescription, build_noted_call
from echelons.models.length_refusal import read_length_refusal
from echelons.text.error_lines import describe_error

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
