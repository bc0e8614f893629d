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
_ADDRESS = re.compile(r"(?:https?|gs|s3)://\S", re.IGNORECASE)
"""Addresses of pictures that at least one of the large providers reads."""
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_PICTURES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/heic", "image/heif"}
)
"""The kinds of pictures that at least one of the large providers reads."""
_SAME_KIND = {"image/jpg": "image/jpeg"}
"""A usual wrong name of a kind, which some providers refuse."""


def find_block_fault(blocks: Sequence[Any]) -> str:
    """Return why a model could not be sent these blocks, and what to do; empty if it could.

    LangChain's types and `image_url` are checked, and other types of providers passed on unread. A
    block that fails in the model's client would fail at every later call of the thread.
    """
    for place, block in enumerate(blocks, start=1):
        if fault := _find_fault(block):
            return f"block {place}{fault}"
    if all(block["type"] == "text" and not block["text"].strip() for block in blocks):
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
        address = block.get(kind)
        url = address.get("url") if isinstance(address, Mapping) else address
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


def replace_faulty_blocks(blocks: Sequence[Any], *, from_model: bool = False) -> list[Any]:
    """Return the blocks of a tool's result, with a text in place of each that no model takes.

    Unlike the blocks of a task, which are refused with an error, what a tool returns has happened
    already. The checks are those of tasks, and stricter for pictures: one that a provider refuses
    would be refused again at every later call of the thread.
    """
    room = INPUT_BYTES
    kept: list[Any] = []
    for block in blocks:
        if isinstance(block, str) or (from_model and _is_from_model(block)):
            kept.append(block)
            continue
        whole = _name_kind(block) if isinstance(block, Mapping) else block
        # One with a source is in the form of its provider.
        has_source = isinstance(whole, Mapping) and isinstance(whole.get("source"), Mapping)
        fault = ("" if has_source else _find_fault(whole)) or _find_picture_fault(whole)
        size = 0 if fault else _measure_data(whole)
        if size > room:
            fault = f" has {size:,} bytes, with which the result has more than {INPUT_BYTES:,}"
        if fault:
            kind = whole.get("type") if isinstance(whole, Mapping) else None
            named = f" of type {kind}," if isinstance(kind, str) and kind else ""
            # What to give instead is said to those who write tasks, not to models.
            why = re.split(r"[:;] give ", fault.removeprefix(f", of type {kind!r},"))[0].strip()
            kept.append({"type": "text", "text": f"[left out: a block{named} which {why}]"})
        else:
            room -= size
            kept.append(whole)
    return kept


def _is_from_model(block: Any) -> bool:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind not in _DATA_TYPES and kind not in ("text", "image_url")


def _name_kind(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block whose kind of data has its right name."""
    kind = block.get("mime_type")
    name = _SAME_KIND.get(kind.lower()) if isinstance(kind, str) else None
    return {**block, "mime_type": name} if name else block


def _find_picture_fault(block: Mapping[str, Any]) -> str:
    """Return why no provider takes the picture of a block; empty if one does, or it has none."""
    if block.get("type") == "file":
        # Of a file only the address is checked: which kinds are read is another thing each time.
        url = block.get("url")
        is_opened = not isinstance(url, str) or not url or _ADDRESS.match(url)
        return "" if is_opened else f" has the url {shorten_repr(url)}, which no provider opens"
    if block.get("type") not in ("image", "image_url"):
        return ""
    kind, data = block.get("mime_type") or "", block.get("base64") or block.get("data") or ""
    address = block.get("image_url") or block.get("url") or ""
    if isinstance(address, Mapping):
        address = address.get("url") or ""
    is_base64 = True
    if match := _DATA_URL.match(address) if isinstance(address, str) else None:
        kind, data = match[1], address[match.end() :]
        is_base64 = ";base64" in match[2].lower() and bool(_BASE64.fullmatch(data))
    elif isinstance(address, str) and address and not _ADDRESS.match(address):
        return f" has the url {shorten_repr(address)}, which no provider opens"
    if isinstance(source := block.get("source"), Mapping) and source.get("type") == "base64":
        kind, data = source.get("media_type") or "", source.get("data") or ""
        is_base64 = isinstance(data, str) and bool(_BASE64.fullmatch(data))
    if kind and str(kind).lower() not in _PICTURES:
        name = ", ".join(sorted(_PICTURES))
        return f" is {shorten_repr(kind)}, and models read {name}"
    # No text in base64 has one character more than a multiple of four.
    has_rest = isinstance(data, str) and len("".join(data.split()).rstrip("=")) % 4 == 1
    return "" if is_base64 and not has_rest else " has data that are no base64"


def _measure_data(block: Any) -> int:
    """Return the bytes of a block's data, of a picture or file; 0 for any other block."""
    if not _is_data(block):
        return 0
    parts = [*block.values()]
    parts += [value for part in parts if isinstance(part, Mapping) for value in part.values()]
    return sum(len(part) for part in parts if isinstance(part, str))


def copy_blocks(blocks: Sequence[Mapping[str, Any]], what: str) -> list[dict[str, Any]]:
    """Return a copy of blocks: plain data, with at most 1 MiB of text and 4 MiB of other data.

    Raises the errors of `copy_plain`.
    """
    plain = list(copy_plain(blocks, what, MESSAGE_BYTES + INPUT_BYTES)[0])
    measure_blocks(plain, what)
    return plain


def measure_blocks(content: Sequence[Any], what: str) -> int:
    """Return the size of a message's blocks in bytes; see `copy_blocks`."""
    texts = [block for block in content if not _is_data(block)]
    data = [block for block in content if _is_data(block)]
    size = measure_size(texts, what, MESSAGE_BYTES)
    return size + (measure_size(data, what, INPUT_BYTES) if data else 0)


def read_block_texts(content: str | Sequence[Any]) -> str:
    """Return the text of a message, each text block on lines of its own."""
    return content if isinstance(content, str) else "\n".join(_iterate_texts(content, ""))


def describe_content(content: str | Sequence[Any]) -> str:
    """Return a message for people: its text, and the type of each block without one."""
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
