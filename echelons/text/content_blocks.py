"""Content blocks of messages: texts, pictures, files, as LangChain writes them. Pure rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from echelons.text.input_limits import (
    INPUT_BYTES,
    MESSAGE_BYTES,
    copy_plain,
    measure_size,
    shorten_repr,
)

_DATA_TYPES = frozenset({"image", "audio", "video", "file"})
_MODEL_TYPES = frozenset(
    {"reasoning", "tool_call", "tool_call_chunk", "invalid_tool_call"}
    | {"server_tool_call", "server_tool_call_chunk", "server_tool_result"}
)
_SOURCES = ("url", "base64", "file_id", "data", "id")
# As servers take it: of either alphabet, also without its padding or broken into lines.
_BASE64 = re.compile(r"[A-Za-z0-9+/_\s-]*+=*+\s*+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S")


def find_block_fault(blocks: Sequence[Any]) -> str:
    """Return why a model could not be sent these blocks, and what to do; empty if it could.

    LangChain's types and `image_url` are checked, and other types of providers passed on unread. A
    block that fails in the model's client would fail at every later call of the thread.

    Examples:
        >>> find_block_fault([{"type": "image", "url": "https://example.org/menu.jpg"}])
        ''
        >>> find_block_fault([{"type": "image"}])
        "block 1, of type 'image', has no data: give it one of url, base64, file_id"
    """
    for place, block in enumerate(blocks, start=1):
        if fault := _find_fault(block):
            return f"block {place}{fault}"
    if all(each["type"] == "text" and not each["text"].strip() for each in blocks):
        return "it has no words and no data; give some words"
    return ""


def _find_fault(block: Any) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str) or not kind:
        return " is no mapping with a type, such as {'type': 'text', 'text': '…'}"
    named = f", of type {kind!r},"
    if kind in _MODEL_TYPES:
        return f"{named} is one that only models write; give texts, pictures and files"
    if kind == "text" and not isinstance(block.get("text"), str):
        return f"{named} has no text: give it as 'text'"
    if kind == "image_url":
        given = block.get(kind)
        url = given.get("url") if isinstance(given, Mapping) else given
        no_address = f"{named} has no address: give {{'image_url': {{'url': 'https://…'}}}}"
        return "" if isinstance(url, str) and url else no_address
    return f"{named}{fault}" if kind in _DATA_TYPES and (fault := _find_data_fault(block)) else ""


def _find_data_fault(block: Mapping[str, Any]) -> str:
    if not any(isinstance(block.get(key), str) and block[key] for key in _SOURCES):
        return " has no data: give it one of url, base64, file_id"
    url, data, kind = (block.get(key) or "" for key in ("url", "base64", "mime_type"))
    if not kind and ("base64" in block or "data" in block):
        return " has no mime_type: give the kind of its data, 'image/png'"
    if kind and block["type"] == "image" and not str(kind).lower().startswith("image/"):
        return f" has the mime_type {shorten_repr(kind)}: give that of a picture, 'image/png'"
    if data and not (isinstance(data, str) and _BASE64.fullmatch(data)):
        return " has data that are no base64: give base64.b64encode(its bytes).decode()"
    if url and not (isinstance(url, str) and _SCHEME.match(url)):
        return f" has the url {shorten_repr(url)}: give a whole one, 'https://…'"
    return ""


def copy_blocks(blocks: Sequence[Mapping[str, Any]], what: str) -> list[dict[str, Any]]:
    """Return a copy of blocks: plain data, with at most 1 MiB of text and 4 MiB of other data.

    Raises the errors of `copy_plain`.
    """
    plain = list(copy_plain(blocks, what, MESSAGE_BYTES + INPUT_BYTES)[0])
    measure_blocks(plain, what)
    return plain


def measure_blocks(content: Sequence[Any], what: str) -> int:
    """Return the size of a message's blocks in bytes; see `copy_blocks`."""
    texts = [each for each in content if not _is_data(each)]
    data = [each for each in content if _is_data(each)]
    size = measure_size(texts, what, MESSAGE_BYTES)
    return size + (measure_size(data, what, INPUT_BYTES) if data else 0)


def read_block_texts(content: str | Sequence[Any]) -> str:
    """Return the text of a message, each text block on lines of its own.

    Examples:
        >>> read_block_texts([{"type": "text", "text": "What is"}, {"type": "image", "url": "x"}])
        'What is'
    """
    return content if isinstance(content, str) else "\n".join(_iterate_texts(content, ""))


def describe_content(content: str | Sequence[Any]) -> str:
    r"""Return a message for people: its text, and the type of each block without one.

    Examples:
        >>> describe_content([{"type": "text", "text": "What is"}, {"type": "image", "url": "x"}])
        'What is\n[image]'
    """
    return content if isinstance(content, str) else "\n".join(_iterate_texts(content, "[{}]"))


def _iterate_texts(content: Sequence[Any], other: str) -> Iterator[str]:
    for block in content:
        if isinstance(block, str):
            yield block
        elif isinstance(block, Mapping):
            text = block.get("text")
            if text and (other or block.get("type") == "text"):
                yield str(text)
            elif other:
                name = block.get("filename") or block.get("type", "data")
                yield other.format(name)


def _is_data(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") not in ("text", None)
