"""`read_streams`: a model whose streamed replies say what its whole ones do.

LangChain's clients lose of a stream what they read of a whole reply: the words of a refusal, that
the connection was closed before the end, and usage that a server repeats with each chunk. They also
complete the arguments of a call that was cut off, so that a tool would run with half of them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from copy import copy
from functools import cache
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import UsageMetadata, subtract_usage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.utils.json import parse_partial_json

from echelons.models.client_rules import WireFormat

M = TypeVar("M")
CUT_STREAM: Final = "stream_cut"
"""The reason for which a reply ended whose stream did not say one."""
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
