"""The rules of all providers together for a conversation of LangChain's messages.

The strictest provider counts, as any client may send these messages. Chat Completions refuses
pictures in results of tools, for instance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from echelons.testing.provider_rules.rule import (
    CALL_ID,
    PERSON_NAME,
    TOOL_NAME,
    Rules,
    find_data_fault,
    find_json_fault,
    find_picture_fault,
    find_url_fault,
    is_blank,
)

_REPLY_BLOCKS = ("text", "refusal")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """The call of a chat model: its messages, and its tools as the provider gets them."""

    messages: Sequence[BaseMessage]
    tools: Sequence[Mapping[str, Any]] = ()


def _walk(request: ModelRequest) -> Iterator[tuple[str, BaseMessage]]:
    for place, message in enumerate(request.messages):
        yield f"messages[{place}]", message


def _walk_replies(request: ModelRequest) -> Iterator[tuple[str, AIMessage]]:
    for place, message in _walk(request):
        if isinstance(message, AIMessage):
            yield place, message


def _walk_blocks(request: ModelRequest) -> Iterator[tuple[str, BaseMessage, Mapping[str, Any]]]:
    for place, message in _walk(request):
        if not isinstance(message.content, str):
            for block in message.content:
                as_block = {"type": "text", "text": block} if isinstance(block, str) else block
                yield place, message, as_block


def _check_messages(request: ModelRequest) -> Iterator[str]:
    if all(isinstance(message, SystemMessage) for message in request.messages):
        yield "at least one message beside the instructions is required"


def _check_first(request: ModelRequest) -> Iterator[str]:
    talk = [message for message in request.messages if not isinstance(message, SystemMessage)]
    if talk and isinstance(talk[0], AIMessage):
        yield "the first message must be the user's"


def _check_last(request: ModelRequest) -> Iterator[str]:
    last = request.messages[-1]
    if isinstance(last, AIMessage) and last.response_metadata.get("stop_reason") != "pause_turn":
        yield "the conversation must end with a message of the user, or a result"


def _check_system(request: ModelRequest) -> Iterator[str]:
    is_begun = False
    for place, message in _walk(request):
        if isinstance(message, SystemMessage) and is_begun:
            yield f"{place}: instructions stand before the conversation"
        is_begun = is_begun or not isinstance(message, SystemMessage)


def _check_json(request: ModelRequest) -> Iterator[str]:
    for place, message in _walk(request):
        calls = message.tool_calls if isinstance(message, AIMessage) else None
        if fault := find_json_fault(message.content) or find_json_fault(calls):
            yield f"{place}: {fault}"


def _check_person_names(request: ModelRequest) -> Iterator[str]:
    for place, message in _walk(request):
        # The clients send the names of all but results of tools.
        name = "" if isinstance(message, ToolMessage) else message.name
        if name and not PERSON_NAME.fullmatch(name):
            yield f"{place}.name {name!r} is not legal"


def _check_texts(request: ModelRequest) -> Iterator[str]:
    for place, _, block in _walk_blocks(request):
        if block["type"] == "text" and is_blank(block["text"]):
            yield f"{place}: text content blocks must be non-empty"


def _check_contents(request: ModelRequest) -> Iterator[str]:
    for place, message in _walk(request):
        has_calls = isinstance(message, AIMessage) and message.tool_calls
        if not has_calls and not isinstance(message, ToolMessage) and not message.content:
            yield f"{place} of the type {message.type!r} is empty"
        if isinstance(message.content, str) and message.content.isspace():
            yield f"{place}: a text of spaces only"


def _check_reply_blocks(request: ModelRequest) -> Iterator[str]:
    for place, message, block in _walk_blocks(request):
        if isinstance(message, AIMessage) and block["type"] not in _REPLY_BLOCKS:
            yield f"{place}: a block {block['type']!r} of a reply is not for each provider"


def _check_result_blocks(request: ModelRequest) -> Iterator[str]:
    for place, message, block in _walk_blocks(request):
        if isinstance(message, ToolMessage) and block["type"] != "text":
            yield f"{place}: a block {block['type']!r} of a result is not for each provider"


def _check_pictures(request: ModelRequest) -> Iterator[str]:
    for place, _, block in _walk_blocks(request):
        fault = ""
        if block["type"] == "image_url":
            address = block["image_url"]
            fault = find_url_fault(address["url"] if isinstance(address, Mapping) else address)
        elif block["type"] == "image" and "base64" in block:
            fault = find_picture_fault(block.get("mime_type"), block["base64"])
        elif block["type"] == "file" and "base64" in block:
            fault = find_data_fault(block["base64"])
        if fault:
            yield f"{place}: {fault}"


def _check_invalid_calls(request: ModelRequest) -> Iterator[str]:
    for place, message in _walk_replies(request):
        if message.invalid_tool_calls:
            yield f"{place}: the arguments of a call are no JSON object"


def _check_extra_calls(request: ModelRequest) -> Iterator[str]:
    for place, message in _walk_replies(request):
        extra = {"tool_calls", "function_call"} & {*message.additional_kwargs}
        if extra and not message.tool_calls:
            yield f"{place}: {sorted(extra)} in additional_kwargs, of calls that are none"


def _check_call_names(request: ModelRequest) -> Iterator[str]:
    for place, message in _walk_replies(request):
        for call in message.tool_calls:
            if not TOOL_NAME.fullmatch(call["name"]):
                yield f"{place}: the name {call['name'][:80]!r} of a call is not legal"


def _check_call_ids(request: ModelRequest) -> Iterator[str]:
    for place, message in _walk_replies(request):
        for call in message.tool_calls:
            if not CALL_ID.fullmatch(call["id"] or ""):
                yield f"{place}: the id {call['id']!r} of a call is not legal"


def _check_unique_ids(request: ModelRequest) -> Iterator[str]:
    seen: set[str | None] = set()
    for place, message in _walk_replies(request):
        for call in message.tool_calls:
            if call["id"] in seen:
                yield f"{place}: the id {call['id']!r} of a call was used before"
            seen.add(call["id"])


def _check_results(request: ModelRequest) -> Iterator[str]:
    unanswered: list[str | None] = []
    for place, message in _walk(request):
        if not isinstance(message, ToolMessage):
            calls = message.tool_calls if isinstance(message, AIMessage) else ()
            unanswered = [call["id"] for call in calls]
        elif message.tool_call_id in unanswered:
            unanswered.remove(message.tool_call_id)
        else:
            yield f"{place} answers no call: {message.tool_call_id!r}"


def _check_open_calls(request: ModelRequest) -> Iterator[str]:
    unanswered: set[str | None] = set()
    for message in request.messages:
        if isinstance(message, ToolMessage):
            unanswered.discard(message.tool_call_id)
        elif unanswered:
            break
        elif isinstance(message, AIMessage):
            unanswered = {call["id"] for call in message.tool_calls}
    if unanswered:
        yield f"no answer follows the calls {sorted(map(str, unanswered))}"


def _check_tools_declared(request: ModelRequest) -> Iterator[str]:
    if not request.tools and any(reply.tool_calls for _, reply in _walk_replies(request)):
        yield "a conversation with calls of tools needs tools"


def _check_tools(request: ModelRequest) -> Iterator[str]:
    names = [tool["function"]["name"] for tool in request.tools if "function" in tool]
    for name in names:
        if not TOOL_NAME.fullmatch(name):
            yield f"the name {name[:80]!r} of a tool is not legal"
    if len({*names}) < len(names):
        yield "a tool is declared twice"


MESSAGE_RULES: Final[Rules] = {
    "messages": _check_messages,
    "first": _check_first,
    "last": _check_last,
    "system": _check_system,
    "json": _check_json,
    "person_names": _check_person_names,
    "contents": _check_contents,
    "texts": _check_texts,
    "reply_blocks": _check_reply_blocks,
    "result_blocks": _check_result_blocks,
    "pictures": _check_pictures,
    "invalid_calls": _check_invalid_calls,
    "extra_calls": _check_extra_calls,
    "call_names": _check_call_names,
    "call_ids": _check_call_ids,
    "unique_ids": _check_unique_ids,
    "results": _check_results,
    "open_calls": _check_open_calls,
    "tools_declared": _check_tools_declared,
    "tools": _check_tools,
}
"""The rules for a `ModelRequest` to a chat model of any provider."""
OUTSIDE_RULES: Final[Rules] = {
    name: rule for name, rule in MESSAGE_RULES.items() if name not in ("last", "tools_declared")
}
"""The rules for a call from a foreign graph, which may be written for one provider only."""
