"""OpenAI's rules for requests of its Responses API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from echelons.testing.provider_rules.rule import (
    CALL_ID,
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

_ROLES = ("user", "system", "developer", "assistant")
_OUTPUT_PARTS = ("output_text", "refusal")
_INPUT_PARTS = ("input_text", "input_image", "input_file")
_ITEMS = frozenset({
    "message", "function_call", "function_call_output", "reasoning", "item_reference", "compaction",
    "file_search_call", "web_search_call", "computer_call", "computer_call_output",
    "code_interpreter_call", "image_generation_call", "local_shell_call",
    "local_shell_call_output", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response",
    "mcp_call", "custom_tool_call", "custom_tool_call_output", "apply_patch_call",
    "apply_patch_call_output", "tool_search_call", "tool_search_output",
})  # fmt: skip
_ID_PREFIXES = {"function_call": "fc", "reasoning": "rs", "message": "msg"}


def _walk(body: Json) -> Iterator[tuple[str, Json, str]]:
    if not isinstance(body["input"], str):
        for place, item in enumerate(body["input"]):
            yield f"input[{place}]", item, item.get("type", "message")


def _walk_calls(body: Json) -> Iterator[tuple[str, Json]]:
    for place, item, kind in _walk(body):
        if kind == "function_call":
            yield place, item


def _walk_parts(body: Json) -> Iterator[tuple[str, tuple[str, ...], Json]]:
    for place, item, kind in _walk(body):
        field = {"message": "content", "function_call_output": "output"}.get(kind)
        if field and isinstance(item[field], list):
            kinds = _OUTPUT_PARTS if item.get("role") == "assistant" else _INPUT_PARTS
            for part in item[field]:
                yield place, kinds, part


def _check_items(body: Json) -> Iterator[str]:
    if not body["input"]:
        yield "input: an empty array"
    for place, item, kind in _walk(body):
        if kind not in _ITEMS:
            yield f"Invalid value: {kind!r} ({place}.type)"
        if kind == "message" and item["role"] not in _ROLES:
            yield f"{place} has the unknown role {item['role']!r}"


def _check_item_ids(body: Json) -> Iterator[str]:
    seen: set[str] = set()
    for place, item, kind in _walk(body):
        id_ = item.get("id")
        if id_ is None:
            continue
        if not id_.startswith(prefix := _ID_PREFIXES.get(kind, "")):
            yield f"Invalid '{place}.id': {id_!r}. Expected an ID that begins with {prefix!r}."
        if id_ in seen and kind != "message":
            yield f"Duplicate item found with id {id_} ({place})"
        seen.add(id_)


def _check_contents(body: Json) -> Iterator[str]:
    for place, item, kind in _walk(body):
        if kind == "message" and (not isinstance(item["content"], str | list)):
            yield f"{place}.content is neither a text nor a list of parts"
        if kind == "message" and item["content"] == []:
            yield f"Invalid '{place}.content': empty array"
        if kind == "function_call_output" and not isinstance(item["output"], str | list):
            yield f"{place}.output is neither a text nor a list of parts"


def _check_parts(body: Json) -> Iterator[str]:
    for place, kinds, part in _walk_parts(body):
        if part["type"] not in kinds:
            yield f"Invalid value: {part['type']!r}. Supported values are: {kinds} ({place})"
        elif part["type"].endswith("_text") and not isinstance(part["text"], str):
            yield f"{place} has a text that is none"


def _check_pictures(body: Json) -> Iterator[str]:
    for place, _, part in _walk_parts(body):
        if part["type"] != "input_image" or part.get("file_id"):
            continue
        if fault := find_url_fault(part.get("image_url")):
            yield f"{place}: {fault}"


def _check_files(body: Json) -> Iterator[str]:
    for place, _, part in _walk_parts(body):
        if part["type"] != "input_file" or part.get("file_id") or part.get("file_url"):
            continue
        if fault := find_file_fault(part):
            yield f"{place}: {fault}"


def _check_empty_replies(body: Json) -> Iterator[str]:
    for place, item, kind in _walk(body):
        if kind == "message" and item["role"] == "assistant":
            content = item["content"]
            if isinstance(content, str):
                is_empty = not content.strip()
            else:
                is_empty = not any(part.get("text") or part.get("refusal") for part in content)
            if is_empty:
                yield f"{place} of the assistant is empty"


def _check_call_names(body: Json) -> Iterator[str]:
    for place, call in _walk_calls(body):
        if not TOOL_NAME.fullmatch(call["name"]):
            yield f"Invalid '{place}.name': {call['name'][:80]!r}"


def _check_arguments(body: Json) -> Iterator[str]:
    for place, call in _walk_calls(body):
        if fault := find_arguments_fault(call["arguments"]):
            yield f"{place}: the arguments are {fault}"


def _check_call_ids(body: Json) -> Iterator[str]:
    for place, call in _walk_calls(body):
        if not CALL_ID.fullmatch(call["call_id"]):
            yield f"Invalid '{place}.call_id': {call['call_id'][:80]!r}"


def _check_unique_ids(body: Json) -> Iterator[str]:
    seen: set[str] = set()
    for place, call in _walk_calls(body):
        if call["call_id"] in seen:
            yield f"Duplicate call_id {call['call_id']!r} ({place})"
        seen.add(call["call_id"])


def _check_results(body: Json) -> Iterator[str]:
    unanswered: set[str] = set()
    for place, item, kind in _walk(body):
        if kind == "function_call":
            unanswered.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in unanswered:
                yield f"No tool call found for function call output with call_id {item['call_id']}."
            unanswered.discard(item["call_id"])
        elif unanswered and kind == "message" and item["role"] == "user":
            yield f"{place} comes before the outputs of {', '.join(sorted(unanswered))}"
    for call_id in sorted(unanswered):
        yield f"No tool output found for function call {call_id}."


def _check_tools(body: Json) -> Iterator[str]:
    tools = body.get("tools") or ()
    functions = [tool for tool in tools if tool["type"] == "function"]
    yield from find_function_faults("tools[]", functions)
    if fault := find_count_fault(tools):
        yield fault


RESPONSES_RULES: Final[Rules] = {
    "items": _check_items,
    "json": check_json,
    "item_ids": _check_item_ids,
    "contents": _check_contents,
    "parts": _check_parts,
    "pictures": _check_pictures,
    "files": _check_files,
    "empty_reply": _check_empty_replies,
    "call_names": _check_call_names,
    "arguments": _check_arguments,
    "call_ids": _check_call_ids,
    "unique_ids": _check_unique_ids,
    "results": _check_results,
    "tools": _check_tools,
}
"""The rules of the Responses API, for the body of a request."""
