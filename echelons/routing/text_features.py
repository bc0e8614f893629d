"""Features of a text: words and stems, and for example tasks also word pairs and n-grams.

`name_index` and `example_index` read every text through here. All features keep the order of the
text, never that of a set, so that sums of floats are the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from echelons.text.stemming import STOPWORDS, extract_words, stem

PIECE_LENGTH: Final = 4
"""Length of the character n-grams, which bridge inflection, compounds and typos."""

MAX_WORDS: Final = 600
"""Words of one text that are compared at most."""


class WordSequence(NamedTuple):
    """The words of a text in order, in lower case, and the stem of each."""

    forms: tuple[str, ...]
    stems: tuple[str, ...]


@lru_cache(maxsize=4096)
def read_words(text: str) -> WordSequence:
    """Return the words and stems of a text; stop words are kept, as "who" and "how" can matter."""
    said = tuple(extract_words(text)[:MAX_WORDS])
    return WordSequence(said, tuple(map(stem, said)))


STOPWORD_STEMS: Final = frozenset(map(stem, STOPWORDS)) | STOPWORDS


def extract_pairs(stems: Iterable[str]) -> list[str]:
    """Return bigrams with text ends, and unordered pairs with one or two words between.

    >>> extract_pairs(["book", "flight", "rome"])
    ['^ book', 'book flight', 'flight rome', 'rome $', 'book~rome']
    """
    known = list(stems)
    framed = ["^", *known, "$"]
    near = [f"{one} {other}" for one, other in pairwise(framed)]
    far = [
        f"{min(one, other)}~{max(one, other)}"
        for place, one in enumerate(known)
        for other in known[place + 2 : place + 4]
    ]
    return list(dict.fromkeys(near + far))


def extract_pieces(said: Iterable[str]) -> list[str]:
    """Return the character n-grams of the running text, across word boundaries.

    >>> extract_pieces(["my", "car"])
    ['#my#', 'my#c', 'y#ca', '#car', 'car#']
    """
    line = "#".join(["", *said, ""])
    return list(
        dict.fromkeys(line[at : at + PIECE_LENGTH] for at in range(len(line) - PIECE_LENGTH + 1))
    )
