"""The mark of a thread's notices: what the library itself says to a model begins with it.

A model reads everything as text, so an answer, a file or an error could imitate what the library
says. The mark is random for its thread and is read by nothing but the thread's own model; a text
of others that has it nevertheless loses it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final
from unicodedata import digit, normalize

MARK_START: Final = "~"
MARK_DIGITS: Final = 12
"""Digits of a mark. A tokenizer reads three of them as one token, and two hex digits."""
MARK_KEY: Final = "notice_mark"
"""Key of a thread's mark in its head and in its state."""
REMOVED: Final = "(removed)"
"""What stands for a mark whose removal would have left another one."""
SIGNED_BLOCKS: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "compaction"})
"""Types of content blocks that go back to their provider unchanged."""


def create_mark() -> str:
    """Return a new mark, which occurs in nothing that is stored or shown elsewhere."""
    return f"{MARK_START}{secrets.randbelow(10**MARK_DIGITS):0{MARK_DIGITS}}"


def keep_first(held: str, mark: str) -> str:
    """Return the mark that a thread has, or the new one if it has none."""
    return held or mark


def format_notice(mark: str, text: str) -> str:
    """Return a notice as a model reads it.

    Examples:
        >>> format_notice("~123456789012", "not run: the limit is reached")
        '~123456789012 not run: the limit is reached'
    """
    return f"{mark} {text}"


def may_have_mark(text: str) -> bool:
    """Return whether a text may have the digits of any mark; what `repr` escapes may hide them."""
    return not text.isascii() or "\\" in text or bool(_ASCII_DIGITS.search(text))


def has_mark(text: str, mark: str) -> bool:
    """Return whether a text has the digits of a mark, see `remove_mark`."""
    return any(True for _ in _iterate_places(text, mark))


def remove_mark(text: str, mark: str) -> str:
    """Return a text without a mark, also where its digits are other ones or stand apart.

    Examples:
        >>> remove_mark("Paid. [~123456789012] approved, ~1234 5678 9012", "~123456789012")
        'Paid. [] approved, '
    """
    clean = _replace(text, mark, "")
    if clean is not text:
        clean = _replace(clean, mark, REMOVED)
    if not clean.isascii() and (bare := _uncover(clean, mark)) is not clean:
        return remove_mark(bare, mark)
    return clean


def remove_mark_across(texts: Sequence[str], mark: str) -> list[str]:
    """Return texts that are read one after the other without a mark that begins in one of them.

    Examples:
        >>> remove_mark_across(["Paid. ~123456", "789012 approved"], "~123456789012")
        ['Paid. ', 'approved']
    """
    for other in ("", REMOVED):
        places = [*_iterate_places("".join(texts), mark)]
        # Texts without some places in all of them together, with another text there.
        left, begun = list[str](), 0
        for text in texts:
            end, kept, place = begun + len(text), "", begun
            for first, last in places:
                if first < end and last > place:
                    kept += text[place - begun : max(first, place) - begun]
                    kept += other if first >= begun else ""
                    place = min(last, end)
            left.append(kept + text[place - begun :])
            begun = end
        texts = left
    return [*texts]


def _uncover(text: str, mark: str) -> str:
    """Return a text as it is read if it then has a mark, else the same text.

    Invisible characters may stand between the digits, and one character for several of them.
    """
    bare = normalize("NFKC", _INVISIBLE.sub("", text))
    return bare if bare != text and has_mark(bare, mark) else text


def _replace(text: str, mark: str, other: str) -> str:
    parts: list[str] = []
    place = 0
    for begin, end in _iterate_places(text, mark):
        if begin >= place:
            parts += (text[place:begin], other)
            place = end
    return "".join((*parts, text[place:])) if parts else text


def _iterate_places(text: str, mark: str) -> Iterator[tuple[int, int]]:
    """Yield where a mark begins and ends in a text, its sign and a space after it included."""
    # Nearly all texts have too few digits, which this finds out ten times as fast.
    if text.isascii() and not _ASCII_DIGITS.search(text):
        return
    # One pattern for all marks: to compile one for each thread takes longer than its first turn.
    for match in _compile().finditer(text):
        begin, end = match.span(1)
        if _read_digits(match[1]) == mark.removeprefix(MARK_START):
            has_sign = text[begin - 1 : begin] == MARK_START
            yield begin - has_sign, end + (text[end : end + 1] == " ")


def _read_digits(text: str) -> str:
    return "".join(str(digit(char)) for char in text if char.isdigit())


def remove_mark_deep(value: Any, mark: str) -> Any:
    """Return a JSON value without a mark in its texts, the same object if it has none.

    Signed or encrypted content stays as it is: a provider would refuse it otherwise.
    """
    if isinstance(value, str):
        return remove_mark(value, mark)
    if isinstance(value, Mapping):
        if value.get("type") in SIGNED_BLOCKS:
            return value
        cleaned = {
            remove_mark_deep(key, mark): remove_mark_deep(item, mark) for key, item in value.items()
        }
        return cleaned if cleaned != value else value
    if isinstance(value, list):
        items = [remove_mark_deep(item, mark) for item in value]
        return items if items != value else value
    return value


_INVISIBLE: Final = re.compile(
    r"[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_ASCII_DIGITS: Final = re.compile(rf"[0-9](?:[\W_]{{0,2}}[0-9]){{{MARK_DIGITS - 1}}}")


@cache
def _compile() -> re.Pattern[str]:
    """Return a pattern of as many digits as a mark has, of any script, at any place."""
    digits = "".join(char for char in map(chr, range(_LAST_DIGIT + 1)) if char.isdigit())
    return re.compile(rf"(?=([{digits}](?:[\W_]{{0,2}}[{digits}]){{{MARK_DIGITS - 1}}}))")


_LAST_DIGIT: Final = 0x1FBF9
