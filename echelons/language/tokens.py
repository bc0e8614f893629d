"""The tokens of a text, with their spelling, spacing and offsets.

All language rules start from them. The offline planner's `planner_turn` reads each message of
the human this way, `routing.agent_mentions` each task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from echelons.text.stemming import LONGEST_WORD, STOPWORDS, extract_words, stem

MAX_READ_CHARACTERS: Final = 12_000
"""Characters that the rules look at; of a longer text, its beginning and its end."""

_RAW: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_APOSTROPHES: Final = str.maketrans({"\N{RIGHT SINGLE QUOTATION MARK}": "'"})


class Token(NamedTuple):
    """One word of a text.

    Attributes:
        word: The word as `stemming.words` normalises it, in lower case; what rules compare.
        raw: The word as it was written.
        gap: The characters between the previous word and this one.
        start: Offset of its first character in the excerpt.
        end: Offset after its last character.
    """

    word: str
    raw: str
    gap: str
    start: int
    end: int

    @property
    def stem(self) -> str:
        """The stem, by which inflected forms are matched."""
        return stem(self.word)

    @property
    def is_capitalized(self) -> bool:
        """Whether it is written with a capital, like a name."""
        return self.raw[0].isupper()

    @property
    def is_content_word(self) -> bool:
        """Whether it is a content word, not a stop word."""
        return self.word not in STOPWORDS


@dataclass(frozen=True)
class TokenizedText:
    """A text, tokenised once for all rules that look at it.

    Examples:
        >>> [token.word for token in TokenizedText("We don't fly, Ann's car is full").tokens]
        ['we', 'dont', 'fly', 'ann', 'car', 'is', 'full']
    """

    text: str

    @cached_property
    def excerpt(self) -> str:
        """The part that rules look at; token offsets refer to it."""
        text = self.text
        if len(text) > MAX_READ_CHARACTERS:
            text = f"{text[: MAX_READ_CHARACTERS // 2]}\n{text[-MAX_READ_CHARACTERS // 2 :]}"
        text = text.translate(_APOSTROPHES)
        # In a text all in capitals, they say nothing about names.
        return text.lower() if " " in text and text.isupper() else text

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens in order."""
        tokens: list[Token] = []
        previous_end = 0
        for raw in _RAW.finditer(self.excerpt):
            gap = self.excerpt[previous_end : raw.start()]
            # Very long words are not cached: they would only fill the cache.
            short = len(raw[0]) <= LONGEST_WORD
            for word in _normalize_word(raw[0]) if short else extract_words(raw[0]):
                tokens.append(Token(word, raw[0], gap, raw.start(), raw.end()))
                gap = ""
            previous_end = raw.end()
        return tuple(tokens)


@lru_cache(maxsize=4096)
def _normalize_word(raw: str) -> tuple[str, ...]:
    return tuple(extract_words(raw))
