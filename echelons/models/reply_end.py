"""How a reply ended, and what is made of one that cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from langchain_core.messages import AIMessage, InvalidToolCall
from pydantic import ValidationError

_FAULT = "the arguments are no JSON object"


def read_unreadable(error: ValidationError) -> AIMessage | None:
    """Return a reply in which such calls are invalid; `None` if the error is about something else.

    What the client would have added to the finished message is lost with the error, such as its
    usage.
    """
    written: dict[int, Any] = {}
    for fault in error.errors(include_url=False):
        match fault["loc"]:
            case ("tool_calls", int(place), "args"):
                written[place] = fault["input"]
            case _:
                return None
    if not written:
        return None
    fields = _find_fields(error)
    calls = fields.get("tool_calls") or [{}] * (max(written) + 1)
    broken = [_build_invalid(calls[place], args) for place, args in written.items()]
    fields["tool_calls"] = [call for n, call in enumerate(calls) if call and n not in written]
    fields["invalid_tool_calls"] = [*(fields.get("invalid_tool_calls") or ()), *broken]
    return AIMessage(**{"content": "", **fields})


def _find_fields(error: ValidationError) -> dict[str, Any]:
    """Return what the message would have been made of; empty if that is not to be found.

    The error itself has only the faulty values. The rest stands where it was raised.
    """
    frames, place = list[Any](), error.__traceback__
    while place is not None:
        frames.append(place.tb_frame)
        place = place.tb_next
    for frame in reversed(frames):
        data = frame.f_locals.get("data")
        if frame.f_code.co_name == "__init__" and isinstance(data, Mapping):
            return dict(data) if "tool_calls" in data else {}
    return {}


def _build_invalid(call: Mapping[str, Any], args: Any) -> InvalidToolCall:
    kind: Any = "invalid_tool_call"
    name, call_id = call.get("name"), call.get("id")
    return InvalidToolCall(type=kind, name=name, args=_dump(args), id=call_id, error=_FAULT)


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


EndKind: TypeAlias = Literal["complete", "length", "filtered", "refused", "paused", "empty"]
"""How a reply ended: whole; cut at the length limit; cut or held back by the provider's filter;
refused by the model or its provider; paused, to be sent back and continued; or without any text
and call."""

MAX_PAUSES: Final = 10
"""How often a paused reply is continued."""


class ReplyEnd(NamedTuple):
    """How a reply ended."""

    kind: EndKind
    why: str = ""

    @property
    def reason(self) -> str:
        """It as the reason of a response, in one line."""
        why = " ".join(self.why.split())
        return f"{self.kind}: {why}" if why else self.kind


COMPLETE: Final = ReplyEnd("complete")
_KEYS = (
    "finish_reason",
    "stop_reason",
    "stopReason",
    "finishReason",
    "done_reason",
    "incomplete_details",
)
"""Metadata keys under which providers say why a reply ended."""
_WHOLE = frozenset({"tool_calls", "tool_use", "stop", "end_turn", "STOP"})
"""Their usual words for a whole reply, which need no comparison."""


def _compile(words: str) -> re.Pattern[str]:
    # An enum may be stored with its class; merged chunks of a stream may repeat the word.
    return re.compile(rf"(?:(?:\w+\.)?(?:{words}))+", re.IGNORECASE)


_WORDS: Final[Mapping[EndKind, re.Pattern[str]]] = {
    "length": _compile(
        r"length|(?:max|model)_length|max_(?:output_|completion_)?tokens|token_limit|error_limit"
        r"|model_context_window_exceeded|insufficient_system_resource"
        r"|stream_cut|abort(?:ed)?|network_error"
    ),
    "filtered": _compile(
        r"content_filter(?:ed)?|guardrail_intervened|safety|recitation|blocklist"
        r"|prohibited_content|spii|image_safety|image_prohibited_content|image_recitation"
        r"|language|error_toxic|sensitive"
    ),
    "refused": _compile(r"refusal"),
    "paused": _compile(r"pause_turn"),
}
"""The words of OpenAI, Anthropic, Google, Amazon, Mistral, Cohere, DeepSeek, Ollama and others."""


def read_reply_end(message: AIMessage) -> ReplyEnd:
    """Return how a reply ended."""
    metadata = message.response_metadata
    for key in _KEYS:
        if key in metadata and (end := _read_word(key, metadata[key])):
            if end.kind == "paused" and not message.content:
                # There is nothing to send back, and so nothing to continue.
                break
            refusal = find_refusal(message) or str(message.text).strip()
            return ReplyEnd("refused", refusal or end.why) if end.kind == "refused" else end
    if refusal := find_refusal(message):
        return ReplyEnd("refused", refusal)
    if message.tool_calls or message.invalid_tool_calls or str(message.text).strip():
        return COMPLETE
    # Google's models may be kept from a task before they begin.
    feedback = metadata.get("prompt_feedback")
    if isinstance(feedback, Mapping) and feedback.get("block_reason"):
        return ReplyEnd("filtered", f"block_reason: {feedback['block_reason']}")
    words = ((key, _get_word(metadata.get(key))) for key in _KEYS)
    return ReplyEnd("empty", next((f"{key}: {word}" for key, word in words if word), ""))


def find_refusal(message: AIMessage) -> str:
    """Return the words with which a model refused, where its provider keeps them apart."""
    refusal = message.additional_kwargs.get("refusal")
    if not refusal and isinstance(message.content, list):
        blocks = (block for block in message.content if isinstance(block, dict))
        refusal = next(
            (block.get("refusal") for block in blocks if block.get("type") == "refusal"), ""
        )
    return refusal.strip() if isinstance(refusal, str) else ""


def _read_word(key: str, word: Any) -> ReplyEnd | None:
    if not (text := _get_word(word)):
        return None
    for kind, words in _WORDS.items():
        if words.fullmatch(text):
            return ReplyEnd(kind, f"{key}: {text}")
    return None


def _get_word(word: Any) -> str:
    """Return a provider's word for an end that is not the usual one; empty for that."""
    if isinstance(word, Mapping):
        word = word.get("reason")
    return "" if word is None or (isinstance(word, str) and word in _WHOLE) else str(word)
