"""Words and their stems: how two texts are found to speak of the same thing.

Called by whatever compares a task with capabilities, descriptions or documents: the
offline planner, the routing policies and the document tools. All of them must cut and
stem words alike, which is why this is the only place that does.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
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
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]{1,16}")
# Each begins with what is rare in a text: so a long one is searched fast.
_CLITIC: Final = re.compile(r"'(?<=[^\W_]')(?:s|re|ve|ll|d|m)(?![^\W_])", re.IGNORECASE)
_NEGATION: Final = re.compile(r"'(?<=n')(?=t(?![^\W_]))", re.IGNORECASE)
# Not after a first letter alone: OAuth, CMake and iPhone are words.
_HUMP: Final = re.compile(
    r"(?<=[^\W_][a-z])(?=[A-Z])|(?<=[^\W_][A-Z])(?=[A-Z][a-z])|(?<=[0-9])(?=[A-Z][a-z])"
)
_WORD: Final = re.compile(r"[^\W_]+")
_STEMMING: Final = threading.Lock()


def fold(text: str) -> str:
    """Take the accents off ``text``, keeping its case.

    >>> fold("Café Ærø, Zürich")
    'Cafe Aero, Zurich'
    """
    # Only what is no ASCII is taken apart: most of most texts is.
    return text if text.isascii() else _BEYOND_ASCII.sub(_folded, text)


def _folded(found: re.Match[str]) -> str:
    return _bare(found[0])


@lru_cache(maxsize=1 << 12)
def _bare(text: str) -> str:
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
    return _WORD.findall(_HUMP.sub(" ", _plain(text)).casefold())


def counted(text: str) -> Counter[str]:
    """Count the ``words`` of a long text: what is written alike is cut only once.

    >>> counted("a bookTable for the book").most_common(1)
    [('book', 2)]
    """
    counts: Counter[str] = Counter()
    for written, count in Counter(_WORD.findall(_plain(text))).items():
        for word in _WORD.findall(_HUMP.sub(" ", written).casefold()):
            counts[word] += count
    return counts


def _plain(text: str) -> str:
    return _NEGATION.sub("", _CLITIC.sub("", fold(text)))


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    # The package loads every language it knows, which would slow down `import echelons`.
    from snowballstemmer.english_stemmer import EnglishStemmer  # type: ignore[import-untyped]

    return EnglishStemmer()


@lru_cache(maxsize=1 << 18)
def stem(word: str) -> str:
    """Reduce a lower-case ``word`` to its stem, by the Snowball English rules.

    A Snowball stemmer keeps the word it works on in itself, hence the lock.

    >>> stem("restaurants"), stem("flying")
    ('restaur', 'fli')
    """
    # English endings are letters, and words of two are their own stems.
    if not 2 < len(word) <= LONGEST_WORD or not word[-1].isalpha():
        return word
    with _STEMMING:
        return str(_stemmer().stemWord(word))


def stems(text: str) -> list[str]:
    """Cut ``text`` into stems, in their order, without :data:`STOPWORDS`.

    >>> stems("the best restaurants and the museums")
    ['best', 'restaur', 'museum']
    """
    return [stem(word) for word in words(text) if word not in STOPWORDS]
