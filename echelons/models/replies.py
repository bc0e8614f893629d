"""Replies of models: streamed ones put together, how they end, and those that cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from copy import copy
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall
from langchain_core.messages.ai import UsageMetadata, subtract_usage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.utils.json import parse_partial_json
from pydantic import ValidationError

from echelons.models.resolution import WireFormat
from echelons.text.error_lines import read_error_text

_FAULT = "the arguments are no JSON object"
MAX_PAUSES: Final = 10
"""How often a paused reply is continued."""
M = TypeVar("M")
CUT_STREAM: Final = "stream_cut"
"""The reason for which a reply ended whose stream did not say one."""


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


_ENDS: Final = "_echelons_stream_ends"
_CONVERT: Final = "_convert_chunk_to_generation_chunk"
_CUT: Final = {"incomplete_details": {"reason": CUT_STREAM}}
_END_KEYS: Final = ("finish_reason", "stop_reason", "status")
_COUNTS: Final = ("prompt_tokens", "completion_tokens")


def read_streams(model: M, wire_format: WireFormat) -> M:
    """Return a copy of a model of OpenAI's or Anthropic's client; any other model as it is.

    The copy shares the client and all settings; the caller's object is not changed.
    """
    if wire_format == "unknown":
        return model
    kind: Any = type(model)
    try:
        kept = copy(model)
        object.__setattr__(kept, "__class__", _derive_class(kind, wire_format))
        object.__setattr__(kept, _ENDS, StreamEnds())
    except Exception:  # noqa: BLE001  a model of someone's own need not be copied
        return model
    return kept


@cache
def _derive_class(kind: type[Any], wire_format: WireFormat) -> type[Any]:
    adds_up = wire_format == "anthropic"

    def stream(self: Any, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        reply = StreamedReply(adds_up, getattr(self, _ENDS))
        for chunk in kind._stream(self, *args, **kwargs):
            yield reply.read(chunk)
        yield from reply.end()

    async def astream(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        reply = StreamedReply(adds_up, getattr(self, _ENDS))
        async for chunk in kind._astream(self, *args, **kwargs):
            yield reply.read(chunk)
        for chunk in reply.end():
            yield chunk

    def convert_chunk(self: Any, chunk: Any, *args: Any, **kwargs: Any) -> Any:
        _mend_chunk(chunk)
        generation = getattr(kind, _CONVERT)(self, chunk, *args, **kwargs)
        if generation is not None and (refusal := _read_refusal(chunk)):
            generation.message.additional_kwargs["refusal"] = refusal
        return generation

    # Of the same name and module: both stand in traces and in serialised models.
    attributes: dict[str, Any] = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    attributes |= {"_stream": stream, "_astream": astream}
    if hasattr(kind, _CONVERT):
        attributes[_CONVERT] = convert_chunk
    return type(kind.__name__, (kind,), attributes)


class StreamEnds:
    """Knows whether the server of a model says why a reply has ended, which some never do."""

    MOST: Final = 1
    """Streams that may have been cut off. After more, the server is taken for one that says none:
    a reply that is gone on with would be cut off for ever."""

    def __init__(self) -> None:
        self.unsaid = 0

    def note(self, *, is_said: bool) -> bool:
        """Note how a stream has ended; return whether it was cut off."""
        self.unsaid = 0 if is_said else self.unsaid + 1
        return 0 < self.unsaid <= self.MOST


class StreamedReply:
    """One reply, chunk by chunk."""

    def __init__(self, adds_up: bool, ends: StreamEnds) -> None:
        self._adds_up = adds_up
        self._ends = ends
        self._last: AIMessageChunk | None = None
        self._usage: UsageMetadata | None = None
        self._arguments: dict[Any, str] = {}
        self._has_ended = False

    def read(self, chunk: ChatGenerationChunk) -> ChatGenerationChunk:
        """Return a chunk whose usage is what it adds to that of the chunks before."""
        message: Any = chunk.message
        self._last = message
        words = {**message.response_metadata, **(chunk.generation_info or {})}
        if message.chunk_position == "last" or any(words.get(key) for key in _END_KEYS):
            self._has_ended = True
        for call in message.tool_call_chunks:
            begun = self._arguments.get(call["index"], "")
            self._arguments[call["index"]] = begun + (call["args"] or "")
        if not self._adds_up and (usage := message.usage_metadata):
            message.usage_metadata = subtract_usage(usage, self._usage)
            self._usage = usage
        return chunk

    def end(self) -> Iterator[ChatGenerationChunk]:
        """Yield a last chunk if the stream, or the arguments of a call, ended too early."""
        if self._last is None:
            return
        is_cut = any(map(_is_broken_off, self._arguments.values()))
        # Whole calls are run: what may be missing after them, the model can say at its next step.
        if self._ends.note(is_said=self._has_ended) and not self._arguments:
            is_cut = True
        if is_cut:
            content: Any = "" if isinstance(self._last.content, str) else []
            message = AIMessageChunk(content=content, id=self._last.id)
            yield ChatGenerationChunk(message=message, generation_info={**_CUT})


def _is_broken_off(arguments: str) -> bool:
    """Return whether the client completes arguments that are no JSON."""
    try:
        json.loads(arguments or "{}", strict=False)
    except ValueError:
        try:
            parse_partial_json(arguments)
        except ValueError:
            return False
        return True
    return False


def _list_choices(chunk: Any) -> list[Any]:
    """Return the choices of a chunk as the client has received it."""
    choices = chunk.get("choices") or (chunk.get("chunk") or {}).get("choices") or []
    return [choice for choice in choices if isinstance(choice, dict)]


def _mend_chunk(chunk: Any) -> None:
    """Mend what the client would not read: calls without a function or text, and odd usage."""
    if not isinstance(chunk, dict):
        return
    for choice in _list_choices(chunk):
        for call in (choice.get("delta") or {}).get("tool_calls") or ():
            function = call.get("function") or {}
            arguments = function.get("arguments")
            if not isinstance(arguments, str | None):
                function = {**function, "arguments": json.dumps(arguments)}
            call["function"] = function
    usage = chunk.get("usage")
    if isinstance(usage, Mapping) and not all(_is_count(usage.get(key)) for key in _COUNTS):
        # Unknown is not zero.
        chunk["usage"] = None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _read_refusal(chunk: Any) -> str:
    """Return the refusal of a chunk of a stream, empty without one."""
    try:
        refusal = _list_choices(chunk)[0]["delta"].get("refusal")
    except (AttributeError, IndexError, KeyError, TypeError):
        return ""
    return refusal if isinstance(refusal, str) else ""


_MOST_REQUESTED: Final = 50
"""A number of more than so many times the limit is no number of tokens."""
_LEAST_LIMIT: Final = 512
"""Codes of a status are below, and no context is so small."""
_MOST_DIGITS: Final = 11
_TOO_LARGE: Final = 413
_MAX_TEXT: Final = 20_000

_REFUSALS: Final = re.compile(
    "|".join(
        (
            # OpenAI, Azure, DeepSeek, OpenRouter, vLLM, and generic ones.
            r"context[ _-]?(length|window|size|limit)[ _-](is |has been |was )?exceed",
            r"contextwindowexceeded",
            r"maximum context (length|size|window)",
            r"exceed\w* (\w+'?s? ){0,5}context",
            r"exceed_context_size",
            r"(input|prompt) tokens exceed",
            r"reduce (the |your )?(length|size) of (the |your )?(messages|prompt|input)",
            # Anthropic, and Claude at Bedrock and Vertex.
            r"(prompt|input|request|message|conversation|context)s? (is|are) too (long|large)",
            r"request_too_large|request exceeds the maximum size",
            # Gemini.
            r"(token count|input tokens?|number of (input )?tokens)\b.{0,40}\bexceeds?",
            r"token count\b.{0,40}\bonly supports up to|payload size exceeds",
            # Mistral, llama.cpp, LM Studio, Ollama, vLLM, SGLang, Together, TGI.
            r"too large for model with",
            r"(greater|longer) than (the |this )?(\w+'?s? )*(context|maximum model) length",
            r"(prompt|input)s? too long",
            r"context length (is|of) only",
            r"the configured context size is",
            r"too long to fit into the model",
            r"context the overflows|context overflow|overflows? the context",
            r"`?inputs`? tokens \+ `?max_new_tokens`? must be",
            r"must be less than max_seq_len",
            # vLLM, whose room for the reply is what the prompt leaves.
            r"max_tokens must be at least 1, got -|exceeds the max_model_len",
            r"`?inputs`? must have less than \d",
            # OpenAI: one message of more characters than any may have.
            r"messages?\[\d+\].{0,40}string too long",
            # Groq and OpenAI: more than the limit of a minute in one request.
            r"reduce your message size|request too large|request body too large",
            # Cohere, xAI, GitHub, Kimi, Cerebras, GLM, DashScope, MiniMax.
            r"too many (input )?tokens|token limit exceeded|exceeded model token limit",
            r"prompt_tokens_exceeded|tokens_limit_reached|exceed max message tokens",
            r"input length\b.{0,20}\bexceeds",
            r"maximum (prompt|input|allowed input) length",
            r"exceeds the limit of \d",
            r"current length is \d+ while limit is",
            r"prompt exceeds",
            r"range of input length should be",
        )
    ),
    re.IGNORECASE,
)
"""What servers write that have refused a request for its length."""
_OTHER_LIMITS: Final = re.compile(
    r"throttl|rate.?limit|too many requests|quota|please wait|per (minute|day)", re.IGNORECASE
)
"""What is said of limits that a later request of the same length would keep."""
_NEVER_FITS: Final = re.compile(
    r"reduce your message size|request (body )?too large", re.IGNORECASE
)
_LIMIT: Final = re.compile(
    r"(?:max\w* (?:\w+ )?(?:context |prompt |model |allowed )?(?:input )?"
    r"(?:length|size|window|limit)"
    r"|maximum number of (?:input )?tokens(?: allowed)?|context (?:length|size|window|limit)"
    r"|token limit|limit is|limit of|\blimit\b|must be <=|n_ctx|less than max_seq_len"
    r"|max_model_len|must have less than|only supports up to|max input tokens"
    r"|length should be \[\d+,)"
    r"(?:(?! by )[^0-9]){0,24}?(\d[\d,_]*)"
    r"|(\d[\d,_]*)(?: tokens?)? max",
    re.IGNORECASE,
)
_MOST: Final = re.compile(r"> ?(\d[\d,_]*)")
_NUMBER: Final = re.compile(r"(?<![\w.-])\d[\d,_]*\b(?!\.\d)")


class LengthRefusal(NamedTuple):
    """A provider's refusal of a request for its length."""

    limit: int = 0
    requested: int = 0


