"""Converts any value to JSON that SQLite can read: models and tools return arbitrary values.

Used for events and metadata, which are for display and search. The state that a run resumes from
is stored in full, elsewhere.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from echelons.text.sanitize import MAX_SANITIZED_DEPTH, MAX_TEXT_LENGTH, sanitize_value

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False)
_STRICT_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_find_long_number = re.compile(r"\d{19}").search


def to_json_text(value: Any) -> str:
    """Return a value as JSON text; values that JSON does not have become strings.

    Examples:
        >>> to_json_text({(1, 2): float("inf"), "name": "caf\u00e9"})
        '{"(1, 2)": "inf", "name": "café"}'
    """
    try:
        text = _encode(_ENCODER, value)
    except (TypeError, ValueError):
        text = _encode(_ENCODER, _make_serializable(value))
    # A lone surrogate cannot be encoded in UTF-8.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def to_sanitized_json(value: Any) -> str:
    r"""Return a value as JSON text, sanitized as `sanitize_value` does it.

    Nearly all values need no change, as their text shows; they are not copied.

    Examples:
        >>> to_sanitized_json({"to": "Rome \ud83d", "sum": 2**64})
        '{"to": "Rome �", "sum": "18446744073709551616"}'
    """
    try:
        text = _encode(_STRICT_ENCODER, value)
        if not text.isascii():
            text.encode()
    except (TypeError, ValueError, RecursionError):
        return to_json_text(sanitize_value(value))
    is_deep = text.count("{") + text.count("[") >= MAX_SANITIZED_DEPTH
    if is_deep or len(text) > MAX_TEXT_LENGTH or _find_long_number(text):
        return to_json_text(sanitize_value(value))
    return text


def _encode(encoder: json.JSONEncoder, value: Any) -> str:
    # As `encode` does it, without the checks: the encoder in C returns a tuple of texts.
    return "".join(encoder.iterencode(value, _one_shot=True))


def _make_serializable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _make_serializable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_serializable(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
