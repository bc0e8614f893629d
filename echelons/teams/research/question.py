"""Parsing of a question for the search: its telling words, and whether it wants a number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from echelons.teams.research.word_weights import LIGHT, Vocabulary
from echelons.text.stemming import fold, stems

_HOW_MUCH: Final = re.compile(
    r"\bhow (?:long|many|much|often|far|big|large|high|deep|old|fast|soon|late)\b", re.IGNORECASE
)
_FOR_A_NUMBER: Final = re.compile(
    r"\bwhen (?:are|can|did|do|does|had|has|is|should|was|were|will|would)\b"
    r"|\b(?:what|which) (?:\w+ )?(?:age|amount|angle|date|day|depth|frequency|height"
    r"|length|limit|number|percentage|rate|share|size|speed|temperature|time|weight|year)s?\b",
    re.IGNORECASE,
)
_ASKS: Final = r"(?:what|when|where|who|whose|which|why|how|is|are|do|does|did|can|should|will)"
_BETWEEN: Final = re.compile(
    rf"[.?!;]\s+|\n+|,?\s+(?:and|or|but|then)\s+(?={_ASKS}\b)"
    r"|,\s+(?=(?:what|when|where|who|which|why|how)\b)",
    re.IGNORECASE,
)
_ASKING: Final = re.compile(rf"\s*{_ASKS}\b", re.IGNORECASE)
_NUMBER: Final = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundreds?|thousands?"
    r"|millions?|twice|daily|weekly|monthly|yearly|seconds|minutes?|hours?|days?|weeks?|months?"
    r"|years?|percent)\b|\d",
    re.IGNORECASE,
)
_ITEM_NUMBER: Final = re.compile(r"^[ \t]*\d+[.)][ \t]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Question:
    """A parsed question.

    Attributes:
        shares: The share of each telling stem in the question, larger for rare ones; they
            add up to 1. Empty if it has no telling word.
        for_a_number: Whether a number or a time would answer it.
        parts: The stems of each part, if it contains several questions.
    """

    shares: Mapping[str, float]
    for_a_number: bool = False
    parts: tuple[frozenset[str], ...] = ()

    def of(self, part: frozenset[str]) -> Question:
        """Return a part of it as a question of its own."""
        whole = sum(self.shares[each] for each in part)
        shares = {each: share / whole for each, share in self.shares.items() if each in part}
        return Question(shares, self.for_a_number)


def asked(text: str, known: Vocabulary) -> Question:
    """Parse a question.

    Args:
        text: The question.
        known: In how many documents each word occurs.
    """
    # "How long" only asks; the answer says "45 seconds" and never "long".
    thing = _HOW_MUCH.sub("how", fold(text))
    telling = _telling(thing)
    total = sum(known.idf(each) for each in telling)
    shares = {each: known.idf(each) / total for each in telling}
    for_a_number = thing != fold(text) or bool(_FOR_A_NUMBER.search(thing))
    parts = (part & shares.keys() for part in _parts(thing))
    return Question(shares, for_a_number, tuple(part for part in parts if part))


def _telling(text: str) -> list[str]:
    found = list(dict.fromkeys(stems(text)))
    return [each for each in found if each not in LIGHT] or found


def _parts(text: str) -> Iterator[frozenset[str]]:
    clauses = [clause for clause in _BETWEEN.split(text) if stems(clause)]
    for clause in clauses if len(clauses) > 1 else ():
        telling = frozenset(_telling(clause))
        # A single word counts as a question only after a question word.
        if len(telling) > 1 or _ASKING.match(clause):
            yield telling


def has_number(text: str) -> bool:
    """Return whether a text contains a number or a time.

    >>> has_number("at most twice a day"), has_number("1. First of all")
    (True, False)
    """
    return bool(_NUMBER.search(_ITEM_NUMBER.sub("", text)))
