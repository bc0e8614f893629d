"""Validation of input from outside: ids, names, metadata, answers, and their sizes.

Pure rules. `Session` and the root of a compiled tree apply them before anything is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from reprlib import Repr
from typing import Any
from uuid import UUID

from echelons.errors import (
    InputTooDeep,
    InputTooLarge,
    InvalidId,
    InvalidNote,
    InvalidText,
    InvalidValue,
)

LONGEST_ID = 128
LONGEST_NAME = 512
"""Maximum lengths in characters."""
ID_PATTERN = re.compile(rf"[A-Za-z0-9._:-]{{1,{LONGEST_ID}}}")
"""The form of an id."""
MESSAGE_BYTES = 1024 * 1024
"""Maximum size of a message or answer in bytes, with texts as UTF-8."""
INPUT_BYTES = 4 * MESSAGE_BYTES
"""Maximum size of all messages of one input, in bytes."""
NOTE_BYTES = 4 * 1024
"""Maximum size of a session's metadata in bytes; it is stored in every checkpoint row."""
CONTEXT_BYTES = 64 * 1024
"""Maximum size of a request's context in bytes; models read it, and each attempt stores it."""
MAX_INPUT_DEPTH = 64
"""Maximum nesting of lists and mappings."""
NUMBER_BYTES = 8
"""Size counted for a number, and for a list or mapping itself, so that empty ones count too."""


def check_id(given: object, what: str) -> str:
    """Return an id, given as a string, number or UUID (LangGraph accepts all three), as a string.

    Raises:
        InvalidId: It is empty or too long, or has characters that ids may not have.

    Examples:
        >>> check_id("trip-1", "thread_id")
        'trip-1'
    """
    text = str(given) if isinstance(given, (str, int, UUID)) else ""
    if not ID_PATTERN.fullmatch(text):
        raise InvalidId(what, shorten_repr(given))
    return text


def is_label(given: object) -> bool:
    r"""Return whether a value is a valid display name: printable text, 1 to 512 characters.

    Control characters, line breaks, lone surrogates, and spaces at the ends are not valid.

    Examples:
        >>> is_label("Søren: Trip to Italy"), is_label("trip\n"), is_label(" ")
        (True, False, False)
    """
    if not isinstance(given, str) or not 1 <= len(given) <= LONGEST_NAME:
        return False
    return given.isprintable() and given.strip() == given


def check_label(given: object, what: str) -> None:
    """Check a display name.

    Raises:
        InvalidId: It is no label, see `is_label`.
    """
    if not is_label(given):
        form = f"1 to {LONGEST_NAME} characters that can be printed, and no spaces at the ends"
        raise InvalidId(what, shorten_repr(given), form)


def check_value(given: Any, what: str) -> Any:
    """Return an answer to a question, if it is JSON-like data of at most 1 MiB.

    Raises the errors of `measure_size`.

    Examples:
        >>> check_value({"yes": True}, "the answer to 'q1'")
        {'yes': True}
    """
    measure_size(given, what, MESSAGE_BYTES)
    return given


def check_metadata(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata of a session as a dictionary.

    Raises:
        InvalidNote: It is no mapping, a key is not a valid id, or a value is not a string,
            number or boolean.
        InputTooLarge: Together they are larger than 4 KiB.
    """
    if not isinstance(given, Mapping | None):
        raise InvalidNote(shorten_repr(given), "metadata are a mapping of names to values")
    notes = dict(given or {})
    for key, value in notes.items():
        if not isinstance(key, str) or not ID_PATTERN.fullmatch(key):
            raise InvalidNote(shorten_repr(key), "its key has other characters")
        if not isinstance(value, (str, int, float)):
            raise InvalidNote(shorten_repr(key), f"its value is of type {type(value).__name__}")
    measure_size(notes, "metadata", NOTE_BYTES)
    return notes


def check_context(given: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """Return a copy of a request's context, which is JSON of at most 64 KiB.

    Raises:
        InvalidValue: It is no mapping of names to JSON.
        InputTooLarge: It is larger.
        InputTooDeep: It is nested too deep, or contains itself.
        InvalidText: A string in it has a lone surrogate.

    Examples:
        >>> check_context({"customer": {"id": 7}}, "the context")
        {'customer': {'id': 7}}
    """
    if not isinstance(given, Mapping | None):
        raise InvalidValue(what, shorten_repr(given), "a context is a mapping of names to values")
    facts = dict(given or {})
    measure_size(facts, what, CONTEXT_BYTES)
    for key in facts:
        if not is_label(key):
            why = f"a name is text that can be printed, 1 to {LONGEST_NAME} characters"
            raise InvalidValue(what, shorten_repr(key), why)
    try:
        copy: dict[str, Any] = json.loads(json.dumps(facts, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidValue(what, shorten_repr(facts), f"it is no JSON ({error})") from error
    return copy


def measure_size(given: Any, what: str, limit: int) -> int:
    """Return the size of JSON-like data in bytes, with texts as UTF-8.

    Stops as soon as the limit is passed, so the cost is bounded even where one list is
    contained in many others.

    Raises:
        InvalidValue: It contains something that is not JSON, or a number of more than 64 bits.
        InputTooLarge: It is larger than the limit.
        InputTooDeep: It is nested too deep, or contains itself.
        InvalidText: A string in it has a lone surrogate.

    Examples:
        >>> measure_size({"to": "Forlì"}, "a message", 100)
        16
    """
    size = 0
    for leaf in _iterate_leaves(given, what):
        size += _measure_leaf(leaf, what)
        if size > limit:
            raise InputTooLarge(what, size, limit)
    return size


def shorten_repr(given: object) -> str:
    """Return a value's `repr`, shortened for an error message."""
    try:
        text = _SHORT_REPR.repr(given)
    except Exception:  # noqa: BLE001  any object's repr may fail; so does that of a huge int
        text = f"a value of type {type(given).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


MAX_SHOWN = 120
"""Characters of a rejected value that an error shows."""
_SHORT_REPR = Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 60


def _iterate_leaves(given: Any, what: str) -> Iterator[Any]:
    # A generator, not recursion: `measure_size` stops in the middle of a list of a million.
    ways = [iter([given])]
    while ways:
        for each in ways[-1]:
            if isinstance(each, (Mapping, list, tuple)):
                if len(ways) > MAX_INPUT_DEPTH:
                    raise InputTooDeep(what, MAX_INPUT_DEPTH)
                # Counted itself: a million empty lists are not nothing.
                yield None
                ways.append(_iterate_items(each, what) if isinstance(each, Mapping) else iter(each))
                break
            yield each
        else:
            ways.pop()


def _iterate_items(given: Mapping[Any, Any], what: str) -> Iterator[Any]:
    for key, value in given.items():
        if isinstance(key, tuple):
            raise InvalidValue(what, shorten_repr(key), "no key in JSON is a list")
        yield key
        yield value


def _measure_leaf(leaf: Any, what: str) -> int:
    if isinstance(leaf, str):
        try:
            return len(leaf.encode())
        except UnicodeEncodeError as error:
            place = shorten_repr(leaf[max(0, error.start - 20) : error.start + 20])
            raise InvalidText(what, place, "half a character (a lone surrogate)") from None
    if leaf is None or isinstance(leaf, (bool, float)):
        return NUMBER_BYTES
    if isinstance(leaf, int) and -(2**63) <= leaf < 2**64:
        return NUMBER_BYTES
    why = "it has more than 64 bits" if isinstance(leaf, int) else "it is no JSON"
    raise InvalidValue(what, shorten_repr(leaf), why)