def read_length_refusal(error: BaseException) -> LengthRefusal | None:
    """Return what an error says of the length of a request; `None` if it is no such refusal."""
    # Pauses of LangGraph are exceptions, too.
    if not isinstance(error, Exception) or type(error).__module__.startswith("langgraph."):
        return None
    for cause in _iterate_causes(error):
        text = read_error_text(cause)[:_MAX_TEXT]
        is_refusal = isinstance(cause, ContextOverflowError) or (
            getattr(cause, "status_code", None) == _TOO_LARGE
        )
        if not is_refusal and _REFUSALS.search(text):
            is_refusal = not _OTHER_LIMITS.search(text) or bool(_NEVER_FITS.search(text))
        if is_refusal:
            # Of a comparison, the right side is the limit, whatever stands before it.
            limits = [_to_number(match[1]) for match in _MOST.finditer(text)]
            limits += [_to_number(match[1] or match[2]) for match in _LIMIT.finditer(text)]
            limit = next((item for item in limits if item >= _LEAST_LIMIT), 0)
            numbers = [_to_number(match[0]) for match in _NUMBER.finditer(text)]
            requested = [number for number in numbers if limit < number <= limit * _MOST_REQUESTED]
            return LengthRefusal(limit, max(requested, default=0))
    return None


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes: some clients wrap those of their servers."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        seen.append(one)
        yield one
        one = one.__cause__


def _to_number(text: str) -> int:
    digits = text.replace(",", "").replace("_", "")
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else 0
