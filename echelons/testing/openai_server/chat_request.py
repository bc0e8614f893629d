"""A chat completion request, validated as a provider validates it.

The server makes one for each call; scripts and tests read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class RefusedRequest(Exception):
    """A request that no provider accepts; the server answers with status 400."""


@dataclass(frozen=True)
class ChatRequest:
    """One request for a completion.

    Attributes:
        number: Its index among all requests for completions, from 0.
        headers: The HTTP headers, their names in lower case.
        body: The JSON body.
    """

    number: int
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The name of the requested model."""
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation."""
        return list(self.body["messages"])

    @property
    def streams(self) -> bool:
        """Whether the client wants a stream of events."""
        return bool(self.body.get("stream"))

    @property
    def wants_usage(self) -> bool:
        """Whether the client wants the usage at the end of the stream."""
        return bool((self.body.get("stream_options") or {}).get("include_usage"))


def parse_body(raw: bytes) -> dict[str, Any]:
    """Return the JSON body of a request.

    Raises:
        RefusedRequest: It is not a JSON object with a conversation that a provider accepts.
    """
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise RefusedRequest(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise RefusedRequest("the body is no JSON object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedRequest("'messages' must be a list with at least one message")
    if not all(map(_is_message, messages)):
        raise RefusedRequest("every message must have a 'role', and every call in it an 'id'")
    if fault := find_history_fault(messages):
        raise RefusedRequest(fault)
    return body


def _is_message(message: object) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    calls = message.get("tool_calls") or []
    return isinstance(calls, list) and all(
        isinstance(call, dict) and isinstance(call.get("id"), str) for call in calls
    )


def find_history_fault(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return what is wrong with the tool calls of a conversation, or None.

    The rule is OpenAI's: each call is answered by one tool message before any other message
    follows, and no tool message answers a call that was not made.
    """
    unanswered: list[str] = []
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message.get("tool_call_id") not in unanswered:
                return f"messages[{place}] answers no call: {message.get('tool_call_id')!r}"
            unanswered.remove(message["tool_call_id"])
        elif unanswered:
            return f"messages[{place}] comes before the answers to {', '.join(unanswered)}"
        else:
            unanswered = [call["id"] for call in message.get("tool_calls") or ()]
    return f"no answer follows the calls {', '.join(unanswered)}" if unanswered else None
