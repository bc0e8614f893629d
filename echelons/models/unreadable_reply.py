"""`read_unreadable`: what a client could not read of a reply, as a reply that can be answered.

Clients put a reply into an `AIMessage`, which takes only objects as the arguments of a call. Some
models write a list, a number or a text, and of whole replies the clients then raise pydantic's
error, in place of the reply that they would have streamed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, InvalidToolCall
from pydantic import ValidationError

_FAULT = "the arguments are no JSON object"


def read_unreadable(error: ValidationError) -> AIMessage | None:
    """Return a reply in which such calls are invalid; `None` if the error is about something else.

    What the client would have added to the finished message is lost with the error, such as its
    usage.

    Examples:
        >>> try:
        ...     AIMessage("", tool_calls=[{"name": "look", "args": [1], "id": "1"}])
        ... except ValidationError as error:
        ...     call = read_unreadable(error).invalid_tool_calls[0]
        ...     call["name"], call["args"]
        ('look', '[1]')
    """
    written: dict[int, Any] = {}
    for fault in error.errors(include_url=False):
        match fault["loc"]:
            case ("tool_calls", int(place), "args"):
                written[place] = fault["input"]
            case _:
                return None
    if not written:
        return None
    fields = _find_fields(error)
    calls = fields.get("tool_calls") or [{}] * (max(written) + 1)
    broken = [_build_invalid(calls[place], args) for place, args in written.items()]
    fields["tool_calls"] = [call for n, call in enumerate(calls) if call and n not in written]
    fields["invalid_tool_calls"] = [*(fields.get("invalid_tool_calls") or ()), *broken]
    return AIMessage(**{"content": "", **fields})


def _find_fields(error: ValidationError) -> dict[str, Any]:
    """Return what the message would have been made of; empty if that is not to be found.

    The error itself has only the faulty values. The rest stands where it was raised.
    """
    frames, place = list[Any](), error.__traceback__
    while place is not None:
        frames.append(place.tb_frame)
        place = place.tb_next
    for frame in reversed(frames):
        data = frame.f_locals.get("data")
        if frame.f_code.co_name == "__init__" and isinstance(data, Mapping):
            return dict(data) if "tool_calls" in data else {}
    return {}


def _build_invalid(call: Mapping[str, Any], args: Any) -> InvalidToolCall:
    kind: Any = "invalid_tool_call"
    name, call_id = call.get("name"), call.get("id")
    return InvalidToolCall(type=kind, name=name, args=_dump(args), id=call_id, error=_FAULT)


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
