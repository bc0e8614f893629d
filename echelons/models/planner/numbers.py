"""Finds the number in a text that a numeric parameter means; `arguments` uses it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from echelons.language.lexicon import listed
from echelons.models.planner.dates import moments
from echelons.models.planner.tool_parameters import Parameter
from echelons.text.stemming import stem, words

_SPELLED: Final = {
    **{
        word: number
        for number, word in enumerate(
            ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1
        )
    },
    **{"eleven": 11, "twelve": 12, "dozen": 12, "fifteen": 15, "twenty": 20, "couple": 2},
    **{"hundred": 100, "thousand": 1000, "both": 2},
}
_NUMBER: Final = re.compile(
    r"(?<![\w.,])(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,9})?(?![\w]|[.:]\d)"
    rf"|(?<!\w)(?:{'|'.join(_SPELLED)})(?!\w)",
    re.IGNORECASE,
)
_NEAR: Final = 40
"""Characters searched for a unit on each side of a number."""


def _stemmed(text: str) -> frozenset[str]:
    return frozenset(map(stem, listed(text)))


_UNITS: Final = {
    "people": _stemmed(
        "people person persons guest adult traveller traveler passenger pax party diner cover seat "
        "friend visitor participant attendee us covers colleagues headcount"
    ),
    "nights": _stemmed("night"),
    "days": _stemmed("day"),
    "weeks": _stemmed("week"),
    "hours": _stemmed("hour"),
    "money": _stemmed(
        "budget price cost euro eur dollar usd pound gbp amount spend fee rate fare money"
    ),
    "stars": _stemmed("star rating"),
}
_GENERIC: Final = _stemmed(
    "number of count total how many the a max min maximum minimum least most"
)
_LIMITS: Final = listed("under below max maximum most than within budget to")
_MONEY_SIGNS: Final = "€$£"
_IN_DAYS: Final = {"nights": 7, "days": 7}


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


def number(parameter: Parameter, text: str) -> float | None:
    """Return the number in `text` that `parameter` asks for, or None.

    >>> number(Parameter("people", "integer"), "A table for four, 2 May, at most 80 euros")
    4.0
    """
    amounts = list(_amounts(text))
    meant = _meaning(parameter)
    scored = [(_fit(parameter, meant, amount), amount) for amount in amounts]
    best = max((fit for fit, _ in scored), default=0)
    if best:
        chosen = next(amount for fit, amount in scored if fit == best)
        times = _IN_DAYS.get(meant, 1) if chosen.unit == "weeks" else 1
        return _within(parameter, chosen.value * times)
    free = [amount for amount in amounts if not amount.unit]
    if parameter.required and len(free) == len(amounts) == 1:
        return _within(parameter, free[0].value)
    return None


def _within(parameter: Parameter, value: float) -> float | None:
    least, greatest = parameter.bounds
    whole = parameter.type != "integer" or value == int(value)
    return value if whole and least <= value <= greatest else None


def _amounts(text: str) -> Iterable[_Amount]:
    dated = [(moment.start, moment.end) for moment in moments(text)]
    at = 0
    for found in _NUMBER.finditer(text):
        while at < len(dated) and dated[at][1] <= found.start():
            at += 1
        if at < len(dated) and dated[at][0] < found.end():
            continue
        before = text[max(0, found.start() - _NEAR) : found.start()]
        after = text[found.end() : found.end() + _NEAR]
        yield _Amount(
            _value(found[0]),
            tuple(words(before)[-3:]),
            tuple(words(after)[:3]),
            before.rstrip()[-1:] in tuple(_MONEY_SIGNS)
            or after.lstrip()[:1] in tuple(_MONEY_SIGNS),
        )
    for week in re.finditer(r"(?<!\w)a\s(week|day|night)(?!\w)", text, re.IGNORECASE):
        if not re.search(
            r"(?:per|times|once|twice)\s?$", text[max(0, week.start() - 8) : week.start()]
        ):
            yield _Amount(1, (), (week[1].lower(),), signed=False)


def _value(said: str) -> float:
    spelled = _SPELLED.get(said.lower())
    return float(spelled if spelled is not None else said.replace(",", ""))


def _meaning(parameter: Parameter) -> str:
    """Return the unit that a parameter counts, by its name first, then its description."""
    about = frozenset(map(stem, words(parameter.description)))
    for known_by in (parameter.stems, about):
        for unit, known in _UNITS.items():
            if known.intersection(known_by):
                return unit
    return "people" if parameter.stems & _stemmed("size") else ""


def _fit(parameter: Parameter, meant: str, amount: _Amount) -> int:
    """Return how well `amount` fits: from 4, by the parameter's name, to 0, not at all."""
    own = parameter.stems - _GENERIC
    weeks = amount.unit == "weeks" and meant in _IN_DAYS
    plain = not amount.unit
    fits = (
        (4, bool(own.intersection(map(stem, amount.after[:2])))),
        (3, bool(meant) and amount.unit == meant),
        (3, plain and bool(own.intersection(map(stem, amount.before)))),
        (2, weeks or (plain and meant == "people" and amount.before[-1:] == ("for",))),
        (1, plain and meant == "money" and bool(_LIMITS.intersection(amount.before[-2:]))),
    )
    return next((fit for fit, holds in fits if holds), 0)
