"""A scripted reply as LangChain's messages: whole, or cut into the chunks of a stream.

``ScriptedModel`` calls both; a stream's chunks, added up, are the whole message again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import (
    ToolCallChunk,
    invalid_tool_call,
    tool_call,
    tool_call_chunk,
)

from echelons.testing.fragments import halves, words
from echelons.testing.steps import Call, Reply, call_id

MODEL_NAME = "scripted"


def as_message(reply: Reply, length: int) -> AIMessage:
    """The whole message of a reply.

    Args:
        reply: What is answered.
        length: How many messages stand before it; the ids of its calls are made of it.
    """
    numbered = [(call, call_id(call, length, i)) for i, call in enumerate(reply.calls)]
    message = AIMessage(
        content=reply.content,
        # Copied, for a tool that changes its arguments must not change the script.
        tool_calls=[
            tool_call(name=call.name, args=copy.deepcopy(dict(call.args)), id=id_)
            for call, id_ in numbered
            if not isinstance(call.args, str)
        ],
        invalid_tool_calls=[
            invalid_tool_call(name=call.name, args=call.args, id=id_, error=_why_invalid(call))
            for call, id_ in numbered
            if isinstance(call.args, str)
        ],
        response_metadata={
            "finish_reason": "tool_calls" if reply.calls else "stop",
            "model_name": MODEL_NAME,
        },
    )
    if reply.reasoning is not None:
        message.additional_kwargs["reasoning_content"] = reply.reasoning
    if reply.usage is not None:
        message.usage_metadata = _usage(*reply.usage)
    return message


def _why_invalid(call: Call) -> str:
    return f"the arguments of {call.name} are not a JSON object"


def _usage(tokens_in: int, tokens_out: int) -> UsageMetadata:
    return UsageMetadata(
        input_tokens=tokens_in, output_tokens=tokens_out, total_tokens=tokens_in + tokens_out
    )


def as_chunks(message: AIMessage) -> list[AIMessageChunk]:
    """The message cut as a provider streams it: words, fragments of calls, then the usage."""
    parts = [
        *_reasoning_parts(message),
        *_content_parts(message),
        *({"tool_call_chunks": [fragment]} for fragment in _call_fragments(message)),
    ]
    last: dict[str, Any] = {
        "content": "",
        "response_metadata": message.response_metadata,
        "chunk_position": "last",
    }
    if message.usage_metadata is not None:
        last["usage_metadata"] = message.usage_metadata
    return [AIMessageChunk(id=message.id, **{"content": "", **part}) for part in [*parts, last]]


def _reasoning_parts(message: AIMessage) -> Iterator[dict[str, Any]]:
    others = dict(message.additional_kwargs)
    for word in words(others.pop("reasoning_content", "")):
        yield {"additional_kwargs": {"reasoning_content": word}}
    if others:
        yield {"additional_kwargs": others}


def _content_parts(message: AIMessage) -> Iterator[dict[str, Any]]:
    if isinstance(message.content, str):
        for word in words(message.content):
            yield {"content": word}
    else:  # blocks of content cannot be cut without knowing their kind
        yield {"content": message.content}


def _call_fragments(message: AIMessage) -> Iterator[ToolCallChunk]:
    written = [(call["name"], json.dumps(call["args"]), call["id"]) for call in message.tool_calls]
    written += [
        (call["name"] or "", call["args"] or "", call["id"]) for call in message.invalid_tool_calls
    ]
    for index, (name, args, id_) in enumerate(written):
        yield tool_call_chunk(name=name, args="", id=id_, index=index)
        for fragment in halves(args):
            yield tool_call_chunk(args=fragment, index=index)
