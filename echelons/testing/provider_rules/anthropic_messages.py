"""Anthropic's rules for requests of its Messages API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from echelons.testing.provider_rules.rule import (
    CALL_ID,
    Json,
    Rules,
    check_json,
    find_data_fault,
    find_picture_fault,
    is_blank,
)

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_USER_BLOCKS = frozenset(
    {"text", "image", "document", "tool_result", "search_result", "container_upload"}
)
_ASSISTANT_BLOCKS = frozenset({
    "text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "mcp_tool_use",
    "mcp_tool_result", "compaction",
})  # fmt: skip
_RESULT_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_reference"})
_KEYS = {
    "text": {"type", "text", "cache_control", "citations"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
"""The keys of blocks: extra inputs are not permitted."""
_THINKING = ("thinking", "redacted_thinking")


def _list_blocks(content: Any) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _walk(body: Json) -> Iterator[tuple[str, str, list[Json]]]:
    for place, message in enumerate(body["messages"]):
        yield f"messages.{place}", message["role"], _list_blocks(message["content"])


def _walk_blocks(body: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield each block, and those in results after their result, with the role `result`."""
    for place, role, blocks in _walk(body):
        for block in blocks:
            yield place, role, block
            if block["type"] == "tool_result" and isinstance(block.get("content"), list):
                for inner in block["content"]:
                    yield place, "result", inner


def _walk_calls(body: Json) -> Iterator[tuple[str, Json]]:
    for place, role, block in _walk_blocks(body):
        if role == "assistant" and block["type"] == "tool_use":
            yield place, block


def _check_roles(body: Json) -> Iterator[str]:
    if not body["messages"]:
        yield "messages: at least one message is required"
    for place, role, _ in _walk(body):
        if role not in ("user", "assistant"):
            yield f"{place}: unexpected role {role!r}"


def _check_first(body: Json) -> Iterator[str]:
    if body["messages"] and body["messages"][0]["role"] != "user":
        yield "messages: first message must use the user role"


def _check_last(body: Json) -> Iterator[str]:
    last = body["messages"][-1]
    # A reply may be continued if it paused for a tool of the server.
    kinds = {block["type"] for block in _list_blocks(last["content"])}
    if last["role"] == "assistant" and "server_tool_use" not in kinds:
        yield "the conversation must end with a user message: no prefill of the assistant"


def _check_contents(body: Json) -> Iterator[str]:
    for place, _, blocks in _walk(body):
        if not blocks:
            yield f"{place}: all messages must have non-empty content"


def _check_texts(body: Json) -> Iterator[str]:
    for place, _, block in _walk_blocks(body):
        if block["type"] == "text" and is_blank(block["text"]):
            yield f"{place}: text content blocks must be non-empty"


def _check_block_types(body: Json) -> Iterator[str]:
    for place, role, block in _walk_blocks(body):
        kind = block["type"]
        if role == "assistant":
            is_legal = kind in _ASSISTANT_BLOCKS or kind.endswith("_tool_result")
        else:
            is_legal = kind in (_RESULT_BLOCKS if role == "result" else _USER_BLOCKS)
        if not is_legal:
            yield f"{place}: Input tag {kind!r} does not match any of the expected tags"


def _check_block_keys(body: Json) -> Iterator[str]:
    for place, _, block in _walk_blocks(body):
        extra = {*block} - _KEYS.get(block["type"], {*block})
        if extra:
            yield f"{place}.{block['type']}: Extra inputs are not permitted: {sorted(extra)}"


def _check_signatures(body: Json) -> Iterator[str]:
    for place, _, block in _walk_blocks(body):
        if block["type"] == "thinking" and not block.get("signature"):
            yield f"{place}: thinking.signature: Field required"


def _check_thinking_first(body: Json) -> Iterator[str]:
    is_on = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    replies = [message for message in _walk(body) if message[1] == "assistant"] if is_on else []
    if replies:
        place, _, blocks = replies[-1]
        has_calls = any(block["type"] == "tool_use" for block in blocks)
        if has_calls and blocks[0]["type"] not in _THINKING:
            yield f"{place}.content.0.type: Expected `thinking`, but found {blocks[0]['type']!r}"


