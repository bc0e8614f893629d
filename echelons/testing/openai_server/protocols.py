"""The protocols that the loopback servers speak: the path, the rules and the bodies of each.

Pure functions: a request and a reply become the JSON that the server sends. Shapes are those of
https://platform.openai.com/docs/api-reference/chat and .../responses, and of
https://docs.anthropic.com/en/api/messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from echelons.testing.provider_rules import (
    ANTHROPIC_RULES,
    CHAT_RULES,
    RESPONSES_RULES,
    Rules,
    find_fault,
)
from echelons.testing.steps import (
    Call,
    Reply,
    get_finish_reason,
    make_call_id,
    split_arguments,
    split_words,
)

Json = dict[str, Any]


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
        messages = self.body[self.messages_key]
        if isinstance(messages, str):
            return [{"role": "user", "content": messages}]
        return list(messages)

    @property
    def streams(self) -> bool:
        """Whether the client wants a stream of events."""
        return bool(self.body.get("stream"))

    @property
    def wants_usage(self) -> bool:
        """Whether the client wants the usage at the end of the stream."""
        return bool((self.body.get("stream_options") or {}).get("include_usage"))


def parse_body(raw: bytes, rules: Rules) -> dict[str, Any]:
    """Return the JSON body of a request; raise `ValueError` if it breaks a rule."""
    try:
        body: dict[str, Any] = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"the body is no JSON: {error}") from error
    is_object = isinstance(body, dict)
    if fault := find_fault(rules, body) if is_object else "the body is no JSON object":
        raise ValueError(fault)
    return body


def check_history(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield why any server refuses a conversation, even one that is not strict."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "'messages' must be a list with at least one message"
    elif not all(map(_is_message, messages)):
        yield "every message must have a 'role', and every call in it an 'id'"
    else:
        yield from CHAT_RULES["results"](body)


def _is_message(message: object) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        return False
    calls = message.get("tool_calls") or []
    return isinstance(calls, list) and all(
        isinstance(call, dict) and isinstance(call.get("id"), str) for call in calls
    )


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


@dataclass(frozen=True)
class Blocks:
    """Anthropic's reply as content blocks: thinking, tools of the server, a pause.

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
    """One protocol: where requests arrive, what it refuses, how it answers."""

    path: str
    messages_key: str
    rules: Rules
    build_whole: Callable[[ChatRequest, Any], Json]
    build_events: Callable[[ChatRequest, Any], list[Json]]
    # The events of a stream carry their names; where they do not, `[DONE]` ends it.
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
        inner: list[Json] = [{"type": f"{kind}.delta", **where, "delta": part} for part in parts]
        inner.append({"type": f"{kind}.done", **where, "arguments": item["arguments"]})
    else:
        begun = {**item, "content": [], "status": "in_progress"}
        where["content_index"] = 0
        [part] = item["content"]
        empty = {**part, "text": ""}
        inner = [{"type": "response.content_part.added", **where, "part": empty}]
        inner += [
            {"type": "response.output_text.delta", **where, "delta": word, "logprobs": []}
            for word in split_words(part["text"])
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
        call_id = make_call_id(call, len(request.messages), index)
        args = call.args if isinstance(call.args, str) else dict(call.args)
        content.append({"type": "tool_use", "id": call_id, "name": call.name, "input": args})
    stop_reasons = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
    reason = get_finish_reason(reply)
    return Blocks(content, stop_reasons.get(reason, reason), reply.usage)


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
        events += [{"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": at})
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ended, "usage": whole["usage"]})
    return [*events, {"type": "message_stop"}]


def _split_block(block: Json) -> tuple[Json, list[Json]]:
    """Return a block as its stream begins it, and the rest of it."""
    match block["type"]:
        case "text":
            words = split_words(block["text"])
            return {**block, "text": ""}, [{"type": "text_delta", "text": word} for word in words]
        case "thinking":
            begun = {**block, "thinking": "", "signature": ""}
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            return begun, [thought, {"type": "signature_delta", "signature": block["signature"]}]
        case "tool_use" | "server_tool_use":
            args = block["input"]
            parts = split_arguments(args if isinstance(args, str) else json.dumps(args))
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            return {**block, "input": {}}, deltas
        case _:
            return block, []


CHAT: Final = Api(
    "/v1/chat/completions",
    "messages",
    CHAT_RULES,
    build_completion,
    build_events,
    names_events=False,
)
RESPONSES: Final = Api(
    "/v1/responses", "input", RESPONSES_RULES, _build_response, _build_response_events
)
ANTHROPIC: Final = Api(
    "/v1/messages", "messages", ANTHROPIC_RULES, _build_message, _build_message_events
)
