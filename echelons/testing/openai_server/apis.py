"""The protocols that the loopback servers speak: the path, the rules and the bodies of each.

Shapes are those of https://platform.openai.com/docs/api-reference/responses and
https://docs.anthropic.com/en/api/messages; `wire` has those of Chat Completions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from echelons.testing.openai_server import wire
from echelons.testing.openai_server.wire import ChatRequest, Json
from echelons.testing.provider_rules import (
    ANTHROPIC_RULES,
    CHAT_RULES,
    RESPONSES_RULES,
    Rules,
)
from echelons.testing.steps import (
    Call,
    Reply,
    get_finish_reason,
    make_call_id,
    split_arguments,
    split_words,
)


@dataclass(frozen=True)
class Blocks:
    """A reply of Anthropic's as content blocks: thinking, tools of the server, a pause.

    Attributes:
        content: The blocks.
        stop_reason: Why the model stopped, such as `pause_turn`; `end_turn` or `tool_use` if empty.
        usage: Tokens in and tokens out.
    """

    content: Sequence[Mapping[str, Any]]
    stop_reason: str = ""
    usage: tuple[int, int] | None = None
    latency: float = 0.0


@dataclass(frozen=True)
class Api:
    """One protocol.

    Attributes:
        path: Where requests arrive.
        messages_key: The key of the conversation in a request.
        rules: What it refuses.
        build_whole: Builds a whole answer.
        build_events: Builds the events of a streamed answer.
        names_events: Whether events of a stream carry their names; without, a mark ends it.
    """

    path: str
    messages_key: str
    rules: Rules
    build_whole: Callable[[ChatRequest, Any], Json]
    build_events: Callable[[ChatRequest, Any], list[Json]]
    names_events: bool = True


def _build_response(request: ChatRequest, reply: Reply) -> Json:
    status = "incomplete" if reply.finish_reason == "length" else "completed"
    tokens_in, tokens_out = reply.usage or (0, 0)
    body = _build_response_head(request, status)
    if status == "incomplete":
        body["incomplete_details"] = {"reason": "max_output_tokens"}
    usage = {
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {**body, "output": _build_items(request, reply), "usage": usage}


def _build_response_head(request: ChatRequest, status: str) -> Json:
    return {
        "id": f"resp_{request.number}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": request.model,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
    }


def _build_items(request: ChatRequest, reply: Reply) -> list[Json]:
    items: list[Json] = []
    if reply.content or not reply.calls:
        part = {"type": "output_text", "text": reply.content, "annotations": []}
        items.append(
            {
                "id": f"msg_{request.number}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    for index, call in enumerate(reply.calls):
        items.append(
            {
                "id": f"fc_{request.number}_{index}",
                "type": "function_call",
                "status": "completed",
                "call_id": make_call_id(call, len(request.messages), index),
                "name": call.name,
                "arguments": _dump_arguments(call),
            }
        )
    return items


def _build_response_events(request: ChatRequest, reply: Reply) -> list[Json]:
    events: list[Json] = [
        {"type": "response.created", "response": _build_response_head(request, "in_progress")}
    ]
    for at, item in enumerate(_build_items(request, reply)):
        events += _build_item_events(at, item)
    whole = _build_response(request, reply)
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _build_item_events(at: int, item: Json) -> list[Json]:
    where = {"output_index": at, "item_id": item["id"]}
    if item["type"] == "function_call":
        begun = {**item, "arguments": "", "status": "in_progress"}
        kind = "response.function_call_arguments"
        parts = split_arguments(item["arguments"])
        inner: list[Json] = [{"type": f"{kind}.delta", **where, "delta": each} for each in parts]
        inner.append({"type": f"{kind}.done", **where, "arguments": item["arguments"]})
    else:
        begun = {**item, "content": [], "status": "in_progress"}
        where["content_index"] = 0
        [part] = item["content"]
        empty = {**part, "text": ""}
        inner = [{"type": "response.content_part.added", **where, "part": empty}]
        inner += [
            {"type": "response.output_text.delta", **where, "delta": each, "logprobs": []}
            for each in split_words(part["text"])
        ]
        done = {"type": "response.output_text.done", **where, "text": part["text"]}
        inner.append({**done, "logprobs": []})
        inner.append({"type": "response.content_part.done", **where, "part": part})
    return [
        {"type": "response.output_item.added", "output_index": at, "item": begun},
        *inner,
        {"type": "response.output_item.done", "output_index": at, "item": item},
    ]


def _as_blocks(request: ChatRequest, reply: Reply | Blocks) -> Blocks:
    if isinstance(reply, Blocks):
        return reply
    content: list[Json] = [{"type": "text", "text": reply.content}] if reply.content else []
    for index, call in enumerate(reply.calls):
        made = make_call_id(call, len(request.messages), index)
        args = call.args if isinstance(call.args, str) else dict(call.args)
        content.append({"type": "tool_use", "id": made, "name": call.name, "input": args})
    known = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
    reason = get_finish_reason(reply)
    return Blocks(content, known.get(reason, reason), reply.usage)


def _build_message(request: ChatRequest, reply: Reply | Blocks) -> Json:
    blocks = _as_blocks(request, reply)
    calls = any(block["type"] == "tool_use" for block in blocks.content)
    tokens_in, tokens_out = blocks.usage or (0, 0)
    return {
        "id": f"msg_{request.number}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [dict(block) for block in blocks.content],
        "stop_reason": blocks.stop_reason or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": tokens_in, "output_tokens": tokens_out},
    }


def _build_message_events(request: ChatRequest, reply: Reply | Blocks) -> list[Json]:
    whole = _build_message(request, reply)
    head = {**whole, "content": [], "stop_reason": None}
    events: list[Json] = [{"type": "message_start", "message": head}]
    for at, block in enumerate(whole["content"]):
        begun, deltas = _split_block(block)
        events.append({"type": "content_block_start", "index": at, "content_block": begun})
        events += [{"type": "content_block_delta", "index": at, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", "index": at})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": whole["usage"]})
    return [*events, {"type": "message_stop"}]


def _split_block(block: Json) -> tuple[Json, list[Json]]:
    """Return a block as its stream begins it, and the rest of it."""
    match block["type"]:
        case "text":
            words = split_words(block["text"])
            return {**block, "text": ""}, [{"type": "text_delta", "text": each} for each in words]
        case "thinking":
            begun = {**block, "thinking": "", "signature": ""}
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            return begun, [thought, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use" | "server_tool_use":
            given = block["input"]
            parts = split_arguments(given if isinstance(given, str) else json.dumps(given))
            deltas = [{"type": "input_json_delta", "partial_json": each} for each in parts]
            return {**block, "input": {}}, deltas
        case _:
            return block, []


def _dump_arguments(call: Call) -> str:
    return call.args if isinstance(call.args, str) else json.dumps(dict(call.args))


CHAT: Final = Api(
    "/v1/chat/completions",
    "messages",
    CHAT_RULES,
    wire.build_completion,
    wire.build_events,
    names_events=False,
)
RESPONSES: Final = Api(
    "/v1/responses", "input", RESPONSES_RULES, _build_response, _build_response_events
)
ANTHROPIC: Final = Api(
    "/v1/messages", "messages", ANTHROPIC_RULES, _build_message, _build_message_events
)
