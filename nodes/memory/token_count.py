"""Counts the tokens of messages by what is at hand; nothing is ever fetched for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import cache
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately

ENCODING = "o200k_base"
ENCODING_URL = f"https://openaipublic.blob.core.windows.net/encodings/{ENCODING}.tiktoken"
ENCODING_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""The file that tiktoken keeps of this encoding once it was used on the machine, by its hash."""
TOKENS_PER_MESSAGE = 4
"""Tokens of a message beside its text, as OpenAI's cookbook counts them."""


class TokenCount(NamedTuple):
    """A number of tokens, and how it was counted.

    Attributes:
        tokens: The number.
        counted_by: `"usage"`: scaled by what the model has reported; `"encoding"`: by tiktoken's;
            `"approximation"`: by the number of characters.
    """

    tokens: int
    counted_by: Literal["usage", "encoding", "approximation"]


def count_tokens(messages: Sequence[BaseMessage]) -> TokenCount:
    """Return the tokens of some messages."""
    replies = [each for each in messages if isinstance(each, AIMessage)]
    providers = {each.response_metadata.get("model_provider") for each in replies}
    if None not in providers and len(providers) == 1 and any(r.usage_metadata for r in replies):
        scaled = count_tokens_approximately(messages, use_usage_metadata_scaling=True)
        return TokenCount(scaled, "usage")
    if encoding := find_encoding():
        tokens = sum(
            len(encoding.encode(_read(each), disallowed_special=())) + TOKENS_PER_MESSAGE
            for each in messages
        )
        return TokenCount(tokens, "encoding")
    return TokenCount(count_tokens_approximately(messages), "approximation")


@cache
def find_encoding() -> Any:
    """Return tiktoken's encoding if its file is on this machine, and whole; `None` otherwise.

    Without it, tiktoken would fetch the file.
    """
    places = (os.environ.get(each) for each in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"))
    folder = next((each for each in places if each is not None), None)
    if folder is None:
        folder = str(Path(tempfile.gettempdir(), "data-gym-cache"))
    file = Path(folder, sha1(ENCODING_URL.encode(), usedforsecurity=False).hexdigest())
    try:
        if not folder or sha256(file.read_bytes()).hexdigest() != ENCODING_SHA256:
            return None
        import tiktoken
    except (OSError, ImportError):
        return None
    return tiktoken.get_encoding(ENCODING)


def _read(message: BaseMessage) -> str:
    calls = getattr(message, "tool_calls", None)
    return f"{message.text}{calls or ''}"
