"""Text cut as providers stream it; what is cut adds up to the text again.

``ScriptedModel`` and ``OpenAIServer`` stream by it.
"""

from __future__ import annotations

import re


def words(text: str) -> list[str]:
    """The text cut before each word, nothing lost.

    Examples:
        >>> words("To Rome,  now ")
        ['To ', 'Rome,  ', 'now ']
    """
    return re.split(r"(?<=\s)(?=\S)", text) if text else []


def halves(text: str) -> list[str]:
    """The text in two fragments, as the arguments of a call come.

    Examples:
        >>> halves('{"a": 1}')
        ['{"a"', ': 1}']
    """
    middle = (len(text) + 1) // 2
    return [part for part in (text[:middle], text[middle:]) if part]
