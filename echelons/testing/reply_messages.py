"""Conversion of scripted replies to LangChain messages, whole or as the chunks of a stream.

`ScriptedModel` calls both; the chunks of a stream add up to the whole message.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk

from echelons.testing.steps import (
    Reply,
    get_finish_reason,
    make_call_id,
    split_arguments,
    split_words,
)

MODEL_NAME = "scripted"


def as_message(reply: Reply, length: int) -> AIMessage:
    """Return the message of a reply.

    Args:
        reply: The reply.
        length: Number of messages before it, from which the ids of its calls are made.
    """
    numbered = [(call, make_call_id(call, length, i)) for i, call in enumerate(reply.calls)]
    message = AIMessage(
        content=reply.content,
        # Copied, because a tool that changes its arguments must not change the script.
        tool_calls=[
            tool_call(name=call.name, args=copy.deepcopy(dict(call.args)), id=id_)
            for call, id_ in numbered
            if not isinstance(call.args, str)
        ],
        invalid_tool_calls=[
            invalid_tool_call(
                name=call.name,
                args=call.args,
                id=id_,
                error=f"the arguments of {call.name} are not a JSON object",
            )
            for call, id_ in numbered
            if isinstance(call.args, str)
        ],
        response_metadata={
            "finish_reason": get_finish_reason(reply),
            "model_name": MODEL_NAME,
        },
    )
    if reply.reasoning is not None:
        message.additional_kwargs["reasoning_content"] = reply.reasoning
    if reply.usage is not None:
        read, written = reply.usage
        message.usage_metadata = UsageMetadata(
            input_tokens=read, output_tokens=written, total_tokens=read + written
        )
    return message


def as_chunks(message: AIMessage) -> list[AIMessageChunk]:
    """Return a message as a provider streams it: words, fragments of calls, then the usage."""
    last: dict[str, Any] = {
        "content": "",
        "response_metadata": message.response_metadata,
        "chunk_position": "last",
    }
    if message.usage_metadata is not None:
        last["usage_metadata"] = message.usage_metadata
    parts = [*_split_parts(message), last]
    return [AIMessageChunk(id=message.id, **{"content": "", **part}) for part in parts]


def _split_parts(message: AIMessage) -> Iterator[dict[str, Any]]:
    others = dict(message.additional_kwargs)
    for word in split_words(others.pop("reasoning_content", "")):
        yield {"additional_kwargs": {"reasoning_content": word}}
    if others:
        yield {"additional_kwargs": others}
    if isinstance(message.content, str):
        for word in split_words(message.content):
            yield {"content": word}
    else:  # blocks of content cannot be cut without knowing their kind
        yield {"content": message.content}
    written = [(call["name"], json.dumps(call["args"]), call["id"]) for call in message.tool_calls]
    written += [
        (call["name"] or "", call["args"] or "", call["id"]) for call in message.invalid_tool_calls
    ]
    for index, (name, args, id_) in enumerate(written):
        yield {"tool_call_chunks": [tool_call_chunk(name=name, args="", id=id_, index=index)]}
        for fragment in split_arguments(args):
            yield {"tool_call_chunks": [tool_call_chunk(args=fragment, index=index)]}
