"""`count_cautiously`: tokens of messages that no model has reported yet, rather too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import count_tokens_approximately

TOKENS_PER_MESSAGE: Final = 4
"""Tokens of a message beside its text, as OpenAI's cookbook counts them."""
BYTES_PER_TOKEN: Final = 3
"""Bytes of a token of what no model has reported yet: in most scripts a token has more."""


def count_cautiously(messages: Sequence[BaseMessage]) -> int:
    """Return the tokens of messages by their characters, but at least one for each three bytes."""
    return max(count_tokens_approximately(messages), count_bytes(messages))


def count_bytes(messages: Sequence[BaseMessage]) -> int:
    """Return the tokens of messages at one for each three bytes."""
    total = TOKENS_PER_MESSAGE * len(messages)
    for message in messages:
        text: Any = message.content
        # By its class, without a call: the content of most messages is a text.
        if text.__class__ is not str:
            total += count_media(message)
            text = message.text
        if message.type == "ai" and (calls := getattr(message, "tool_calls", None)):
            text = f"{text}{calls}"
        total += len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN
    return total


def count_media(message: BaseMessage) -> int:
    """Return about how many tokens the pictures and other blocks of a message have."""
    content = message.content
    if isinstance(content, str):
        return 0
    kinds = ("text", "tool_use")
    others = [each for each in content if isinstance(each, dict) and each.get("type") not in kinds]
    whole = message.model_copy(update={"content": others})
    return count_tokens_approximately([whole]) if others else 0
