"""Anything as JSON that SQLite reads: what a model or a tool gives is not always plain.

The checkpointer writes events and metadata with it. They are there to be looked at and
searched; what a run goes on with is stored whole, elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def as_json(value: Any) -> str:
    """Return a value as JSON text, what JSON does not have as its text form.

    Examples:
        >>> as_json({(1, 2): float("inf"), "name": "caf\u00e9"})
        '{"(1, 2)": "inf", "name": "café"}'
    """
    try:
        text = json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except (TypeError, ValueError):
        text = json.dumps(_plain(value), ensure_ascii=False, default=str)
    # Half of a character outside the Basic Multilingual Plane has no form in UTF-8.
    return text.encode("utf-8", "replace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
