"""The calls in a request: their arguments, the blocks that repeat them, and their results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeAlias

from langchain_core.messages import BaseMessage, ToolCall, ToolMessage

UNKNOWN_TOOL: Final = "unknown_tool"
"""The name under which a call is sent whose own name no provider accepts."""
RAW_ARGUMENTS: Final = "invalid_arguments"
"""The argument that holds what a model wrote in place of a JSON object."""
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
CALL_BLOCKS = {
    "tool_use": "id",
    "tool_call": "id",
    "function_call": "call_id",
    "custom_tool_call": "call_id",
}
"""Types of content blocks that repeat a call, with the key of its id."""
_REPEATED_CALLS = {
    "anthropic": ("tool_use", "tool_call"),
    "responses": ("function_call", "tool_call"),
}
"""Those that clients send; another client's, of an earlier model, they would pass on."""
Sent: TypeAlias = tuple[str, str, ToolCall]
"""A call: the id under which it is sent, the name that the model wrote, and what is sent."""
_PLAIN_VALUES = frozenset({str, int, bool, type(None)})
_TEXT = frozenset({str})


def match_results(
    messages: Sequence[BaseMessage],
    calls: Sequence[ToolCall],
    renamed: Sequence[tuple[str, str, str]],
) -> tuple[list[tuple[ToolMessage | None, Sent]], list[BaseMessage]]:
    """Return one result for each call, as they came, and the messages that are none.

    A call without a result comes last, and a second result of a call is left out.
    """
    open_calls: dict[str, list[Sent]] = {}
    for (old, new, name), call in zip(renamed, calls, strict=True):
        # Calls of one id, which an update of the state may bring, are answered in their order.
        open_calls.setdefault(old, []).append((new, name, call))
    results: list[tuple[ToolMessage | None, Sent]] = []
    others: list[BaseMessage] = []
    for message in messages:
        if not isinstance(message, ToolMessage) or message.tool_call_id not in open_calls:
            others.append(message)
        elif unanswered := open_calls[message.tool_call_id]:
            results.append((message, unanswered.pop(0)))
    rest = [sent for unanswered in open_calls.values() for sent in unanswered]
    return [*results, *((None, sent) for sent in rest)], others


def fit_call_block(
    block: Mapping[str, Any],
    open_calls: list[tuple[tuple[str, str, str], ToolCall]],
    wire_format: str,
) -> Mapping[str, Any] | None:
    """Return a block that repeats a call, with the call's id and name; `None` without one.

    The calls are taken in their order: ids that were doubled are other ones by now.
    """
    kind = str(block["type"])
    if kind not in _REPEATED_CALLS.get(wire_format, ()):
        # The client sends the calls themselves.
        return None
    key = CALL_BLOCKS[kind]
    same_id = [pair for pair in open_calls if pair[0][0] == block.get(key)]
    same_name = [pair for pair in open_calls if pair[0][2] == block.get("name")]
    if not (matches := (same_id or same_name)):
        return None
    open_calls.remove(matches[0])
    call = matches[0][1]
    fit: dict[str, Any] = {**block, key: call["id"], "name": call["name"]}
    if kind == "function_call":
        if fit != block or not _is_json_object(block.get("arguments")):
            fit["arguments"] = json.dumps(call["args"], ensure_ascii=False)
            # The server's own item of that id says something else.
            fit.pop("id", None)
    else:
        fit["input" if kind == "tool_use" else "args"] = call["args"]
    return block if fit == block else fit


def fit_args(args: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that are JSON, the same object if they are."""
    if {*map(type, args.values())} <= _PLAIN_VALUES and {*map(type, args)} <= _TEXT:
        return args
    try:
        json.dumps(args, allow_nan=False)
    except (TypeError, ValueError):
        return {str(key): fit_json(value) for key, value in args.items()}
    return args


def fit_json(value: Any) -> Any:
    """Return a value that JSON has."""
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): fit_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [fit_json(part) for part in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def _is_json_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse_constant), dict)
    except (TypeError, ValueError, RecursionError):
        return False


def _refuse_constant(word: str) -> None:
    # Python reads `NaN` and `Infinity`, which no JSON has.
    raise ValueError(word)
