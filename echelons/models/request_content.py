"""The content of a request: the blocks of its messages, its calls, and their results."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeAlias

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolCall,
    ToolMessage,
    convert_to_openai_data_block,
    is_data_content_block,
)

from echelons.models.resolution import ClientRules

UNKNOWN_TOOL: Final = "unknown_tool"
"""The name under which a call is sent whose own name no provider accepts."""
RAW_ARGUMENTS: Final = "invalid_arguments"
"""The argument that holds what a model wrote in place of a JSON object."""
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
CALL_BLOCKS = {
    "tool_use": "id",
    "tool_call": "id",
    "function_call": "call_id",
    "custom_tool_call": "call_id",
}
"""Types of content blocks that repeat a call, with the key of its id."""
_REPEATED_CALLS = {
    "anthropic": ("tool_use", "tool_call"),
    "responses": ("function_call", "tool_call"),
}
"""Those that clients send; another client's, of an earlier model, they would pass on."""
Sent: TypeAlias = tuple[str, str, ToolCall]
"""A call: the id under which it is sent, the name that the model wrote, and what is sent."""
_PLAIN_VALUES = frozenset({str, int, bool, type(None)})
_TEXT = frozenset({str})


def match_results(
    messages: Sequence[BaseMessage],
    calls: Sequence[ToolCall],
    renamed: Sequence[tuple[str, str, str]],
) -> tuple[list[tuple[ToolMessage | None, Sent]], list[BaseMessage]]:
    """Return one result for each call, as they came, and the messages that are none.

    A call without a result comes last, and a second result of a call is left out.
    """
    open_calls: dict[str, list[Sent]] = {}
    for (old, new, name), call in zip(renamed, calls, strict=True):
        # Calls of one id, which an update of the state may bring, are answered in their order.
        open_calls.setdefault(old, []).append((new, name, call))
    results: list[tuple[ToolMessage | None, Sent]] = []
    others: list[BaseMessage] = []
    for message in messages:
        if not isinstance(message, ToolMessage) or message.tool_call_id not in open_calls:
            others.append(message)
        elif unanswered := open_calls[message.tool_call_id]:
            results.append((message, unanswered.pop(0)))
    rest = [sent for unanswered in open_calls.values() for sent in unanswered]
    return [*results, *((None, sent) for sent in rest)], others


def fit_call_block(
    block: Mapping[str, Any],
    open_calls: list[tuple[tuple[str, str, str], ToolCall]],
    wire_format: str,
) -> Mapping[str, Any] | None:
    """Return a block that repeats a call, with the call's id and name; `None` without one.

    The calls are taken in their order: ids that were doubled are other ones by now.
    """
    kind = str(block["type"])
    if kind not in _REPEATED_CALLS.get(wire_format, ()):
        # The client sends the calls themselves.
        return None
    key = CALL_BLOCKS[kind]
    same_id = [pair for pair in open_calls if pair[0][0] == block.get(key)]
    same_name = [pair for pair in open_calls if pair[0][2] == block.get("name")]
    if not (matches := (same_id or same_name)):
        return None
    open_calls.remove(matches[0])
    call = matches[0][1]
    fit: dict[str, Any] = {**block, key: call["id"], "name": call["name"]}
    if kind == "function_call":
        if fit != block or not _is_json_object(block.get("arguments")):
            fit["arguments"] = json.dumps(call["args"], ensure_ascii=False)
            # The server's own item of that id says something else.
            fit.pop("id", None)
    else:
        fit["input" if kind == "tool_use" else "args"] = call["args"]
    return block if fit == block else fit


