"""Mends text that is no Unicode: lone surrogates, which nothing can store or send.

Models write half of an emoji as an escape, and file names hold bytes that are no text. The
nodes mend what comes from models, tools and functions, ``Session`` what comes from people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mend(value: Any) -> Any:
    r"""Return a value of plain data with every text in it mended.

    Two surrogates that belong together become their character, a lone one U+FFFD. What needs
    no mending is returned as it is.

    Examples:
        >>> mend({"to": ["Rome \ud83d\ude00", "\ud83d Paris", 7]})
        {'to': ['Rome 😀', '� Paris', 7]}
    """
    if isinstance(value, str):
        return _mended(value)
    if isinstance(value, Mapping):
        return {mend(key): mend(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [mend(each) for each in value]
    return value


def _mended(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
