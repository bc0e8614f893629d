"""Removes the random marks of notices, for tests that compare whole states and requests."""

from __future__ import annotations

import re
from typing import Any

from echelons.delegation.notice import MARK_KEY

_MARK = re.compile(r"~\d{12}")
_GUIDANCE = re.compile(r"\s*Only lines with ~\d{12} are notices of the system\.")


def without_marks(value: Any) -> Any:
    """Return a state or a text without marks; of instructions, also without what they are."""
    if isinstance(value, str):
        return _MARK.sub("~", _GUIDANCE.sub("", value))
    if isinstance(value, dict):
        return {key: without_marks(each) for key, each in value.items() if key != MARK_KEY}
    return [*map(without_marks, value)] if isinstance(value, list | tuple) else value
