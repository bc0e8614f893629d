"""Words and their stems: how two texts are found to speak of the same thing.

Called by whatever compares a task with capabilities, descriptions or documents: the
offline planner, the routing policies and the document tools. All of them must cut and
stem words alike, which is why this is the only place that does.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from typing import Any, Final

STOPWORDS: Final[frozenset[str]] = frozenset(
    """
    a an the i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves
    this that these those who whom whose which what some any each every both either neither
    such same other another few more most much many several own one ones
    am is are was were be been being have has had having do does did doing done will would
    shall should can could may might must im ive ill id lets cannot cant wont dont doesnt
    didnt isnt arent wasnt werent hasnt havent hadnt wouldnt shouldnt couldnt mustnt
    and or but nor if then else than because as until while of at by for with without about
    against between into through during before after above below to from up down in out on
    off over under again further once here there when where why how all no not only so too
    very just also etc via per please
    """.split()  # noqa: SIM905 - seventy lines of quoted words are no easier to read
)
"""Words that say nothing of their own about what a text is about."""

LONGEST_WORD: Final = 64
"""Longer tokens (in characters) are keys or noise, not words; they are left unstemmed."""

_APART: Final = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "æ": "ae", "Æ": "Ae", "œ": "oe"}
    | {"Œ": "Oe", "\N{LATIN SMALL LETTER DOTLESS I}": "i"}
    | {"\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{MODIFIER LETTER APOSTROPHE}": "'"}
)
_CLITIC: Final = re.compile(r"(?<=[^\W_])'(?:s|re|ve|ll|d|m)(?![^\W_])", re.IGNORECASE)
_NEGATION: Final = re.compile(r"(?<=n)'(?=t(?![^\W_]))", re.IGNORECASE)
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[0-9])(?=[A-Z][a-z])")
_WORD: Final = re.compile(r"[^\W_]+")
_STEMMING: Final = threading.Lock()


def fold(text: str) -> str:
    """Take the accents off ``text``, keeping its case.

    >>> fold("Café Ærø, Zürich")
    'Cafe Aero, Zurich'
    """
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text.translate(_APART))
    return "".join(char for char in apart if not unicodedata.combining(char))


def words(text: str) -> list[str]:
    """Cut ``text`` into lower-case words without accents, in their order.

    Identifiers fall apart at underscores, hyphens and camel humps. A possessive or a
    contracted verb is dropped ("London's" is "london"), a contracted negation is one word
    ("don't" is "dont").

    >>> words("Don't call find_flights or bookTable in Zürich's café")
    ['dont', 'call', 'find', 'flights', 'or', 'book', 'table', 'in', 'zurich', 'cafe']
    """
    plain = _NEGATION.sub("", _CLITIC.sub("", fold(text)))
    return _WORD.findall(_HUMP.sub(" ", plain).casefold())


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    # The package loads every language it knows, which would slow down `import echelons`.
    from snowballstemmer.english_stemmer import EnglishStemmer  # type: ignore[import-untyped]

    return EnglishStemmer()


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Reduce a lower-case ``word`` to its stem, by the Snowball English rules.

    A Snowball stemmer keeps the word it works on in itself, hence the lock.

    >>> stem("restaurants"), stem("flying")
    ('restaur', 'fli')
    """
    if len(word) > LONGEST_WORD:
        return word
    with _STEMMING:
        return str(_stemmer().stemWord(word))


def stems(text: str) -> list[str]:
    """Cut ``text`` into stems, in their order, without :data:`STOPWORDS`.

    >>> stems("the best restaurants and the museums")
    ['best', 'restaur', 'museum']
    """
    return [stem(word) for word in words(text) if word not in STOPWORDS]
