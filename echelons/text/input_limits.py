"""Validation of input from outside: ids, names, metadata, answers, and their sizes.

Pure rules. `Session` and the root of a compiled tree apply them before anything is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from math import isfinite
from typing import Any, TypeVar
from uuid import UUID

from echelons.errors import (
    EchelonsError,
    InvalidInput,
    input_too_large,
    invalid_id,
    invalid_note,
    invalid_value,
)
from echelons.errors.base import ShortRepr
from echelons.text.error_lines import describe_error

T = TypeVar("T")

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
MAX_ITEMS = 10_000
"""Maximum number of a list's or mapping's items that are not measured in bytes."""
NUMBER_BYTES = 8
"""Size counted for a number, and for a list or mapping itself, so that empty ones count too."""


def check_id(value: object, what: str) -> str:
    """Return an id, given as a string, number or UUID (LangGraph accepts all three), as a string.

    Raises:
        InvalidInput: It is empty or too long, or has characters that ids may not have.
    """
    with refuse_unreadable(lambda _: invalid_id(what, shorten_repr(value))):
        text = read_text(value) or (str(value) if isinstance(value, (int, UUID)) else "")
    if not ID_PATTERN.fullmatch(text):
        raise invalid_id(what, shorten_repr(value))
    return text


def is_label(value: object) -> bool:
    r"""Return whether a value is a valid display name: printable text, 1 to 512 characters.

    Control characters, line breaks, lone surrogates, and spaces at the ends are not valid.
    """
    text = read_text(value)
    if text is None or not 1 <= len(text) <= LONGEST_NAME:
        return False
    return text.isprintable() and text.strip() == text


def check_label(value: object, what: str) -> str:
    """Return a display name as a plain string.

    Raises:
        InvalidInput: It is no label, see `is_label`.
    """
    if not is_label(value):
        form = f"1 to {LONGEST_NAME} characters that can be printed, and no spaces at the ends"
        raise invalid_id(what, shorten_repr(value), form)
    return read_text(value) or ""


def check_value(value: Any, what: str) -> Any:
    """Return a task or an answer as plain data of at most 1 MiB.

    Raises the errors of `copy_plain`.
    """
    return copy_plain(value, what, MESSAGE_BYTES)[0]


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata of a session as a dictionary.

    Raises:
        InvalidInput: It is no mapping, a key is not a valid id, or a value is not a string, number
            or boolean; together they are larger than 4 KiB.
    """
    if metadata is None:
        return {}
    try:
        notes = copy_plain(metadata, "metadata", NOTE_BYTES)[0]
    except InvalidInput as error:
        if error.code != "invalid_value":
            raise
        raise invalid_note(error.value, error.why) from error
    if not isinstance(notes, dict):
        raise invalid_note(shorten_repr(metadata), "metadata are a mapping of names to values")
    for key, value in notes.items():
        if not isinstance(key, str) or not ID_PATTERN.fullmatch(key):
            raise invalid_note(shorten_repr(key), "its key has other characters")
        if not isinstance(value, (str, int, float)):
            raise invalid_note(shorten_repr(key), f"its value is of type {type(value).__name__}")
    return notes


