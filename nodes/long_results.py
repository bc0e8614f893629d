"""`LongResults`: shows a model a part of a long result, and reads on where it asks for more."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from hashlib import sha1, sha256
from itertools import accumulate
from math import ceil
from pathlib import Path
from sys import maxsize
from typing import Any, Final, Literal, NamedTuple, Self
from weakref import ref

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from echelons.identity.lineage import NOTICES_KEY, PAGE_KEY, PROMPT_KEY
from echelons.models.fitting import (
    BYTES_PER_TOKEN,
    TOKENS_PER_MESSAGE,
    count_bytes,
    count_cautiously,
    count_media,
)
from echelons.prompts import fill_text, load_tool_texts
from echelons.text.content_blocks import replace_faulty_blocks
from echelons.tree.names import READ_RESULT

CHARACTERS_PER_TOKEN: Final = 4
"""Characters of a token of English, as LangChain's `count_tokens_approximately` takes them."""
ENCODINGS: Final[Mapping[str, str]] = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""tiktoken's encodings of today's models, the newer first, with the hash of the file of each."""
ENCODING_URL: Final = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""What tiktoken names the file after that it keeps once an encoding was used on the machine."""
APPROXIMATION_KEY: Final = "approximated"
"""Key of the number by `count_tokens_approximately`, beside which a reply's usage stands."""
LOWEST_RATE, HIGHEST_RATE = 0.5, 10.0
"""Tokens of a model for each approximated one; a report beyond that is of something else."""

CountedBy = Literal["usage", "encoding", "approximation"]
RESULTS_SHARE = 2
"""All results of one message together have at most twice the limit of one."""
MARK_TOKENS = 12
"""Most tokens of the mark of a notice, and of the line that it begins."""
SMALL_SHARE = 4
"""What has fewer characters than a quarter of the limit in tokens is not long, in any language."""
ID_LENGTH = 8
"""Characters of the id of a result: few, because a model has to write them."""
_MEDIA_TYPES = frozenset({"image", "image_url", "audio", "video", "file"})


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """Counts tokens as far as they are known.

    Attributes:
        counted_by: `"usage"`: at the rate at which the model has reported what it read last;
            `"encoding"`: by tiktoken's; `"approximation"`: by the number of characters.
        count: Returns the tokens of some messages.
        characters_per_token: Characters of a token, 4 at most.
    """

    counted_by: CountedBy
    count: Callable[[Sequence[BaseMessage]], int]
    characters_per_token: float = CHARACTERS_PER_TOKEN

    @classmethod
    def build(cls, messages: Sequence[BaseMessage], tool_tokens: int = 0) -> Self:
        """Return the counter for the next prompt of a conversation.

        Args:
            messages: The conversation.
            tool_tokens: Approximated tokens of the schemas that the model reads beside it.
        """
        if report := _find_report(messages, tool_tokens):
            place, rate = report
            count = _count_at_rate(rate, messages[:place])
            return cls("usage", count, min(1.0, 1 / rate) * CHARACTERS_PER_TOKEN)
        encoding = find_encoding()
        if encoding is None:
            return cls("approximation", count_cautiously, BYTES_PER_TOKEN)
        count = _count_encoded(encoding)
        latest = messages[-10:]
        characters = sum(len(_read(message)) for message in latest)
        characters_per_token = (
            characters / max(1, count(latest)) if characters else CHARACTERS_PER_TOKEN
        )
        return cls("encoding", count, min(CHARACTERS_PER_TOKEN, max(0.25, characters_per_token)))


def _find_report(messages: Sequence[BaseMessage], tool_tokens: int) -> tuple[int, float] | None:
    """Return the place of the latest reply whose model has reported how much it had read.

    Also, how many tokens it has reported for each that was approximated.
    """
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        noted = message.response_metadata.get(PROMPT_KEY)
        if not (isinstance(message, AIMessage) and isinstance(noted, dict)):
            continue
        approximated, usage = noted.get(APPROXIMATION_KEY), message.usage_metadata
        if isinstance(approximated, int) and approximated > 0 and usage and usage["input_tokens"]:
            # Schemas are of English, whatever the conversation is of.
            rate = (usage["input_tokens"] - tool_tokens) / approximated
            return place, min(HIGHEST_RATE, max(LOWEST_RATE, rate))
    return None


