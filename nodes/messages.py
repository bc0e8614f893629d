"""Content from tools, subordinates, graphs and people, made fit to be stored and sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from langchain_core.messages import AIMessage, BaseMessage
from pydantic_core import to_jsonable_python

from echelons.delegation.request import Usage
from echelons.identity.lineage import CALLS_KEY, PROMPT_KEY, is_from_model
from echelons.langgraph_internals import CHECKPOINTER_KEY
from echelons.models.usage import get_whole_usage
from echelons.text.content_blocks import replace_faulty_blocks
from echelons.text.error_lines import describe_error, sanitize_arguments, sanitize_value
from echelons.text.input_limits import shorten_repr

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
    prompt = metadata.get(PROMPT_KEY)
    for noted in (metadata.get(CALLS_KEY), prompt.get("usage") if prompt else None):
        if noted:
            usage += Usage.model_validate(noted)
    return usage


_FREE_FIELDS = ("additional_kwargs", "response_metadata", "artifact")
"""Fields of a message in which code of others may put anything."""
_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})


def accept_message(message: M, config: Mapping[str, Any]) -> M:
    """Return a message from outside as it can be stored, and sent to any model.

    The same object if nothing has to be replaced.

    Args:
        message: The message.
        config: The config of the task that has made it, with the saver of its run.
    """
    message = sanitize_message(message)
    update: dict[str, Any] = {}
    content: Any = message.content
    if not isinstance(content, str):
        blocks = replace_faulty_blocks(content, from_model=isinstance(message, AIMessage))
        blocks = [block if _is_json(block) else make_json(block) for block in blocks]
        if blocks != content:
            update["content"] = blocks
    serializer = getattr(config.get("configurable", {}).get(CHECKPOINTER_KEY), "serde", None)
    for name in _FREE_FIELDS:
        value = getattr(message, name, None)
        if isinstance(value, dict) and _PLAIN_TYPES.issuperset(map(type, value.values())):
            continue
        if value is not None and serializer and (why := _find_storage_fault(value, serializer)):
            update[name] = _leave_out(value, why, serializer)
    return message.model_copy(update=update) if update else message


def render_value(value: Any) -> str:
    r"""Return any value as a text: a text itself, anything else as JSON.

    Examples:
        >>> render_value("Ros\u00e9"), render_value({"n": 1}), render_value(float("nan"))
        ('Rosé', '{"n": 1}', '"NaN"')
    """
    clean = sanitize_value(value)
    return clean if isinstance(clean, str) else json.dumps(make_json(clean), ensure_ascii=False)


def make_json(value: Any) -> Any:
    """Return a value as JSON: what JSON does not have becomes a text.

    Examples:
        >>> make_json({"share": float("nan"), 1: {2}})
        {'share': 'NaN', '1': [2]}
    """
    try:
        plain = to_jsonable_python(sanitize_value(value), fallback=shorten_repr)
        # An object may hold anything below what it shows at first.
        return json.loads(json.dumps(sanitize_value(plain)), parse_constant=str)
    except Exception as error:  # noqa: BLE001  an object's own code may raise anything
        return f"[left out: {type(value).__name__}, which {describe_error(error)}]"


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _find_storage_fault(value: Any, serializer: Any) -> str:
    try:
        serializer.dumps_typed(value)
    except Exception as error:  # noqa: BLE001  a serializer raises anything
        return describe_error(error)
    return ""


def _leave_out(value: Any, why: str, serializer: Any) -> Any:
    """Return a value without what cannot be stored of it; of a mapping, part by part."""
    if isinstance(value, Mapping):
        return {
            str(key): _leave_out(item, fault, serializer) if fault else item
            for key, item in value.items()
            for fault in [_find_storage_fault({str(key): item}, serializer)]
        }
    return f"[left out: {type(value).__name__}: {why}]"
