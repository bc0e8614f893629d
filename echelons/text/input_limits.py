"""What may come in from outside: ids, names, notes, answers, and how large anything may be.

Pure rules, each with an error of its own that gives the value, the limit and the way out.
``Session`` and the root of a compiled tree apply them before anything is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from reprlib import Repr
from typing import Any
from uuid import UUID

from echelons.errors import (
    InputTooDeep,
    InputTooLarge,
    InvalidId,
    InvalidLabel,
    InvalidNote,
    InvalidText,
    InvalidValue,
)

ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""What ids are made of."""
LONGEST_ID = 128
LONGEST_NAME = 512
"""Characters that an id and a name may have."""
MESSAGE_BYTES = 1024 * 1024
"""Bytes of one message or answer, its texts as UTF-8."""
INPUT_BYTES = 4 * MESSAGE_BYTES
"""Bytes of all messages of one input."""
NOTE_BYTES = 4 * 1024
"""Bytes of all that a session notes with its thread: they stand in every row."""
DEEPEST = 64
"""Lists and mappings inside each other."""
NUMBER_BYTES = 8
"""What a number counts, and a place in a list or a mapping: so that empty ones count too."""


def check_id(given: object, what: str) -> str:
    """Return an id that may be looked up and stored.

    Args:
        given: A text, or a number or UUID, which LangGraph takes as well.
        what: What it is the id of, for the error.

    Raises:
        InvalidId: It has other characters than ids have, or too many, or none.

    Examples:
        >>> check_id("trip-1", "thread_id")
        'trip-1'
    """
    text = str(given) if isinstance(given, (str, int, UUID)) else ""
    if not ID.fullmatch(text):
        raise InvalidId(what, shortened(given), LONGEST_ID)
    return text


def is_label(given: object) -> bool:
    r"""Return whether people may call something so: by any characters that can be printed.

    Examples:
        >>> is_label("Søren: Trip to Italy"), is_label("trip\n"), is_label(" ")
        (True, False, False)
    """
    if not isinstance(given, str) or not 1 <= len(given) <= LONGEST_NAME:
        return False
    return given.isprintable() and given.strip() == given


def check_label(given: object, what: str) -> None:
    """Check a name that people call something by.

    Raises:
        InvalidLabel: It is no text, has control characters, line breaks or halves of
            characters, begins or ends with a space, or is empty or too long.
    """
    if not is_label(given):
        raise InvalidLabel(what, shortened(given), LONGEST_NAME)


def check_value(given: Any, what: str) -> Any:
    """Return a value of plain data that may be stored: an answer to a question.

    Raises:
        InvalidValue: It is, or holds, something that is no JSON.
        InputTooLarge: It has more than a mebibyte.
        InputTooDeep: It is nested too deep, or holds itself.
        InvalidText: A text in it holds half a character.

    Examples:
        >>> check_value({"yes": True}, "the answer to 'q1'")
        {'yes': True}
    """
    weigh(given, what, MESSAGE_BYTES)
    return given


def check_notes(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a session may note with its thread.

    Raises:
        InvalidNote: A key is no id, or a value is no text, number, true or false.
        InputTooLarge: They have more than 4 KiB together.
        InvalidText: A text holds half a character.
    """
    notes = dict(given or {})
    for key, value in notes.items():
        if not isinstance(key, str) or not ID.fullmatch(key):
            raise InvalidNote(shortened(key), "its key has other characters")
        if not isinstance(value, (str, int, float)):
            raise InvalidNote(shortened(key), f"its value is of type {type(value).__name__}")
    weigh(notes, "metadata", NOTE_BYTES)
    return notes


def weigh(given: Any, what: str, limit: int) -> int:
    """Return the size of plain data in bytes, its texts as UTF-8.

    Looks at no more than the limit allows, whatever holds whatever how often.

    Raises:
        InvalidValue: It holds something that is no JSON, or a number of more than 64 bits.
        InputTooLarge: It is larger than the limit.
        InputTooDeep: It is nested too deep, or holds itself.
        InvalidText: A text in it holds half a character.

    Examples:
        >>> weigh({"to": "Forlì"}, "a message", 100)
        16
    """
    size = 0
    for leaf in _leaves(given, what):
        size += _size_of(leaf, what)
        if size > limit:
            raise InputTooLarge(what, size, limit)
    return size


def shortened(given: object) -> str:
    """Return a value as a person may be shown it: short, and on one line."""
    try:
        text = _SHORT.repr(given)
    except Exception:  # noqa: BLE001  a foreign object, or a number of too many digits
        text = f"a value of type {type(given).__name__}"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


SHOWN = 120
"""Characters of what was refused that an error shows."""
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def _leaves(given: Any, what: str) -> Iterator[Any]:
    # Step by step: a list of a million is given up long before its end.
    ways = [iter([given])]
    while ways:
        for each in ways[-1]:
            if isinstance(each, (Mapping, list, tuple)):
                if len(ways) > DEEPEST:
                    raise InputTooDeep(what, DEEPEST)
                # One for itself: a million empty ones are not nothing.
                yield None
                ways.append(_both(each, what) if isinstance(each, Mapping) else iter(each))
                break
            yield each
        else:
            ways.pop()


def _both(given: Mapping[Any, Any], what: str) -> Iterator[Any]:
    for key, value in given.items():
        if isinstance(key, tuple):
            raise InvalidValue(what, shortened(key), "no key in JSON is a list")
        yield key
        yield value


def _size_of(leaf: Any, what: str) -> int:
    if isinstance(leaf, str):
        try:
            return len(leaf.encode())
        except UnicodeEncodeError as error:
            place = leaf[max(0, error.start - 20) : error.start + 20]
            raise InvalidText(
                what, shortened(place), "half a character (a lone surrogate)"
            ) from None
    if leaf is None or isinstance(leaf, (bool, float)):
        return NUMBER_BYTES
    if isinstance(leaf, int) and -(2**63) <= leaf < 2**64:
        return NUMBER_BYTES
    why = "it has more than 64 bits" if isinstance(leaf, int) else "it is no JSON"
    raise InvalidValue(what, shortened(leaf), why)
