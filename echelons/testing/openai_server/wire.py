"""OpenAI's JSON bodies: completions, events of a stream, models, errors.

Pure functions from a request and a reply to JSON, which `responses` sends.
Shapes are those of https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from echelons.testing.fragments import split_halves, split_words
from echelons.testing.openai_server.chat_request import ChatRequest
from echelons.testing.steps import Call, Reply, make_call_id

Json = dict[str, Any]


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
    choice: Json = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
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
            for part in split_halves(_dump_arguments(call))
        ]
        deltas += [{"tool_calls": [fragment]} for fragment in fragments]
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)})
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


def _finish_reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


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
