"""A text as the planner's rules see it: words that know their place.

Every rule starts from a `Reading`; `turn` makes one of each thing a human said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from echelons.text.stemming import LONGEST_WORD, STOPWORDS, stem, words

MOST_READ: Final = 12_000
"""Characters that the rules look at: of a longer text its beginning and its end."""

_RAW: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_APOSTROPHES: Final = str.maketrans({"\N{RIGHT SINGLE QUOTATION MARK}": "'"})


class Token(NamedTuple):
    """One word of a text.

    Attributes:
        word: In lower case, without accents and contractions; what rules compare.
        raw: As it was written.
        gap: What stands between the word before and this one.
        start: Offset of its first character.
        end: Offset behind its last character.
    """

    word: str
    raw: str
    gap: str
    start: int
    end: int

    @property
    def stem(self) -> str:
        """The stem by which words of the same meaning are matched."""
        return stem(self.word)

    @property
    def capital(self) -> bool:
        """Whether it is written like a name."""
        return self.raw[0].isupper()

    @property
    def telling(self) -> bool:
        """Whether it says anything by itself."""
        return self.word not in STOPWORDS


class Reading:
    """A text, cut into words once for all rules that look at it.

    Examples:
        >>> [token.word for token in Reading("We don't fly, Ann's car is full").tokens]
        ['we', 'dont', 'fly', 'ann', 'car', 'is', 'full']
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def excerpt(self) -> str:
        """The part that rules look at; offsets of tokens count in it."""
        text = self.text
        if len(text) > MOST_READ:
            text = f"{text[: MOST_READ // 2]}\n{text[-MOST_READ // 2 :]}"
        text = text.translate(_APOSTROPHES)
        # In a text that shouts, capitals say nothing about names.
        return text.lower() if " " in text and text.isupper() else text

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The words in their order."""
        found: list[Token] = []
        behind = 0
        for raw in _RAW.finditer(self.excerpt):
            gap = self.excerpt[behind : raw.start()]
            for word in _cut(raw[0]):
                found.append(Token(word, raw[0], gap, raw.start(), raw.end()))
                gap = ""
            behind = raw.end()
        return tuple(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reading) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Reading({self.text!r})"


def _cut(raw: str) -> Sequence[str]:
    return _remembered(raw) if len(raw) <= LONGEST_WORD else words(raw)


@lru_cache(maxsize=4096)
def _remembered(raw: str) -> tuple[str, ...]:
    return tuple(words(raw))