def _check_pictures(body: Json) -> Iterator[str]:
    for place, _, block in _walk_blocks(body):
        if block["type"] in ("image", "document") and block["source"]["type"] == "base64":
            source = block["source"]
            if block["type"] == "image":
                fault = find_picture_fault(source["media_type"], source["data"])
            elif source["media_type"] != "application/pdf":
                fault = f"the type {source['media_type']!r} of a document is not supported"
            else:
                fault = find_data_fault(source["data"])
            if fault:
                yield f"{place}: {fault}"


def _check_call_names(body: Json) -> Iterator[str]:
    for place, block in _walk_calls(body):
        if not _NAME.fullmatch(block["name"]):
            yield f"{place}: tool_use.name: String should match pattern"


def _check_inputs(body: Json) -> Iterator[str]:
    for place, block in _walk_calls(body):
        if not isinstance(block["input"], dict):
            yield f"{place}: tool_use.input: Input should be a valid dictionary"


def _check_call_ids(body: Json) -> Iterator[str]:
    for place, block in _walk_calls(body):
        if not CALL_ID.fullmatch(block["id"]):
            yield f"{place}: tool_use.id: String should match pattern"


def _check_unique_ids(body: Json) -> Iterator[str]:
    seen: set[str] = set()
    for place, block in _walk_calls(body):
        if block["id"] in seen:
            yield f"{place}: `tool_use` ids must be unique: {block['id']!r}"
        seen.add(block["id"])


def _check_results(body: Json) -> Iterator[str]:
    unanswered: list[str] = []
    for place, _, blocks in _walk(body):
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if missing := [call_id for call_id in unanswered if call_id not in results]:
            yield f"{place}: `tool_use` ids without `tool_result` blocks before it: {missing}"
        if extra := [call_id for call_id in results if call_id not in unanswered]:
            yield f"{place}: unexpected `tool_use_id` found in `tool_result` blocks: {extra}"
        if len(results) > len({*results}):
            yield f"{place}: each tool_use must have a single result"
        if kinds[: len(results)] != ["tool_result"] * len(results):
            yield f"{place}: `tool_result` blocks must come first"
        unanswered = [block["id"] for block in blocks if block["type"] == "tool_use"]
    if unanswered:
        yield f"`tool_use` ids without `tool_result` blocks after them: {unanswered}"


def _check_tools_declared(body: Json) -> Iterator[str]:
    kinds = {block["type"] for _, _, block in _walk_blocks(body)}
    if kinds & {"tool_use", "tool_result"} and not body.get("tools"):
        yield "Requests which include `tool_use` or `tool_result` blocks must define `tools`"


def _check_tools(body: Json) -> Iterator[str]:
    names: set[str] = set()
    for tool in body.get("tools") or ():
        if not _NAME.fullmatch(tool["name"]):
            yield f"tools: name: String should match pattern: {tool['name'][:150]!r}"
        if tool["name"] in names:
            yield f"tools: Tool names must be unique: {tool['name']!r}"
        names.add(tool["name"])


ANTHROPIC_RULES: Final[Rules] = {
    "json": check_json,
    "roles": _check_roles,
    "first": _check_first,
    "last": _check_last,
    "contents": _check_contents,
    "texts": _check_texts,
    "block_types": _check_block_types,
    "block_keys": _check_block_keys,
    "signatures": _check_signatures,
    "thinking_first": _check_thinking_first,
    "pictures": _check_pictures,
    "call_names": _check_call_names,
    "inputs": _check_inputs,
    "call_ids": _check_call_ids,
    "unique_ids": _check_unique_ids,
    "results": _check_results,
    "tools_declared": _check_tools_declared,
    "tools": _check_tools,
}
"""The rules of Anthropic's Messages API, for the body of a request."""
