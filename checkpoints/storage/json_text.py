"""Converts any value to JSON that SQLite can read: models and tools return arbitrary values.

Used for events and metadata, which are for display and search. The state that a run resumes from
is stored in full, elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False)


def to_json_text(value: Any) -> str:
    """Return a value as JSON text; values that JSON does not have become strings.

    Examples:
        >>> to_json_text({(1, 2): float("inf"), "name": "caf\u00e9"})
        '{"(1, 2)": "inf", "name": "café"}'
    """
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError):
        text = _ENCODER.encode(_make_serializable(value))
    # A lone surrogate cannot be encoded in UTF-8.
    return text.encode("utf-8", "replace").decode()


def _make_serializable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _make_serializable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_make_serializable(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
