"""OpenAI's JSON bodies: requests, completions, events of a stream, models, errors.

Pure functions: requests are validated as a provider validates them, and a request and a
reply become the JSON that `responses` sends.
Shapes are those of https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from echelons.testing.provider_rules import Rules, find_fault
from echelons.testing.steps import (
    Call,
    Reply,
    get_finish_reason,
    make_call_id,
    split_arguments,
    split_words,
)

Json = dict[str, Any]


class RefusedRequest(Exception):
    """A request that no provider accepts; the server answers with status 400."""


@dataclass(frozen=True)
class ChatRequest:
    """One request for a completion.

    Attributes:
        number: Its index among all requests for completions, from 0.
        headers: The HTTP headers, their names in lower case.
        body: The JSON body.
        messages_key: The key of the conversation in the body.
    """

    number: int
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    messages_key: str = "messages"

    @property
    def model(self) -> str:
        """The name of the requested model."""
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation; of the Responses API its items."""
        said = self.body[self.messages_key]
        return [{"role": "user", "content": said}] if isinstance(said, str) else list(said)

    @property
    def streams(self) -> bool:
        """Whether the client wants a stream of events."""
        return bool(self.body.get("stream"))

    @property
    def wants_usage(self) -> bool:
        """Whether the client wants the usage at the end of the stream."""
        return bool((self.body.get("stream_options") or {}).get("include_usage"))


def parse_body(raw: bytes, rules: Rules) -> dict[str, Any]:
    """Return the JSON body of a request.

    Raises:
        RefusedRequest: It is not a JSON object, or breaks a rule.
    """
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise RefusedRequest(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise RefusedRequest("the body is no JSON object")
    if fault := find_fault(rules, body):
        raise RefusedRequest(fault)
    return body


def check_history(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield why any server refuses a conversation, even one that is not strict."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "'messages' must be a list with at least one message"
    elif not all(map(_is_message, messages)):
        yield "every message must have a 'role', and every call in it an 'id'"
    elif fault := find_history_fault(messages):
        yield fault


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


def build_completion(request: ChatRequest, reply: Reply) -> Json:
    """Return the whole answer as one object."""
    message: Json = {"role": "assistant", "content": reply.content or None}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [
            _build_call(request, call, index, _dump_arguments(call))
            for index, call in enumerate(reply.calls)
        ]
    choice: Json = {"index": 0, "message": message, "finish_reason": get_finish_reason(reply)}
    body = _build_frame(request, "chat.completion", [{**choice, "logprobs": None}])
    if reply.usage is not None:
        body["usage"] = _build_usage(reply.usage)
    return body


def build_events(request: ChatRequest, reply: Reply) -> list[Json]:
    """Return the answer as the events of a stream, without the closing `[DONE]`."""
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": word} for word in split_words(reply.reasoning or "")]
    deltas += [{"content": word} for word in split_words(reply.content)]
    # The head of each call, then its arguments in fragments, as OpenAI streams them.
    for at, call in enumerate(reply.calls):
        fragments = [{"index": at, **_build_call(request, call, at, "")}]
        fragments += [
            {"index": at, "function": {"arguments": part}}
            for part in split_arguments(_dump_arguments(call))
        ]
        deltas += [{"tool_calls": [fragment]} for fragment in fragments]
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": get_finish_reason(reply)})
    stream = [_build_frame(request, "chat.completion.chunk", [choice]) for choice in choices]
    if request.wants_usage and reply.usage is not None:
        last = _build_frame(request, "chat.completion.chunk", [])
        stream.append({**last, "usage": _build_usage(reply.usage)})
    return stream


def build_model_list(names: Sequence[str]) -> Json:
    """Return the list of models."""
    models = [{"id": name, "object": "model", "created": 0, "owned_by": "test"} for name in names]
    return {"object": "list", "data": models}


def build_error(message: str, kind: str, code: str | None = None) -> Json:
    """Return the body of an error response."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _build_frame(request: ChatRequest, kind: str, choices: list[Json]) -> Json:
    return {
        "id": f"chatcmpl-{request.number}",
        "object": kind,
        "created": 0,
        "model": request.model,
        "choices": choices,
    }


def _dump_arguments(call: Call) -> str:
    return call.args if isinstance(call.args, str) else json.dumps(dict(call.args))


def _build_call(request: ChatRequest, call: Call, index: int, arguments: str) -> Json:
    return {
        "id": make_call_id(call, len(request.messages), index),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _build_usage(usage: tuple[int, int]) -> Json:
    tokens_in, tokens_out = usage
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
