"""Finds which of a parameter's choices a text mentions.

`arguments` uses it for parameters with an `enum`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from echelons.language.tokens import TokenizedText
from echelons.language.word_marks import WordMark, mark_words
from echelons.models.planner.numbers import find_number
from echelons.models.planner.tool_parameters import ToolParameter
from echelons.text.stemming import extract_words, stem


def select_choice(parameter: ToolParameter, reading: TokenizedText) -> Any:
    """Return the choice that `reading` mentions, or the only one of a required parameter."""
    found = find_choices(parameter, reading)
    if found:
        return found[0]
    return parameter.choices[0] if parameter.required and len(parameter.choices) == 1 else None


def find_choices(parameter: ToolParameter, reading: TokenizedText) -> list[Any]:
    """Return the choices that a text mentions and does not refuse, longer ones first."""
    marked = zip(reading.tokens, mark_words(reading), strict=True)
    wished = [token.stem for token, mark in marked if mark > WordMark.REFUSED]
    found: list[tuple[int, int, Any]] = []
    for one in parameter.choices:
        if isinstance(one, bool) or one is None:
            continue
        if isinstance(one, int | float):
            same = find_number(replace(parameter, choices=()), reading.excerpt) == one
            at, length = (0 if same else -1), 1
        else:
            sought = [stem(word) for word in extract_words(str(one))]
            at, length = _find_sequence(sought, wished), len(sought)
        if at >= 0:
            found.append((-length, at, one))
    return [one for _, _, one in sorted(found, key=lambda each: each[:2])]


def _find_sequence(sought: Sequence[str], said: Sequence[str]) -> int:
    size = len(sought)
    if not size:
        return -1
    starts = range(len(said) - size + 1)
    return next((i for i in starts if said[i : i + size] == list(sought)), -1)
