"""Sanitizes messages for storage and for providers' clients, and reads their usage.

`reason`, `act` and `run` sanitize what models, tools and functions return.
"""

from __future__ import annotations

from typing import TypeVar

from langchain_core.messages import AIMessage, BaseMessage

from echelons.delegation.request import Usage
from echelons.identity.lineage import CALLS_KEY, MEMORY_KEY, is_from_model
from echelons.models.door.call_usage import get_whole_usage
from echelons.text.sanitize import sanitize_arguments, sanitize_value

M = TypeVar("M", bound=BaseMessage)

SANITIZED_FIELDS = (
    "id",
    "content",
    "additional_kwargs",
    "tool_calls",
    "invalid_tool_calls",
    "tool_call_id",
)
"""Fields of a message that come from outside and are sent to other models."""


def sanitize_message(message: M) -> M:
    """Return a message without lone surrogates, and with calls whose arguments are JSON.

    The same object if there is nothing to change.
    """
    fields = {**vars(message), **(message.__pydantic_extra__ or {})}
    held = {name: value for name, value in fields.items() if value and name in SANITIZED_FIELDS}
    whole = {name: sanitize_value(value) for name, value in held.items()}
    for call in whole.get("tool_calls", ()):
        call["args"] = sanitize_arguments(call["args"])
    return message if whole == held else message.model_copy(update=whole)


def read_message_usage(message: BaseMessage) -> Usage:
    """Return the tokens and model calls of a message: none, unless a model wrote it."""
    if not isinstance(message, AIMessage) or not is_from_model(message.response_metadata):
        return Usage()
    tokens = get_whole_usage(message)
    return Usage(
        input_tokens=tokens["input_tokens"] if tokens else 0,
        output_tokens=tokens["output_tokens"] if tokens else 0,
        model_calls=1,
        unknown_calls=0 if tokens else 1,
    )


def read_spent_usage(message: BaseMessage) -> Usage:
    """Return the usage of a message with that of the calls that were made for it."""
    usage, metadata = read_message_usage(message), message.response_metadata
    memory = metadata.get(MEMORY_KEY)
    for noted in (metadata.get(CALLS_KEY), memory.get("usage") if memory else None):
        if noted:
            usage += Usage.model_validate(noted)
    return usage
