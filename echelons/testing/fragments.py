"""Text split into the fragments of a stream; joined, they are the text again.

`ScriptedModel` and `OpenAIServer` stream with it.
"""

from __future__ import annotations

import re


def split_words(text: str) -> list[str]:
    """Return the text split before each word, with all whitespace kept.

    Examples:
        >>> split_words("To Rome,  now ")
        ['To ', 'Rome,  ', 'now ']
    """
    return re.split(r"(?<=\s)(?=\S)", text) if text else []


def split_halves(text: str) -> list[str]:
    """Return the text in two fragments, as the arguments of a call are streamed.

    Examples:
        >>> split_halves('{"a": 1}')
        ['{"a"', ': 1}']
    """
    middle = (len(text) + 1) // 2
    return [part for part in (text[:middle], text[middle:]) if part]
