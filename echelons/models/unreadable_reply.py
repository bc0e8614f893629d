"""`read_unreadable`: what a client could not read of a reply, as a reply that can be answered.

Clients put a reply into an `AIMessage`, which takes only objects as the arguments of a call. Some
models write a list, a number or a text, and of whole replies the clients then raise pydantic's
error, in place of the reply that they would have streamed.
"""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import AIMessage, InvalidToolCall
from pydantic import ValidationError

_FAULT = "the arguments are no JSON object"


def read_unreadable(error: ValidationError) -> AIMessage | None:
    """Return a reply whose calls are all invalid; `None` if the error is about something else.

    The rest of the reply is lost with the error: its text, the names of its calls, its usage.

    Examples:
        >>> try:
        ...     AIMessage("", tool_calls=[{"name": "look", "args": [1], "id": "1"}])
        ... except ValidationError as error:
        ...     read_unreadable(error).invalid_tool_calls[0]["args"]
        '[1]'
    """
    calls: list[InvalidToolCall] = []
    for fault in error.errors(include_url=False):
        match fault["loc"]:
            case ("tool_calls", int(), "args"):
                args = _dump(fault["input"])
                kind: Any = "invalid_tool_call"
                calls.append(
                    InvalidToolCall(type=kind, name=None, args=args, id=None, error=_FAULT)
                )
            case _:
                return None
    return AIMessage("", invalid_tool_calls=calls) if calls else None


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)
