"""Mends what nothing can store or send: halves of characters, and what has no end.

Models write half of an emoji as an escape, numbers of a hundred digits, and lists in lists in
lists; tools return whole files. The nodes mend what comes from models, tools and functions, so
that it costs no more than itself. What people give is refused by name instead, see ``boundary``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEEPEST = 64
"""Lists and mappings inside each other; msgpack takes 255, a model's provider far fewer."""
LONGEST = 16 * 1024 * 1024
"""Characters of one text; SQLite takes a billion bytes in all of a row."""
TOO_DEEP = "[nested too deep]"


def mend(value: Any, depth: int = 0) -> Any:
    r"""Return a value of plain data that can be stored and sent.

    Two surrogates that belong together become their character, a lone one U+FFFD. Numbers of
    more than 64 bits become text. What stands too deep, and the end of a text that is too long,
    is left out with a note. What needs no mending is returned as it is.

    Args:
        value: The value.
        depth: How many lists and mappings it stands in.

    Examples:
        >>> mend({"to": ["Rome \ud83d\ude00", "\ud83d Paris", 7, 2**64]})
        {'to': ['Rome 😀', '� Paris', 7, '18446744073709551616']}
    """
    # Nearly all there is has one of these very types: each write is looked through, and asking
    # for the type itself is cheaper than asking what it may be used as.
    kind = type(value)
    if kind is str:
        return value if value.isascii() and len(value) <= LONGEST else _mended(value)
    if kind is dict or kind is list:
        if depth >= DEEPEST:
            return TOO_DEEP
        if kind is dict:
            return {mend(key): mend(each, depth + 1) for key, each in value.items()}
        return [mend(each, depth + 1) for each in value]
    if value is None or kind is bool or kind is float:
        return value
    return _mend_other(value, depth)


def _mend_other(value: Any, depth: int) -> Any:
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else _digits(value)
    if isinstance(value, str):
        return _mended(value)
    if isinstance(value, Mapping):
        return mend(dict(value), depth)
    return mend(list(value), depth) if isinstance(value, tuple | list) else value


def _mended(text: str) -> str:
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n[{len(text) - LONGEST} characters more were left out]"
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _digits(number: int) -> str:
    # Python writes no decimal number of more than 4,300 digits.
    return str(number) if number.bit_length() < 14_000 else hex(number)
