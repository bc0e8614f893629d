"""`MemoryFeature`: shortened prompts, and tools that search what is no longer shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolCall, ToolMessage
from pydantic import BaseModel

from echelons.checkpoints.threads.message_search import search_messages
from echelons.features.feature import (
    AgentHooks,
    AgentStep,
    BuiltIn,
    Feature,
    Place,
    Prompt,
    ToolScope,
)
from echelons.features.memory.prompt_memory import PromptMemory, find_pins
from echelons.features.memory.settings import Memory
from echelons.identity.lineage import PIN_KEY
from echelons.models import is_offline_planner
from echelons.nodes.long_results import TokenCounter
from echelons.nodes.planning.repeated_calls import build_error_update
from echelons.plans import Plan
from echelons.tree.names import PIN, RECALL

FOUND = 5
"""Most messages that `recall` quotes."""
QUOTE_LENGTH = 500
"""Most characters of each."""
PIN_SHARE = 4
"""All pins together have a quarter of the budget at most."""


Search: TypeAlias = Callable[[Sequence[Any], str, int], list[int]]
"""Returns the places of at most so many messages that fit the words of a query best, in order."""


class RecallArgs(BaseModel):
    """Arguments of `recall`."""

    query: str


class PinArgs(BaseModel):
    """Arguments of `pin`."""

    text: str


class Recall(BuiltIn):
    """The tool that quotes earlier messages of the conversation."""

    name, arguments = RECALL, RecallArgs

    def __init__(self, search: Search) -> None:
        self._search = search

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it."""
        return self._describe({"query": {"type": "string"}}, ["query"])

    def execute(self, call: ToolCall, scope: ToolScope) -> Plan[dict[str, Any]]:
        """Return the update with the messages that fit a query best."""
        if scope.refusal:
            return dict(scope.refusal.build_update(False))
        query = call["args"].get("query")
        if not isinstance(query, str) or not query.strip():
            return build_error_update(call, "query: give a text")
        messages = yield from scope.read_thread()
        shown = [
            f"[{messages[place].type}, message {place + 1} of {len(messages)}] "
            f"{_quote(str(messages[place].text), query)}"
            for place in self._search(messages, query, FOUND)
        ]
        return _answer(call, "\n".join(shown) or "nothing in this conversation has these words")


class Pin(BuiltIn):
    """The tool that keeps a text in what the model reads."""

    name, arguments = PIN, PinArgs
    is_silent = True

    def __init__(self, budget: int) -> None:
        self._limit = budget // PIN_SHARE

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it."""
        return self._describe({"text": {"type": "string"}}, ["text"])

    def execute(self, call: ToolCall, scope: ToolScope) -> Plan[dict[str, Any]]:
        """Return the update that pins a text, if all pins together do not become too large."""
        if scope.refusal:
            return dict(scope.refusal.build_update(False))
        text = call["args"].get("text")
        if not isinstance(text, str) or not text.strip():
            return build_error_update(call, "text: give a text")
        messages = yield from scope.read_thread()
        pins = [*find_pins(messages), *_list_pins_before(call, messages)]
        tokens = TokenCounter.build(messages).count([SystemMessage(pin) for pin in (*pins, text)])
        if tokens > self._limit:
            why = (
                f"with the {len(pins)} pins before it has {tokens:,} tokens, and all pins "
                f"together may have {self._limit:,}, a quarter of the memory; pin less"
            )
            return build_error_update(call, why)
        return _answer(call, "pinned", {PIN_KEY: text})


def _list_pins_before(call: ToolCall, messages: Sequence[BaseMessage]) -> list[str]:
    """Return the texts that calls before this one pin in the same message, at the same time."""
    pins: list[str] = []
    replies = (message for message in reversed(messages) if isinstance(message, AIMessage))
    for other in next(replies, AIMessage("")).tool_calls:
        if other["id"] == call["id"]:
            break
        if other["name"] == PIN and isinstance(other["args"].get("text"), str):
            pins.append(other["args"]["text"])
    return pins


def _quote(text: str, query: str) -> str:
    """Return a message, or the part of a long one around the first word of a query."""
    whole = " ".join(text.split())
    if len(whole) <= QUOTE_LENGTH:
        return whole
    lower = whole.lower()
    places = [place for word in query.lower().split() if (place := lower.find(word)) >= 0]
    begin = max(0, min(places, default=0) - QUOTE_LENGTH // 4)
    return f"…{whole[begin : begin + QUOTE_LENGTH]}…"


def _answer(call: ToolCall, text: str, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    message = ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"])
    message.response_metadata = dict(metadata or {})
    return {"messages": [message]}


class MemoryHooks(AgentHooks):
    """The memory of one agent."""

    has_notices = True

    def __init__(self, settings: Memory, place: Place) -> None:
        if place.can_call:
            self.tools = (Recall(search_messages), Pin(settings.budget))
        model, writes = place.model, settings.summarizer == "model"
        if settings.summarizer is None:
            writes = not is_offline_planner(model)
        # The offline planner, and a function that chooses, write no summaries.
        has_writer = writes and hasattr(model, "bind_tools")
        self._memory = PromptMemory(settings, model if has_writer else None)

    def prepare_prompt(self, prompt: Prompt, step: AgentStep) -> Plan[Prompt]:
        """Make the conversation fit into the budget of the memory."""
        return self._memory.shorten(prompt, step.config)


class MemoryFeature(Feature):
    """The memory of agents."""

    name: ClassVar[str] = "memory"

    def bind(self, place: Place) -> AgentHooks | None:
        """Return the memory of an agent."""
        settings = place.agent.memory
        return MemoryHooks(settings, place) if settings else None


FEATURE = MemoryFeature()