def _count_at_rate(
    rate: float, read: Sequence[BaseMessage]
) -> Callable[[Sequence[BaseMessage]], int]:
    """Return what counts at a rate; messages that it was not reported of count cautiously."""
    read_ids = {id(message) for message in read}

    def count(messages: Sequence[BaseMessage]) -> int:
        new = [
            message
            for message in messages
            if message.type != "system" and id(message) not in read_ids
        ]
        if not new:
            return ceil(count_tokens_approximately(messages) * rate)
        old = [
            message for message in messages if message.type == "system" or id(message) in read_ids
        ]
        return ceil(count_tokens_approximately(old) * rate) + max(
            ceil(count_tokens_approximately(new) * rate), count_bytes(new)
        )

    return count


def _count_encoded(encoding: Any) -> Callable[[Sequence[BaseMessage]], int]:
    def count(messages: Sequence[BaseMessage]) -> int:
        return sum(
            len(encoding.encode(_read(message), disallowed_special=()))
            + count_media(message)
            + TOKENS_PER_MESSAGE
            for message in messages
        )

    return count


@cache
def find_encoding() -> Any:
    """Return tiktoken's encoding if its file is on this machine, and whole; `None` otherwise.

    Without it, tiktoken would fetch the file.
    """
    places = (os.environ.get(variable) for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"))
    folder = next((place for place in places if place is not None), None)
    if folder is None:
        folder = str(Path(tempfile.gettempdir(), "data-gym-cache"))
    for name, digest in ENCODINGS.items():
        url = ENCODING_URL.format(name).encode()
        file = Path(folder, sha1(url, usedforsecurity=False).hexdigest())
        try:
            if not folder or sha256(file.read_bytes()).hexdigest() != digest:
                continue
            import tiktoken
        except (OSError, ImportError):
            continue
        return tiktoken.get_encoding(name)
    return None


def _read(message: BaseMessage) -> str:
    calls = getattr(message, "tool_calls", None)
    return f"{message.text}{calls or ''}"


class Examination(Enum):
    """The shown form of the results of a conversation: all, or not quite all."""

    WHOLE = "whole"
    FAULTY = "faulty"
    CUT = "cut"


class ResultPage(NamedTuple):
    """A part of a result.

    Attributes:
        text: The part.
        note: Which it is, and how to read on.
    """

    text: str
    note: str


class LongResults:
    """The long results in the conversations of one agent.

    Args:
        limit: Most tokens of a result that a model is shown; `None` for no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit or maxsize // RESULTS_SHARE
        # By the ids of messages, which are used again: an entry ends with its message.
        self._measures: dict[int, _Measure] = {}
        self._groups: dict[int, _Group] = {}
        self._shown: dict[int, _Shown] = {}

    def examine(self, messages: Sequence[BaseMessage]) -> Examination:
        """Return whether a conversation has results that are not shown whole."""
        if not (shares := self._find_shares(messages)):
            return Examination.WHOLE
        cut = (self._measures[id(messages[n])].tokens > share for n, share in shares.items())
        return Examination.CUT if any(cut) else Examination.FAULTY

    def shorten(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return a conversation as a model is shown it; the same list if nothing is long.

        Blocks that no model takes are replaced, too: earlier versions have stored them.
        """
        if not (shares := self._find_shares(messages)):
            return messages
        shown = [*messages]
        for place, share in shares.items():
            shown[place] = self._shorten_message(messages[place], share)
        return shown

    def read(
        self, messages: Sequence[BaseMessage], id: str, offset: int, beside: int
    ) -> ResultPage:
        """Return the text of a result from a place on.

        Args:
            messages: The conversation.
            id: The id of the result.
            offset: Number of its characters before the first that is returned.
            beside: How many results the same message reads on in.

        Raises:
            LookupError: No result has this id, or it has no character there.
        """
        results = [message for message in messages if isinstance(message, ToolMessage)]
        message = next(
            (result for result in reversed(results) if _has_id(result, id.strip())), None
        )
        if message is None:
            raise LookupError(f"id: no result of this conversation has the id {id[:64]!r}")
        text, texts = _read_whole(message), load_tool_texts(READ_RESULT)
        if offset >= len(text):
            raise LookupError(f"offset: the result has {len(text)} characters; give a lower number")
        share = min(self._limit, self._limit * RESULTS_SHARE // beside)
        part = _cut_text(text[offset:], max(1, share), TokenCounter.build([]))
        end = offset + len(part)
        values = {"begin": offset, "end": end, "length": len(text), "id": build_result_id(message)}
        note = texts["page"] if end < len(text) else texts["end"]
        filled = fill_text(note, **{key: str(value) for key, value in values.items()})
        return ResultPage(part, filled.strip())

    def _find_shares(self, messages: Sequence[BaseMessage]) -> dict[int, int]:
        """Return how many tokens are shown of the messages that are not shown whole, by place."""
        # A thread may have thousands of messages: nothing is called for one that is short.
        limit, measures = self._limit, self._measures
        contents = [message.content if message.type == "tool" else "" for message in messages]
        sizes = [*map(len, contents)]
        if list in {*map(type, contents)}:
            sizes = [len(content) if type(content) is str else limit for content in contents]
        small = limit // SMALL_SHARE
        if sum(sizes) <= small:
            return {}
        sums = [*accumulate(sizes)]
        large = [place for place, size in enumerate(sizes) if size > small]
        callers = [
            (place, len(calls))
            for place, message in enumerate(messages)
            # Two results have at most twice as many tokens as one.
            if message.type == "ai"
            and (calls := message.tool_calls)[RESULTS_SHARE:]  # type: ignore[attr-defined]
            and sums[min(place + len(calls), len(sums) - 1)] - sums[place] > small
        ]
        shares: dict[int, int] = {}
        for place in large:
            measure = measures.get(id(messages[place])) or self._measure(messages, place)
            if measure.tokens > limit or measure.is_faulty:
                shares[place] = min(limit, measure.tokens)
        for place, count in callers:
            begin = place + 1
            group = self._groups.get(id(messages[place]))
            if group is None or group.ids != [*map(id, messages[begin : begin + count])]:
                group = self._divide(messages, place, count)
            for offset, share in group.shares.items():
                shares[begin + offset] = share
        pages = [n for n in shares if PAGE_KEY in messages[n].response_metadata]
        for place in pages:
            del shares[place]
        return shares

    def _measure(self, messages: Sequence[BaseMessage], place: int) -> _Measure:
        message = messages[place]
        owner = next((other for other in reversed(messages[:place]) if other.type == "ai"), None)
        counter = TokenCounter.build([owner] if owner else [])
        content: Any = message.content
        is_faulty = not isinstance(content, str) and replace_faulty_blocks(content) != content
        tokens = _count_tokens(_read_whole(message), counter)
        end = _remove_with(message, self._measures)
        measure = self._measures[id(message)] = _Measure(end, tokens, counter, is_faulty)
        return measure

    def _divide(self, messages: Sequence[BaseMessage], caller: int, count: int) -> _Group:
        """Divide what is shown of the results of one message: the largest are cut first."""
        places = range(caller + 1, min(caller + 1 + count, len(messages)))
        results = {n: messages[n] for n in places if messages[n].type == "tool"}
        tokens = {
            n: (self._measures.get(id(result)) or self._measure(messages, n)).tokens
            for n, result in results.items()
        }
        pages = {n for n, result in results.items() if PAGE_KEY in result.response_metadata}
        left = self._limit * RESULTS_SHARE - sum(tokens[page] for page in pages)
        rest = sorted((tokens[n] for n in results if n not in pages), reverse=True)
        share = self._limit
        while rest and min(rest[-1], share) * len(rest) <= left:
            left -= min(rest.pop(), share)
        if rest:
            share = min(share, max(0, left) // len(rest))
        cut = {
            n - caller - 1: share for n, size in tokens.items() if size > share and n not in pages
        }
        ids, message = [*map(id, (messages[n] for n in places))], messages[caller]
        end = _remove_with(message, self._groups)
        group = self._groups[id(message)] = _Group(end, ids, cut)
        return group

    def _shorten_message(self, message: BaseMessage, share: int) -> BaseMessage:
        key = id(message)
        if (cached := self._shown.get(key)) and cached.share == share:
            return cached.message
        measure = self._measures[key]
        if measure.tokens > share:
            shown = _build_shortened(message, share, measure.counter)
        else:
            content: Any = message.content
            shown = message.model_copy(update={"content": replace_faulty_blocks(content)})
        self._shown[key] = _Shown(_remove_with(message, self._shown), share, shown)
        return shown


class _Measure(NamedTuple):
    """How many tokens a result has, what has counted them, and whether it has faulty blocks."""

    end: object
    tokens: int
    counter: TokenCounter
    is_faulty: bool


class _Group(NamedTuple):
    """The results of one message, and the shares of those that are cut, by their order."""

    end: object
    ids: Sequence[int]
    shares: Mapping[int, int]


class _Shown(NamedTuple):
    """A result as a model is shown it."""

    end: object
    share: int
    message: BaseMessage


def _remove_with(message: BaseMessage, entries: dict[int, Any]) -> object:
    """Remove the entry of a message when the message is no more, as long as the result is kept."""
    key = id(message)
    return ref(message, lambda _: entries.pop(key, None))


def build_result_id(message: ToolMessage) -> str:
    """Return the id by which a model reads on in a result.

    It is of the message: the ids of calls are the model's, and may be the same in later replies.
    """
    return sha256(f"{message.id or message.tool_call_id}".encode()).hexdigest()[:ID_LENGTH]


def _has_id(message: ToolMessage, id: str) -> bool:
    return id == build_result_id(message) and PAGE_KEY not in message.response_metadata


def _is_media(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") in _MEDIA_TYPES


def _read_whole(message: BaseMessage) -> str:
    """Return all of a message that is text, or can be read as such: all but pictures and files."""
    content: Any = message.content
    if isinstance(content, str):
        return content
    parts = (block for block in replace_faulty_blocks(content) if not _is_media(block))
    return "\n".join(
        part
        if isinstance(part, str)
        else str(part["text"])
        if part["type"] == "text"
        else json.dumps(part, ensure_ascii=False, default=str)
        for part in parts
    )


def _count_tokens(text: str, counter: TokenCounter) -> int:
    size = len(text.encode(errors="replace"))
    least = -(-size // BYTES_PER_TOKEN)
    if counter.counted_by == "approximation":
        return least
    return max(least, counter.count([ToolMessage(text, tool_call_id="")]))


def _cut_text(text: str, tokens: int, counter: TokenCounter) -> str:
    """Return the begin of a text that has at most so many tokens."""
    head = text[: tokens * BYTES_PER_TOKEN]
    while head and (counted := _count_tokens(head, counter)) > tokens:
        head = head[: min(len(head) - 1, len(head) * tokens // counted)]
    return head


def _build_shortened(message: BaseMessage, share: int, counter: TokenCounter) -> BaseMessage:
    """Return a result as a model is shown it: its begin, and how to read on."""
    assert isinstance(message, ToolMessage)  # noqa: S101  only these are measured
    text, note = _read_whole(message), load_tool_texts(READ_RESULT)["shortened"]
    values = {"length": str(len(text)), "id": build_result_id(message)}
    room = _count_tokens(fill_text(note, offset=values["length"], **values), counter)
    head = _cut_text(text, max(0, share - room - MARK_TOKENS), counter)
    hint = fill_text(note, offset=str(len(head)), **values).strip()
    metadata, shown = message.response_metadata, head
    if metadata.get(NOTICES_KEY) is True:
        # All of it is a notice.
        shown = f"{head}\n{hint}"
    else:
        metadata = {**metadata, NOTICES_KEY: [*metadata.get(NOTICES_KEY, ()), hint]}
    content: Any = message.content
    blocks = [] if isinstance(content, str) else replace_faulty_blocks(content)
    media = [block for block in blocks if _is_media(block)]
    whole: Any = [{"type": "text", "text": shown}, *media] if media else shown
    return message.model_copy(update={"content": whole, "response_metadata": metadata})
