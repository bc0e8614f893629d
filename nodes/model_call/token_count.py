"""Counts the tokens of messages by what is at hand; nothing is ever fetched for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1, sha256
from math import ceil
from pathlib import Path
from typing import Any, Final, Literal, Self

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately

from echelons.identity.lineage import MEMORY_KEY
from echelons.models.fitting import (
    BYTES_PER_TOKEN,
    TOKENS_PER_MESSAGE,
    count_bytes,
    count_cautiously,
    count_media,
)

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
        characters = sum(len(_read(each)) for each in latest)
        each_token = characters / max(1, count(latest)) if characters else CHARACTERS_PER_TOKEN
        return cls("encoding", count, min(CHARACTERS_PER_TOKEN, max(0.25, each_token)))


def _find_report(messages: Sequence[BaseMessage], tool_tokens: int) -> tuple[int, float] | None:
    """Return the place of the latest reply whose model has reported how much it had read.

    Also, how many tokens it has reported for each that was approximated.
    """
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        noted = message.response_metadata.get(MEMORY_KEY)
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
    known = {id(each) for each in read}

    def count(messages: Sequence[BaseMessage]) -> int:
        new = [
            message for message in messages if message.type != "system" and id(message) not in known
        ]
        if not new:
            return ceil(count_tokens_approximately(messages) * rate)
        old = [message for message in messages if message.type == "system" or id(message) in known]
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
    places = (os.environ.get(each) for each in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"))
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
