"""What is compared of two texts: stems, and for example tasks also pairs and pieces of words.

`named` and `shown` read every text through here. Everything comes in the order of the text,
never in that of a set, so that sums of floats are the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from echelons.text.stemming import STOPWORDS, stem, words

PIECE: Final = 4
"""Characters of a piece; pieces bridge endings, compounds and typing mistakes."""

LONGEST_READ: Final = 600
"""Words of one text that are compared."""


class Words(NamedTuple):
    """A text as words.

    Attributes:
        said: In lower case, as they stand.
        stems: The stem of each.
    """

    said: tuple[str, ...]
    stems: tuple[str, ...]


@lru_cache(maxsize=4096)
def read(text: str) -> Words:
    """Cut a text into words and stems; small words are kept, for "who" and "how" can tell."""
    said = tuple(words(text)[:LONGEST_READ])
    return Words(said, tuple(map(stem, said)))


def is_small(word: str) -> bool:
    """Whether a word says little by itself."""
    return word in STOPWORDS


SMALL_STEMS: Final = frozenset(map(stem, STOPWORDS)) | STOPWORDS


def pairs(stems: Iterable[str]) -> list[str]:
    """Return neighbours, and pairs with one or two words between, in either order.

    >>> pairs(["book", "flight", "rome"])
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


def pieces(said: Iterable[str]) -> list[str]:
    """Return the pieces of the running text, across the ends of words.

    >>> pieces(["my", "car"])
    ['#my#', 'my#c', 'y#ca', '#car', 'car#']
    """
    line = "#".join(["", *said, ""])
    return list(dict.fromkeys(line[at : at + PIECE] for at in range(len(line) - PIECE + 1)))
