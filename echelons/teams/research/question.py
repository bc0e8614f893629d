"""A question as the search sees it: its telling words, and whether it asks for a number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from echelons.matching import fold, stems
from echelons.teams.research.words import Vocabulary

_ASKING: Final = frozenset(
    stems(
        "tell explain describe show find give list say said mean know answer question look "
        "document documentation text according summarise summarize summary information "
        "let make made get got take took become became use"
    )
)
"""Words of the asking, not of what is asked."""

_HOW_MUCH: Final = re.compile(
    r"\bhow (?:long|many|much|often|far|big|large|high|deep|old|fast|soon|late)\b", re.IGNORECASE
)
_FOR_A_NUMBER: Final = re.compile(
    r"\bwhen (?:are|can|did|do|does|had|has|is|should|was|were|will|would)\b"
    r"|\b(?:what|which) (?:\w+ )?(?:age|amount|angle|date|day|depth|frequency|height"
    r"|length|limit|number|percentage|rate|share|size|speed|temperature|time|weight|year)s?\b",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundreds?|thousands?"
    r"|millions?|twice|daily|weekly|monthly|yearly|seconds|minutes?|hours?|days?|weeks?|months?"
    r"|years?|percent)\b"
    # A digit, but not in the number of a list item.
    r"|(?!^\s*\d+[.)]\s)\d(?!\d*[.)]\s)",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        shares: For each of its telling stems its share of the question; they add up to 1,
            rare ones have more. Empty if it has no telling word.
        for_a_number: Whether a number or a time would answer it.
    """

    shares: Mapping[str, float]
    for_a_number: bool = False


def asked(text: str, known: Vocabulary) -> Question:
    """Read a question.

    Args:
        text: The question.
        known: How many documents have each word.
    """
    # "How long" asks; the answer says "45 seconds", and nothing is long in it.
    thing = _HOW_MUCH.sub(" ", fold(text))
    found = list(dict.fromkeys(stems(thing)))
    telling = [each for each in found if each not in _ASKING] or found
    total = sum(known.idf(each) for each in telling)
    shares = {each: known.idf(each) / total for each in telling}
    return Question(shares, thing != fold(text) or bool(_FOR_A_NUMBER.search(thing)))


def has_number(text: str) -> bool:
    """Tell whether a text names a number or a time.

    >>> has_number("at most twice a day"), has_number("1. First of all")
    (True, False)
    """
    return bool(_NUMBER.search(text))