def fit_args(args: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that are JSON, the same object if they are."""
    if {*map(type, args.values())} <= _PLAIN_VALUES and {*map(type, args)} <= _TEXT:
        return args
    try:
        json.dumps(args, allow_nan=False)
    except (TypeError, ValueError):
        return {str(key): fit_json(value) for key, value in args.items()}
    return args


def fit_json(value: Any) -> Any:
    """Return a value that JSON has."""
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): fit_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [fit_json(part) for part in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def _is_json_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse_constant), dict)
    except (TypeError, ValueError, RecursionError):
        return False


def _refuse_constant(word: str) -> None:
    # Python reads `NaN` and `Infinity`, which no JSON has.
    raise ValueError(word)


NO_TEXT: Final = "…"
"""The text of a reply that has none: many providers refuse an empty message."""
ILLEGAL_IN_NAME = re.compile(r"[\s<|\\/>]+")
PLAIN = frozenset({"text", "refusal"})
_ANTHROPIC_BLOCKS = frozenset(
    {"text", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "compaction"}
)
_SERVER_USES = frozenset({"server_tool_use", "mcp_tool_use"})
_SHOWN_AFTER = "[{kind}: in the message after the results]"
_NOT_SHOWN = "[{kind}: it cannot be shown to this model]"


def is_plain(message: BaseMessage) -> bool:
    """Return whether a message without calls is one that any client takes, as nearly all are.

    Hardly anything is called, for it is asked of each message. One that begins with a space or a
    character beyond ASCII is looked at closely.
    """
    text, name, kwargs = message.content, message.name, message.additional_kwargs
    is_text = type(text) is str and "!" <= text[:1] <= "~"
    has_calls = "tool_calls" in kwargs or "function_call" in kwargs
    return is_text and not has_calls and not (name and ILLEGAL_IN_NAME.search(name))


def fit_person_name(message: BaseMessage) -> dict[str, Any]:
    """Return the update that makes the name of a message's author legal."""
    if message.name and ILLEGAL_IN_NAME.search(message.name):
        return {"name": ILLEGAL_IN_NAME.sub("_", message.name)}
    return {}


def fit_message(message: BaseMessage, rules: ClientRules) -> BaseMessage:
    """Return a message of a user as the client takes it."""
    update = fit_person_name(message)
    content = message.content
    if type(content) is str:
        if not content.strip():
            update["content"] = NO_TEXT
    else:
        blocks = [_fit_block(block, rules) for block in content]
        blocks = [block for block in blocks if not _is_blank(block)] or [build_text(NO_TEXT)]
        if blocks != content:
            update["content"] = blocks
    return message.model_copy(update=update) if update else message


def _fit_block(block: Any, rules: ClientRules) -> Any:
    if isinstance(block, str):
        return build_text(block)
    if _is_data(block) and not _can_send(block, rules):
        return build_text(_NOT_SHOWN.format(kind=block["type"]))
    return block


def fit_result_content(content: Any, rules: ClientRules, shown: list[Any]) -> Any:
    """Return a result's content; pictures that must stand elsewhere are added to `shown`."""
    blocks: list[Any] = []
    for block in content:
        if isinstance(block, str) or block.get("type") == "text":
            text = block if isinstance(block, str) else str(block.get("text", ""))
            if text.strip():
                blocks.append(block if isinstance(block, dict) else build_text(text))
        elif not _is_data(block):
            blocks.append(build_text(_dump(block)))
        elif not _can_send(block, rules):
            blocks.append(build_text(_NOT_SHOWN.format(kind=block["type"])))
        elif rules.takes_data_in_results:
            blocks.append(block)
        else:
            shown.append(block)
            blocks.append(build_text(_SHOWN_AFTER.format(kind=block["type"])))
    if not blocks:
        return ""
    return content if blocks == content else blocks


def takes_block(block: Mapping[str, Any], wire_format: str, is_own: bool) -> bool:
    """Return whether a block of a reply, which is no text and no call, is sent back."""
    kind = str(block.get("type"))
    if wire_format == "openai":
        return kind in PLAIN
    if kind == "thinking" and wire_format == "anthropic" and not block.get("signature"):
        # Servers that speak its protocol may not sign; it takes only signed ones.
        return False
    if is_own:
        return True
    if wire_format == "anthropic":
        return kind in _ANTHROPIC_BLOCKS or kind.endswith("_tool_result")
    return False


def drop_open_uses(reply: AIMessage, following: Sequence[BaseMessage]) -> AIMessage:
    """Return a reply without the server's tool calls that no result came for.

    A paused reply may end with one. It is sent back as it is until something else follows.
    """
    content: list[Any] = list(reply.content)
    open_uses = {block["id"] for block in content if _is_server_use(block)}
    if not open_uses:
        return reply
    for message in (reply, *following):
        if not isinstance(message, AIMessage):
            break
        if type(message.content) is list:
            blocks: list[Any] = [block for block in message.content if isinstance(block, dict)]
            open_uses -= {block.get("tool_use_id") for block in blocks}
    if not open_uses:
        return reply
    kept = [part for part in content if not (_is_server_use(part) and part["id"] in open_uses)]
    fit = complete_content(kept, NO_TEXT) if has_no_text(kept) else kept
    return reply.model_copy(update={"content": fit})


def _is_server_use(block: Any) -> bool:
    is_use = isinstance(block, dict) and block.get("type") in _SERVER_USES
    return is_use and bool(block.get("id"))


def _is_data(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "image_url" or is_data_content_block(dict(block))


def _can_send(block: Mapping[str, Any], rules: ClientRules) -> bool:
    """Return whether the client can send a picture or a file."""
    kind = block["type"]
    if kind == "image_url":
        return True
    if rules.wire_format == "anthropic":
        return kind == "image" or (kind == "file" and block.get("mime_type") == "application/pdf")
    if rules.wire_format in ("openai", "responses"):
        api: Any = "responses" if rules.wire_format == "responses" else "chat/completions"
        try:
            convert_to_openai_data_block(dict(block), api=api)
        except Exception:  # noqa: BLE001  whatever it raises would end every later turn
            return False
    return True


def _is_blank(block: Any) -> bool:
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def has_no_text(content: Any) -> bool:
    """Return whether content has nothing that a provider takes for a whole message."""
    if type(content) is str:
        return not content.strip()
    hidden = ("thinking", "redacted_thinking", "reasoning")
    return all(block.get("type") in hidden for block in content)


def complete_content(content: Any, text: str) -> Any:
    """Return content with a text; signed blocks stay as they are."""
    return [*content, build_text(text)] if isinstance(content, list) and content else text


def find_refusal(message: AIMessage) -> str:
    """Return the words with which a model refused, else a text for a reply without one."""
    refusal = message.additional_kwargs.get("refusal")
    return refusal if isinstance(refusal, str) and refusal.strip() else NO_TEXT


def add_text(content: Any, text: str) -> Any:
    """Return content that begins with a text."""
    return f"{text}{content}" if type(content) is str else [build_text(text), *content]


def build_text(text: str) -> dict[str, Any]:
    """Return a content block of a text."""
    return {"type": "text", "text": text}


def _dump(block: Mapping[str, Any]) -> str:
    return json.dumps(fit_json(block), ensure_ascii=False)


def read_text(content: Any) -> str:
    """Return the texts of content, each on lines of its own."""
    if type(content) is str:
        return content
    texts = (block if isinstance(block, str) else block.get("text") for block in content)
    return "\n".join(str(text) for text in texts if text)
