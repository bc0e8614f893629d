"""Messages in a form that every store and every provider's client takes.

``reason``, ``act`` and ``run`` mend what models, tools and functions give them.
"""

from __future__ import annotations

from typing import TypeVar

from langchain_core.messages import BaseMessage

from echelons.text.sanitize import mend

M = TypeVar("M", bound=BaseMessage)

FIELDS = (
    "id",
    "content",
    "additional_kwargs",
    "tool_calls",
    "invalid_tool_calls",
    "tool_call_id",
)
"""What of a message comes from outside and goes to other models."""


def mended(message: M) -> M:
    """Return a message without lone surrogates; the same one if it has none."""
    held = {name: value for name in FIELDS if (value := getattr(message, name, None))}
    whole = {name: mend(value) for name, value in held.items()}
    return message if whole == held else message.model_copy(update=whole)
