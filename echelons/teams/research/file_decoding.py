"""Decoding of files to text, or the reason why not. `corpus` calls this for each file."""

from __future__ import annotations

import codecs
import re
from typing import Final

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    # The mark of UTF-32 begins with that of UTF-16, so UTF-32 is tried first.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_TEXTLIKE_FORMATS: Final = ((b"%PDF-", "a PDF"), (b"{\\rtf", "an RTF file"))
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")
_BLANK_CONTROL: Final = "\x0b\x0c\x85"
_CONTROL_SHARE: Final = 0.01
"""Most control characters in text; compiled and compressed data has about a tenth."""
_WESTERN_SHARE: Final = 0.3
"""Above this share of non-ASCII bytes, the bytes are not Western single-byte text."""


class NotText(ValueError):
    """The bytes are not text that this module can read; the message says why."""


def decode_text(data: bytes) -> str:
    r"""Return `data` as text with `\n` at the line ends and no control characters.

    A byte order mark decides; without one it is UTF-8, else Windows-1252 (the superset of
    Latin-1) if the result looks like text. Control characters other than tab become
    U+FFFD, because quotations are shown in terminals.

    Raises:
        NotText: It is binary, a format that only looks like text, or in an unknown encoding.

    Examples:
        >>> decode_text(b"caf\xe9\r\nZ\xc3\xbcrich"[:6])
        'café\n'
    """
    for start, kind in _TEXTLIKE_FORMATS:
        if data.startswith(start):
            raise NotText(f"{kind}, not text; convert it to text first")
    text = _decode_bytes(data)
    if "\0" in text or len(_CONTROL.findall(text)) > len(text) * _CONTROL_SHARE:
        raise NotText("binary")
    lined = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda c: " " if c[0] in _BLANK_CONTROL else "\ufffd", lined)


def _decode_bytes(data: bytes) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _decode_strictly(data[len(mark) :], encoding)
    if b"\0" in data:
        raise NotText("binary")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        western = sum(byte >= 0x80 for byte in data) <= len(data) * _WESTERN_SHARE
        if not western:
            raise NotText("binary, or in an unknown encoding; save it as UTF-8") from None
        return _decode_strictly(data, "cp1252")


def _decode_strictly(data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        raise NotText("binary, or in an unknown encoding; save it as UTF-8") from None
