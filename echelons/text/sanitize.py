"""Makes the output of models and tools fit to be stored and sent, and texts fit for one line.

Models write one half of an emoji's surrogate pair, numbers of a hundred digits, and lists nested
hundreds deep; tools return whole files. The nodes sanitize such output rather than fail on it.
Invalid input from people is rejected with an error instead, see `echelons.text.input_limits`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from echelons.errors.base import ShortRepr

MAX_SANITIZED_DEPTH = 64
"""Maximum nesting of lists and mappings; msgpack takes 255, a model's provider far fewer."""
MAX_TEXT_LENGTH = 16 * 1024 * 1024
"""Maximum length of a string in characters; SQLite takes a billion bytes in a whole row."""
TOO_DEEP_NOTE = "[nested too deep]"
_SHORT_REPR = ShortRepr(60)


def sanitize_value(value: Any, depth: int = 0) -> Any:
    r"""Return a copy of JSON-like data that can be stored and sent.

    A surrogate pair becomes its character, a lone surrogate U+FFFD. Numbers of more than 64 bits
    become strings, and so do keys that JSON does not have. Data nested too deep, and the end of a
    string that is too long, are replaced by a note; `depth` is the number of lists and mappings
    around it.
    """
    # Every write passes through here, and nearly all values are of exactly these types:
    # comparing types is cheaper than `isinstance`.
    kind = type(value)
    if kind is str:
        return value if value.isascii() and len(value) <= MAX_TEXT_LENGTH else _sanitize_text(value)
    if kind is dict or kind is list:
        if depth >= MAX_SANITIZED_DEPTH:
            return TOO_DEEP_NOTE
        if kind is dict:
            clean: dict[Any, Any] = {}
            for key, entry in value.items():
                # Most keys are names, which need no call.
                fit = type(key) is str and key.isascii() and len(key) <= MAX_TEXT_LENGTH
                clean[key if fit else _sanitize_key(key)] = sanitize_value(entry, depth + 1)
            return clean
        return [sanitize_value(item, depth + 1) for item in value]
    if value is None or kind is bool or kind is float:
        return value
    return _sanitize_other(value, depth)


def sanitize_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as JSON; the same object if they are.

    Keys become texts, and so does what JSON does not have, but for `NaN` and the infinities: tools
    take those as they came.
    """
    try:
        if json.loads(json.dumps(arguments)) == arguments:
            return arguments
    except (TypeError, ValueError, RecursionError):
        pass
    clean = sanitize_value(arguments)
    try:
        plain = to_jsonable_python(
            clean, inf_nan_mode="constants", bytes_mode="base64", fallback=_SHORT_REPR.repr
        )
    except Exception as error:  # noqa: BLE001  an object's own code may raise anything
        return {"invalid_arguments": f"{type(error).__name__}: {_SHORT_REPR.repr(error)}"}
    whole: dict[str, Any] = sanitize_value(plain)
    return whole


def _sanitize_key(key: Any) -> Any:
    if key is None or isinstance(key, (str, int, float)):
        return sanitize_value(key)
    # No JSON has such a key: a tuple of numbers, or an object of a client.
    try:
        return _sanitize_text(str(key))
    except Exception:  # noqa: BLE001  an object's own `__str__` may fail
        return type(key).__name__


def _sanitize_other(value: Any, depth: int) -> Any:
    if isinstance(value, int):
        if -(2**63) <= value < 2**64:
            return value
        # `str` of an int fails beyond 4,300 decimal digits.
        return str(value) if value.bit_length() < 14_000 else hex(value)
    if isinstance(value, str):
        return _sanitize_text(value)
    if isinstance(value, Mapping):
        return sanitize_value(dict(value), depth)
    return sanitize_value(list(value), depth) if isinstance(value, tuple | list) else value


def _sanitize_text(text: str) -> str:
    if len(text) > MAX_TEXT_LENGTH:
        more = len(text) - MAX_TEXT_LENGTH
        text = f"{text[:MAX_TEXT_LENGTH]}\n[{more} characters more were left out]"
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def join_printable(text: str) -> str:
    """Return a text on one line: unprintable characters and runs of spaces become one space."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
