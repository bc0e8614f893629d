"""Words of a text and their stems, for comparing texts.

The offline planner, the routing policies and the document tools compare tasks with
capabilities, descriptions and documents; all must split and stem words in the same way.
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
"""Words without a meaning of their own."""

LONGEST_WORD: Final = 64
"""Longer tokens (in characters) are keys or noise, not words; they are left unstemmed."""

_REPLACED_LETTERS: Final = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "æ": "ae", "Æ": "Ae", "œ": "oe"}
    | {"Œ": "Oe", "\N{LATIN SMALL LETTER DOTLESS I}": "i"}
    | {"\N{RIGHT SINGLE QUOTATION MARK}": "'", "\N{MODIFIER LETTER APOSTROPHE}": "'"}
)
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]{1,16}")
# Each pattern begins with a rare character, so searching a long text is fast.
_CLITIC: Final = re.compile(r"'(?<=[^\W_]')(?:s|re|ve|ll|d|m)(?![^\W_])", re.IGNORECASE)
_NEGATION: Final = re.compile(r"'(?<=n')(?=t(?![^\W_]))", re.IGNORECASE)
# Not after a first letter alone: OAuth, CMake and iPhone are words.
_HUMP: Final = re.compile(
    r"(?<=[^\W_][a-z])(?=[A-Z])|(?<=[^\W_][A-Z])(?=[A-Z][a-z])|(?<=[0-9])(?=[A-Z][a-z])"
)
_WORD: Final = re.compile(r"[^\W_]+")
_STEMMER_LOCK: Final = threading.Lock()


def remove_accents(text: str) -> str:
    """Return `text` without accents, in the same case."""
    # Only runs beyond ASCII are decomposed: most of most texts is ASCII.
    return text if text.isascii() else _BEYOND_ASCII.sub(lambda run: _decompose_text(run[0]), text)


@lru_cache(maxsize=1 << 12)
def _decompose_text(text: str) -> str:
    apart = unicodedata.normalize("NFKD", text.translate(_REPLACED_LETTERS))
    bare = "".join(char for char in apart if not unicodedata.combining(char))
    # A letter that is replaced may have had an accent of its own, as in Ǽ.
    return bare.translate(_REPLACED_LETTERS)


def extract_words(text: str) -> list[str]:
    """Return the words of `text` in order, lower-case and without accents.

    Identifiers are split at underscores, hyphens and camel humps. A possessive or a contracted
    verb is dropped ("London's" is "london"); a contracted negation is one word ("don't" is
    "dont").
    """
    return _WORD.findall(_HUMP.sub(" ", _normalize_text(text)).casefold())


def count_words(text: str) -> Counter[str]:
    """Return the number of occurrences of each word of a text, see `extract_words`.

    Fast for long texts: equal tokens are split only once.
    """
    counts: Counter[str] = Counter()
    for written, count in Counter(_WORD.findall(_normalize_text(text))).items():
        for word in _WORD.findall(_HUMP.sub(" ", written).casefold()):
            counts[word] += count
    return counts


def _normalize_text(text: str) -> str:
    return _NEGATION.sub("", _CLITIC.sub("", remove_accents(text)))


@lru_cache(maxsize=1)
def _load_stemmer() -> Any:
    # Imported late: the package loads every language, which would slow down `import echelons`.
    from snowballstemmer.english_stemmer import EnglishStemmer  # type: ignore[import-untyped]

    return EnglishStemmer()


@lru_cache(maxsize=1 << 18)
def stem(word: str) -> str:
    """Return the stem of a lower-case word, by the Snowball rules for English."""
    # English suffixes are letters, and words of two letters are their own stems.
    if not 2 < len(word) <= LONGEST_WORD or not word[-1].isalpha():
        return word
    # A Snowball stemmer keeps the current word in itself.
    with _STEMMER_LOCK:
        return str(_load_stemmer().stemWord(word))


def extract_stems(text: str) -> list[str]:
    """Return the stems of the words of `text` in order, without `STOPWORDS`."""
    return [stem(word) for word in extract_words(text) if word not in STOPWORDS]
