"""Parsing of a question for the search: its telling words, and whether it wants a number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from echelons.teams.research.word_weights import LIGHT_STEMS, Vocabulary
from echelons.text.stemming import extract_stems, remove_accents

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
class SearchQuestion:
    """A parsed question.

    Attributes:
        shares: The share of each telling stem in the question, larger for rare ones; they
            add up to 1. Empty if it has no telling word.
        wants_number: Whether a number or a time would answer it.
        parts: The stems of each part, if it contains several questions.
    """

    shares: Mapping[str, float]
    wants_number: bool = False
    parts: tuple[frozenset[str], ...] = ()

    def select_part(self, part: frozenset[str]) -> SearchQuestion:
        """Return a part of it as a question of its own."""
        whole = sum(self.shares[each] for each in part)
        shares = {each: share / whole for each, share in self.shares.items() if each in part}
        return SearchQuestion(shares, self.wants_number)


def parse_question(text: str, vocabulary: Vocabulary) -> SearchQuestion:
    """Parse a question, weighing its words by the vocabulary of the folder."""
    # "How long" only asks; the answer says "45 seconds" and never "long".
    thing = _HOW_MUCH.sub("how", remove_accents(text))
    telling = _telling_stems(thing)
    weights = {each: vocabulary.weigh_word(each) for each in telling}
    total = sum(weights.values())
    shares = {each: weight / total for each, weight in weights.items()}
    for_a_number = thing != remove_accents(text) or bool(_FOR_A_NUMBER.search(thing))
    parts = (part & shares.keys() for part in _split_parts(thing))
    return SearchQuestion(shares, for_a_number, tuple(filter(None, parts)))


def _telling_stems(text: str) -> list[str]:
    found = list(dict.fromkeys(extract_stems(text)))
    return [each for each in found if each not in LIGHT_STEMS] or found


def _split_parts(text: str) -> Iterator[frozenset[str]]:
    clauses = [clause for clause in _BETWEEN.split(text) if extract_stems(clause)]
    for clause in clauses if len(clauses) > 1 else ():
        telling = frozenset(_telling_stems(clause))
        # A single word counts as a question only after a question word.
        if len(telling) > 1 or _ASKING.match(clause):
            yield telling


def has_number(text: str) -> bool:
    """Return whether a text contains a number or a time.

    >>> has_number("at most twice a day"), has_number("1. First of all")
    (True, False)
    """
    return bool(_NUMBER.search(_ITEM_NUMBER.sub("", text)))
