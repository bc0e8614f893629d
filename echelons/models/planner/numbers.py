"""Finds the number in a text that a numeric parameter means; `arguments` uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from echelons.language.lexicon import to_word_set
from echelons.models.planner.dates import find_moments
from echelons.models.planner.tool_parameters import ToolParameter
from echelons.text.stemming import extract_words, stem

_SPELLED: Final = {
    **{"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8},
    **{"nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "dozen": 12, "fifteen": 15},
    **{"twenty": 20, "couple": 2, "hundred": 100, "thousand": 1000, "both": 2},
}
_NUMBER: Final = re.compile(
    r"(?<![\w.,])(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,9})?(?![\w]|[.:]\d)"
    rf"|(?<!\w)(?:{'|'.join(_SPELLED)})(?!\w)",
    re.IGNORECASE,
)
_UNIT_DISTANCE: Final = 40
"""Characters searched for a unit on each side of a number."""


def _to_stem_set(text: str) -> frozenset[str]:
    return frozenset(map(stem, to_word_set(text)))


_UNITS: Final = {
    "people": _to_stem_set(
        "people person persons guest adult traveller traveler passenger pax party diner cover seat "
        "friend visitor participant attendee us covers colleagues headcount"
    ),
    "nights": _to_stem_set("night"),
    "days": _to_stem_set("day"),
    "weeks": _to_stem_set("week"),
    "hours": _to_stem_set("hour"),
    "money": _to_stem_set(
        "budget price cost euro eur dollar usd pound gbp amount spend fee rate fare money"
    ),
    "stars": _to_stem_set("star rating"),
}
_GENERIC: Final = _to_stem_set(
    "number of count total how many the a max min maximum minimum least most"
)
_LIMIT_WORDS: Final = to_word_set("under below max maximum most than within budget to")
_MONEY_SIGNS: Final = ("€", "$", "£")
_PER_WEEK: Final = {"nights": 7, "days": 7}


@dataclass(frozen=True)
class _Amount:
    """A number with the words before and after it."""

    value: float
    before: tuple[str, ...]
    after: tuple[str, ...]
    signed: bool

    @property
    def unit(self) -> str:
        """The unit that it counts; empty if none is named."""
        rate = self.after[:1] in (("per",), ("a",))  # "200 per night" counts no nights
        near = [] if rate else [stem(word) for word in self.after[:2]]
        found = next((unit for unit, known in _UNITS.items() if known.intersection(near)), "")
        return "money" if self.signed else found


def find_number(parameter: ToolParameter, text: str) -> float | None:
    """Return the number in `text` that `parameter` asks for, or None.

    >>> find_number(ToolParameter("people", "integer"), "A table for four, 2 May, at most 80 euros")
    4.0
    """
    amounts = list(_find_amounts(text))
    meant = _find_unit(parameter)
    scored = [(_score_amount(parameter, meant, amount), amount) for amount in amounts]
    best = max((fit for fit, _ in scored), default=0)
    if best:
        chosen = next(amount for fit, amount in scored if fit == best)
        times = _PER_WEEK.get(meant, 1) if chosen.unit == "weeks" else 1
        return _check_bounds(parameter, chosen.value * times)
    free = [amount for amount in amounts if not amount.unit]
    if parameter.required and len(free) == len(amounts) == 1:
        return _check_bounds(parameter, free[0].value)
    return None


def _check_bounds(parameter: ToolParameter, value: float) -> float | None:
    least, greatest = parameter.bounds
    whole = parameter.type != "integer" or value == int(value)
    return value if whole and least <= value <= greatest else None


def _find_amounts(text: str) -> Iterable[_Amount]:
    dated = [(moment.start, moment.end) for moment in find_moments(text)]
    at = 0
    for found in _NUMBER.finditer(text):
        while at < len(dated) and dated[at][1] <= found.start():
            at += 1
        if at < len(dated) and dated[at][0] < found.end():
            continue
        before = text[max(0, found.start() - _UNIT_DISTANCE) : found.start()]
        after = text[found.end() : found.end() + _UNIT_DISTANCE]
        yield _Amount(
            float(_SPELLED.get(found[0].lower()) or found[0].replace(",", "")),
            tuple(extract_words(before)[-3:]),
            tuple(extract_words(after)[:3]),
            before.rstrip()[-1:] in _MONEY_SIGNS or after.lstrip()[:1] in _MONEY_SIGNS,
        )
    for week in re.finditer(r"(?<!\w)a\s(week|day|night)(?!\w)", text, re.IGNORECASE):
        before = text[max(0, week.start() - 8) : week.start()]
        if not re.search(r"(?:per|times|once|twice)\s?$", before):
            yield _Amount(1, (), (week[1].lower(),), signed=False)


def _find_unit(parameter: ToolParameter) -> str:
    """Return the unit that a parameter counts, by its name first, then its description."""
    about = frozenset(map(stem, extract_words(parameter.description)))
    for known_by in (parameter.stems, about):
        for unit, known in _UNITS.items():
            if known.intersection(known_by):
                return unit
    return "people" if stem("size") in parameter.stems else ""


def _score_amount(parameter: ToolParameter, meant: str, amount: _Amount) -> int:
    """Return how well `amount` fits: from 4, by the parameter's name, to 0, not at all."""
    own = parameter.stems - _GENERIC
    weeks = amount.unit == "weeks" and meant in _PER_WEEK
    plain = not amount.unit
    fits = (
        (4, bool(own.intersection(map(stem, amount.after[:2])))),
        (3, bool(meant) and amount.unit == meant),
        (3, plain and bool(own.intersection(map(stem, amount.before)))),
        (2, weeks or (plain and meant == "people" and amount.before[-1:] == ("for",))),
        (1, plain and meant == "money" and bool(_LIMIT_WORDS.intersection(amount.before[-2:]))),
    )
    return next((fit for fit, holds in fits if holds), 0)