def check_context(value: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """Return a copy of a request's context, which is JSON of at most 64 KiB.

    Raises:
        InvalidInput: It is no mapping of names to JSON; it is larger; it is nested too deep, or
            contains itself; a string in it has a lone surrogate.
    """
    if value is None:
        return {}
    facts = copy_plain(value, what, CONTEXT_BYTES)[0]
    if not isinstance(facts, dict):
        raise invalid_value(what, shorten_repr(value), "a context is a mapping of names to values")
    for key in facts:
        if not is_label(key):
            why = f"a name is text that can be printed, 1 to {LONGEST_NAME} characters"
            raise invalid_value(what, shorten_repr(key), why)
    try:
        copy: dict[str, Any] = json.loads(json.dumps(facts, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise invalid_value(what, shorten_repr(facts), f"it is no JSON ({error})") from error
    return copy


def measure_size(value: Any, what: str, limit: int) -> int:
    """Return the size of JSON-like data in bytes, with texts as UTF-8.

    Raises the errors of `copy_plain`.
    """
    size = 0
    # No recursion: it stops in the middle of a list of a million. And nothing is called for an
    # ordinary part: each message of every input is measured. A copy takes 2 to 20 times as long.
    ways: list[Iterator[Any]] = [iter([value])]
    while ways:
        for part in ways[-1]:
            kind = type(part)
            if kind is str and part.isascii():
                # An empty text counts too, for a list of them may never end.
                size += len(part) or 1
            elif part is None:
                size += NUMBER_BYTES
            elif isinstance(part, (dict, list, tuple, Mapping)):
                if len(ways) > MAX_INPUT_DEPTH:
                    raise _too_deep(what, MAX_INPUT_DEPTH)
                # Counted itself: a million empty lists are not nothing.
                size += NUMBER_BYTES
                ways.append(_iterate_parts(part, what))
                break
            else:
                size += _measure_leaf(part, what)
            if size > limit:
                raise input_too_large(what, size, limit)
        else:
            ways.pop()
        if size > limit:
            raise input_too_large(what, size, limit)
    return size


def copy_plain(value: Any, what: str, limit: int) -> tuple[Any, int]:
    """Return a copy of JSON-like data, without objects of a caller's classes, and its size.

    Stops as soon as the limit is passed, so the cost is bounded even where one list is
    contained in many others, or a mapping never ends.

    Raises:
        InvalidInput: It contains something that is not JSON or cannot be read, or a number that is
            not finite or has more than 64 bits; it is larger than the limit; it is nested too deep,
            or contains itself; a string in it has a lone surrogate.
    """
    copier = _PlainCopier(what, limit)
    with refuse_unreadable(lambda why: invalid_value(what, shorten_repr(value), why)):
        return copier.copy(value), copier.size


def read_text(value: Any) -> str | None:
    """Return a text of any class as a plain one; `None` if it is no text."""
    if type(value) is str:
        return value
    # The methods of the class, and what it says of itself, may be anything.
    return str.__str__(value) if issubclass(type(value), str) else None


@contextmanager
def refuse_unreadable(refuse: Callable[[str], EchelonsError]) -> Iterator[None]:
    """Refuse by name an object whose own methods raise while it is checked."""
    try:
        yield
    except EchelonsError:
        raise
    except Exception as error:
        raise refuse(f"reading it raised {describe_error(error)}") from error


def list_items(value: Iterable[T]) -> list[T]:
    """Return the items of a caller's iterable, which may be endless.

    Raises:
        ValueError: It has more than 10,000.
    """
    items = list(islice(value, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise ValueError(f"it has more than {MAX_ITEMS} items")
    return items


def shorten_repr(value: object) -> str:
    """Return a value's `repr`, shortened for an error message."""
    text = _SHORT_REPR.repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


MAX_SHOWN = 120
"""Characters of a rejected value that an error shows."""
_SHORT_REPR = ShortRepr(60)


def _iterate_parts(value: Any, what: str) -> Iterator[Any]:
    """Return an iterator of the entries of a list, or of the keys and values of a mapping."""
    if not isinstance(value, (dict, Mapping)):
        return iter(value)
    # It may never end; what has more keys than bytes are allowed is refused as too large.
    kinds = set(map(type, islice(value, INPUT_BYTES)))
    if kinds - {str} and any(issubclass(kind, tuple) for kind in kinds):
        lists = (item for item in value if isinstance(item, tuple))
        raise invalid_value(what, shorten_repr(next(lists)), "no key in JSON is a list")
    return chain.from_iterable(value.items())


def _measure_leaf(leaf: Any, what: str) -> int:
    if isinstance(leaf, str):
        try:
            return len(leaf.encode())
        except UnicodeEncodeError as error:
            place = shorten_repr(leaf[max(0, error.start - 20) : error.start + 20])
            raise InvalidInput(
                "{what}, {text}, holds {why}; take it out, or send the text as UTF-8",
                code="invalid_text",
                what=what,
                text=place,
                why="half a character (a lone surrogate)",
            ) from None
    if leaf is None or isinstance(leaf, bool):
        return NUMBER_BYTES
    if isinstance(leaf, float):
        if isfinite(leaf):
            return NUMBER_BYTES
        why = "it is no finite number"
    elif isinstance(leaf, int):
        if -(2**63) <= leaf < 2**64:
            return NUMBER_BYTES
        why = "it has more than 64 bits"
    else:
        why = "it is no JSON"
    raise invalid_value(what, shorten_repr(leaf), why)


class _PlainCopier:
    """Copies data of one kind of input; counts their size."""

    def __init__(self, what: str, limit: int) -> None:
        self.size = 0
        self._what = what
        self._limit = limit

    def copy(self, value: Any, depth: int = 0) -> Any:
        leaf: Any = read_text(value)
        if leaf is None and isinstance(value, (Mapping, list, tuple)):
            if depth == MAX_INPUT_DEPTH:
                raise _too_deep(self._what, MAX_INPUT_DEPTH)
            # Counted itself: a million empty lists are not nothing.
            self._add(NUMBER_BYTES)
            if isinstance(value, Mapping):
                return {
                    self._copy_key(key): self.copy(item, depth + 1) for key, item in value.items()
                }
            items = [self.copy(item, depth + 1) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        if leaf is None:
            leaf = value
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                leaf = int.__int__(value) if isinstance(value, int) else float.__float__(value)
        # An empty text counts too, for a list of them may never end.
        self._add(_measure_leaf(leaf, self._what) or 1)
        return leaf

    def _copy_key(self, key: Any) -> Any:
        if isinstance(key, tuple):
            raise invalid_value(self._what, shorten_repr(key), "no key in JSON is a list")
        return self.copy(key)

    def _add(self, size: int) -> None:
        self.size += size
        if self.size > self._limit:
            raise input_too_large(self._what, self.size, self._limit)


def _too_deep(what: str, limit: int) -> InvalidInput:
    return InvalidInput(
        "{what} is nested more than {limit} deep, or holds itself; flatten it, or send it as text",
        code="input_too_deep",
        what=what,
        limit=limit,
    )
