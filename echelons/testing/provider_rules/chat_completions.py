"""The rules of OpenAI, and of servers that speak its Chat Completions, for requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from echelons.testing.provider_rules.rule import (
    CALL_ID,
    PERSON_NAME,
    TOOL_NAME,
    Json,
    Rules,
    check_json,
    find_arguments_fault,
    find_count_fault,
    find_file_fault,
    find_function_faults,
    find_url_fault,
)

_PARTS = {
    "system": ("text",),
    "developer": ("text",),
    "tool": ("text",),
    "assistant": ("text", "refusal"),
    "user": ("text", "image_url", "input_audio", "file"),
}


def _walk(body: Json) -> Iterator[tuple[str, Json]]:
    for place, message in enumerate(body["messages"]):
        yield f"messages[{place}]", message


def _walk_parts(body: Json) -> Iterator[tuple[str, Json, Json]]:
    for place, message in _walk(body):
        if isinstance(message.get("content"), list):
            for part in message["content"]:
                yield place, message, part


def _walk_calls(body: Json) -> Iterator[tuple[str, Json]]:
    for place, message in _walk(body):
        for call in message.get("tool_calls") or ():
            yield f"{place}.tool_calls", call


def _check_roles(body: Json) -> Iterator[str]:
    if not body["messages"]:
        yield "messages: an empty array"
    for place, message in _walk(body):
        if message["role"] not in _PARTS:
            yield f"{place} has the unknown role {message['role']!r}"


def _check_person_names(body: Json) -> Iterator[str]:
    for place, message in _walk(body):
        name = message.get("name")
        if name is not None and not PERSON_NAME.fullmatch(name):
            yield f"Invalid '{place}.name': string does not match pattern"


def _check_contents(body: Json) -> Iterator[str]:
    for place, message in _walk(body):
        content = message.get("content")
        if message["role"] != "assistant" and content is None:
            yield f"{place} of the role {message['role']!r} has no content"
        if not isinstance(content, str | list | None):
            yield f"{place}.content is neither a text nor a list of parts"
        if content == []:
            yield f"Invalid '{place}.content': empty array"


def _check_parts(body: Json) -> Iterator[str]:
    for place, message, part in _walk_parts(body):
        kinds = _PARTS[message["role"]]
        if part["type"] not in kinds:
            yield f"Invalid value: {part['type']!r}. Supported values are: {kinds} ({place})"
        if part["type"] == "text" and not isinstance(part["text"], str):
            yield f"{place} has a text that is none"


def _check_pictures(body: Json) -> Iterator[str]:
    for place, _, part in _walk_parts(body):
        if part["type"] == "image_url" and (fault := find_url_fault(part["image_url"]["url"])):
            yield f"{place}: {fault}"


def _check_files(body: Json) -> Iterator[str]:
    for place, _, part in _walk_parts(body):
        if part["type"] != "file" or part["file"].get("file_id"):
            continue
        if fault := find_file_fault(part["file"]):
            yield f"{place}: {fault}"


def _check_empty_replies(body: Json) -> Iterator[str]:
    for place, message in _walk(body):
        if message["role"] == "assistant" and not message.get("tool_calls"):
            content = message.get("content")
            is_empty = not content.strip() if isinstance(content, str) else not content
            if is_empty and not message.get("refusal"):
                yield f"{place} of the assistant has neither content nor calls"


def _check_call_lists(body: Json) -> Iterator[str]:
    for place, message in _walk(body):
        if message.get("tool_calls") == [] or "function_call" in message:
            yield f"Invalid '{place}.tool_calls': empty array, or a call in the old form"


def _check_call_names(body: Json) -> Iterator[str]:
    for place, call in _walk_calls(body):
        if not TOOL_NAME.fullmatch(call["function"]["name"]):
            yield f"Invalid '{place}.function.name': {call['function']['name'][:80]!r}"


def _check_arguments(body: Json) -> Iterator[str]:
    for place, call in _walk_calls(body):
        if fault := find_arguments_fault(call["function"]["arguments"]):
            yield f"{place}: the arguments are {fault}"


def _check_call_ids(body: Json) -> Iterator[str]:
    for place, call in _walk_calls(body):
        if not CALL_ID.fullmatch(call["id"]):
            yield f"Invalid '{place}.id': {call['id'][:80]!r}"


def _check_unique_ids(body: Json) -> Iterator[str]:
    seen: set[str] = set()
    for place, call in _walk_calls(body):
        if call["id"] in seen:
            yield f"Duplicate value for 'tool_call_id' of {call['id']!r} ({place})"
        seen.add(call["id"])


def _check_results(body: Json) -> Iterator[str]:
    unanswered: list[str] = []
    for place, message in _walk(body):
        if message["role"] == "tool":
            if message["tool_call_id"] not in unanswered:
                yield f"{place} answers no call: {message['tool_call_id']!r}"
            else:
                unanswered.remove(message["tool_call_id"])
        elif unanswered:
            yield f"{place} comes before the answers to {', '.join(unanswered)}"
            unanswered = []
        if message["role"] == "assistant":
            unanswered = [call["id"] for call in message.get("tool_calls") or ()]
    if unanswered:
        yield f"no answer follows the calls {', '.join(unanswered)}"


def _check_tools(body: Json) -> Iterator[str]:
    tools = body.get("tools") or ()
    functions = [tool["function"] for tool in tools if tool.get("function")]
    yield from find_function_faults("tools[].function", functions)
    if fault := find_count_fault(tools):
        yield fault


def _check_strict_schemas(body: Json) -> Iterator[str]:
    for tool in body.get("tools") or ():
        function = tool.get("function") or {}
        if function.get("strict"):
            schema = function.get("parameters") or {}
            if {*schema.get("properties", {})} - {*schema.get("required", [])}:
                yield f"Invalid schema for function {function['name']!r}: 'required' lacks a key"
            if schema.get("additionalProperties") is not False:
                yield f"Invalid schema for function {function['name']!r}: 'additionalProperties'"


CHAT_RULES: Final[Rules] = {
    "roles": _check_roles,
    "json": check_json,
    "person_names": _check_person_names,
    "contents": _check_contents,
    "parts": _check_parts,
    "pictures": _check_pictures,
    "files": _check_files,
    "empty_reply": _check_empty_replies,
    "call_lists": _check_call_lists,
    "call_names": _check_call_names,
    "arguments": _check_arguments,
    "call_ids": _check_call_ids,
    "unique_ids": _check_unique_ids,
    "results": _check_results,
    "tools": _check_tools,
    "strict_schemas": _check_strict_schemas,
}
"""The rules of Chat Completions, for the body of a request."""
