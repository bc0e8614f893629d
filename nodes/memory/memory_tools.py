"""The tools `recall` and `pin`, which `act` runs: they change nothing but the conversation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolCall, ToolMessage

from echelons.identity.lineage import PIN_KEY
from echelons.memory.settings import Memory
from echelons.nodes.memory.token_count import TokenCounter
from echelons.nodes.memory.window import find_pins
from echelons.nodes.planning.refused_calls import mark_refused
from echelons.nodes.tool_execution.at_most_once import Refusal
from echelons.tree.names import PIN

FOUND = 5
"""Most messages that `recall` quotes."""
QUOTE_LENGTH = 500
"""Most characters of each."""
PIN_SHARE = 4
"""All pins together have a quarter of the budget at most."""


Search: TypeAlias = Callable[[Sequence[Any], str, int], list[int]]
"""Returns the places of at most so many messages that fit the words of a query best, in order."""


class MemoryTools:
    """The tools of an agent with a memory.

    Args:
        settings: The settings of its memory.
        search: Finds messages.
    """

    def __init__(self, settings: Memory, search: Search) -> None:
        self._settings = settings
        self._search = search

    def execute(
        self, call: ToolCall, messages: Sequence[BaseMessage], refusal: Refusal | None = None
    ) -> Any:
        """Execute a call of `recall` or `pin`, and return the node's update.

        Args:
            call: The call.
            messages: The conversation of the agent's thread, with the call.
            refusal: The gate's refusal to start it, if there is one.
        """
        if refusal:
            return refusal.build_update(False)
        name = "text" if call["name"] == PIN else "query"
        given = call["args"].get(name)
        if not isinstance(given, str) or not given.strip():
            return _refuse(call, f"{name}: give a text")
        if call["name"] == PIN:
            return self._pin(call, given, messages)
        shown = [
            f"[{messages[place].type}, message {place + 1} of {len(messages)}] "
            f"{_quote(str(messages[place].text), given)}"
            for place in self._search(messages, given, FOUND)
        ]
        return _answer(call, "\n".join(shown) or "nothing in this conversation has these words")

    def _pin(self, call: ToolCall, text: str, messages: Sequence[BaseMessage]) -> dict[str, Any]:
        # Those before it in the same message are pinned at the same time.
        beside: list[str] = []
        latest = next((each for each in reversed(messages) if isinstance(each, AIMessage)), None)
        for each in latest.tool_calls if latest else ():
            if each["id"] == call["id"]:
                break
            if each["name"] == PIN and isinstance(each["args"].get("text"), str):
                beside.append(each["args"]["text"])
        held = [*find_pins(messages), *beside]
        limit = self._settings.budget // PIN_SHARE
        counter = TokenCounter.build(messages)
        tokens = counter.count([SystemMessage(each) for each in (*held, text)])
        if tokens > limit:
            why = (
                f"with the {len(held)} pins before it has {tokens:,} tokens, and all pins "
                f"together may have {limit:,}, a quarter of the memory; pin less"
            )
            return _refuse(call, why)
        return _answer(call, "pinned", {PIN_KEY: text})


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


def _refuse(call: ToolCall, why: str) -> dict[str, Any]:
    answer = ToolMessage(
        f"Error: {why}", tool_call_id=call["id"] or "", name=call["name"], status="error"
    )
    return {"messages": [mark_refused(answer)]}
