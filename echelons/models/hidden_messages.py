"""Messages that a repair hides from the models of a thread, with the results of their calls. Pure.

A hidden result of a call that is not hidden keeps its place, with a text that says so: providers
refuse a call without a result.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

HIDDEN_RESULT: Final = "[this result was taken out, as the model's provider refused it]"


def find_hidden(messages: Sequence[BaseMessage], ids: Collection[str]) -> frozenset[str]:
    """Return those of some ids that a conversation has, with the results of hidden calls."""
    hidden, open_calls = set[str](), set[str]()
    for message in messages:
        if isinstance(message, AIMessage):
            open_calls = set()
            if message.id in ids:
                open_calls = {str(call["id"]) for call in message.tool_calls}
        if message.id and (
            message.id in ids
            or (isinstance(message, ToolMessage) and message.tool_call_id in open_calls)
        ):
            hidden.add(message.id)
    return frozenset(hidden)


def leave_out_hidden(
    messages: Sequence[BaseMessage], hidden: frozenset[str]
) -> Sequence[BaseMessage]:
    """Return a conversation without the messages that are hidden."""
    if not hidden or hidden.isdisjoint([message.id for message in messages]):
        return messages
    hidden_ids = find_hidden(messages, hidden)
    called = {
        call["id"]
        for message in messages
        if isinstance(message, AIMessage) and message.id not in hidden_ids
        for call in message.tool_calls
    }
    kept: list[BaseMessage] = []
    for message in messages:
        if message.id not in hidden_ids:
            kept.append(message)
        elif isinstance(message, ToolMessage) and message.tool_call_id in called:
            kept.append(message.model_copy(update={"content": HIDDEN_RESULT, "artifact": None}))
    return kept
