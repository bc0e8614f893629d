"""Removes what is random in answers, for tests that compare whole texts."""

from __future__ import annotations

import re


def without_ids(text: str) -> str:
    """Return a text without the ids of failures; it must have one."""
    found, count = re.subn(r" \(failure [0-9a-f]{12}\)", "", text)
    assert count, text
    return found


def without_conversation_ids(text: str) -> str:
    """Return an answer without the ids of several conversations with one subordinate."""
    return text.partition("\n[to go on with ")[0]
