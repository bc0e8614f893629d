"""Evidence from names: the words of capabilities, agent names and descriptions.

`lexical_matcher` keeps one index for a tree. A phrase that a task contains in full counts the
square root of the sum of its words' rarities; one that it contains in part, in proportion.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from math import log
from typing import Final, NamedTuple

from echelons.routing.matcher import Profile, find_equals
from echelons.routing.text_features import WordSequence, read_words
from echelons.text.stemming import STOPWORDS

CAPABILITY_WEIGHT: Final = 1.0
"""Weight of a capability."""

OWN_NAME_WEIGHT: Final = 0.5
"""Weight of the agent's name."""

DESCRIPTION_WEIGHT: Final = 0.8
"""Weight of a description."""

DESCRIPTION_EXPONENT: Final = 0.25
"""Exponent of the length by which words of a description are divided; names have 0.5."""

SUPERIOR_WEIGHT: Final = 0.3
"""Weight of the superiors' names, which describe the agent too."""

STOPWORD_WEIGHT: Final = 0.3
"""Weight of a stop word ("my", "who"); that of a content word is 1."""

SIMILAR_TERM_WEIGHT: Final = 0.7
"""Weight of a word with the same beginning as another, times the fraction in common."""

MIN_COMMON_FRACTION: Final = 0.6
"""Fraction of the longer of two stems that must be in common ("defin", "definit")."""

MIN_COMMON_PREFIX: Final = 4
"""Characters that two similar stems have in common at least."""

ABBREVIATION_LENGTHS: Final = range(3, 5)
"""Lengths of abbreviations: "pto" is found in "paid time off"."""


class ProfilePhrase(NamedTuple):
    """A text of a profile, with its weight and the confidence of what it describes."""

    words: WordSequence
    weight: float
    confidence: float
    is_name: bool = True


class TermEntry(NamedTuple):
    """An occurrence of a term in the profile at `place`, with its weight and confidence."""

    place: int
    weight: float
    confidence: float


def _iterate_phrases(profile: Profile) -> Iterator[ProfilePhrase]:
    """Yield the texts of a profile, the heaviest first."""
    best = profile.confidence
    for name, capability in profile.capabilities.full.items():
        yield ProfilePhrase(read_words(name), CAPABILITY_WEIGHT, capability.confidence)
    if not profile.derived:
        yield ProfilePhrase(read_words(profile.name), OWN_NAME_WEIGHT, best)
    for text in profile.texts:
        yield ProfilePhrase(read_words(text), DESCRIPTION_WEIGHT, best, is_name=False)
    for superior in profile.path[:-1]:
        yield ProfilePhrase(read_words(superior), SUPERIOR_WEIGHT, best)


class NameIndex:
    """An index from stems to the profiles of a tree that contain them, by position."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        every = [list(_iterate_phrases(profile)) for profile in profiles]
        self._rarity = _compute_rarities(profiles, every)
        self._entries: dict[str, list[TermEntry]] = {}
        self._words: set[str] = set()
        self._joined: set[str] = set()
        self._heads: dict[str, list[str]] = {}
        for place, own in enumerate(every):
            self._index_profile(place, own)
        for term in self._entries:
            if not term.startswith("+") and len(term) >= MIN_COMMON_PREFIX:
                self._heads.setdefault(term[:MIN_COMMON_PREFIX], []).append(term)
        self._similar_terms: dict[str, list[tuple[str, float]]] = {}

    def find_entries(self, task: WordSequence) -> Iterator[tuple[str, float, Sequence[TermEntry]]]:
        """Yield for each known term of a task: its words, the certainty, and its occurrences."""
        terms: dict[str, tuple[str, float]] = {}
        own = zip(task.stems, task.forms, strict=True)
        for term, said in chain(own, self._find_compounds(task), self._find_abbreviations(task)):
            terms.setdefault(term, (said, 1.0))
        for said, stem in zip(task.forms, task.stems, strict=True):
            for term, sure in self._find_similar_terms(stem):
                terms.setdefault(term, (said, sure))
        for term, (said, sure) in terms.items():
            if found := self._entries.get(term):
                yield said, sure, found

    def _index_profile(self, place: int, own: Sequence[ProfilePhrase]) -> None:
        best: dict[str, TermEntry] = {}
        for phrase in own:
            # Stop words are noise in a description; in a name they are part of it.
            weights = {
                stem: self._rarity[stem] * (STOPWORD_WEIGHT if said in STOPWORDS else 1.0)
                for said, stem in zip(*phrase.words, strict=True)
                if phrase.is_name or said not in STOPWORDS
            }
            whole = (
                sum(weights.values()) ** (0.5 if phrase.is_name else DESCRIPTION_EXPONENT) or 1.0
            )
            if phrase.weight == CAPABILITY_WEIGHT:
                self._words.update(phrase.words.forms)
                weights.update(self._weigh_compounds(phrase.words, weights))
            for term, weight in weights.items():
                entry = TermEntry(place, phrase.weight * weight / whole, phrase.confidence)
                if term not in best or best[term].weight < entry.weight:
                    best[term] = entry
        for term, entry in best.items():
            self._entries.setdefault(term, []).append(entry)

    def _weigh_compounds(self, phrase: WordSequence, weights: dict[str, float]) -> dict[str, float]:
        compounds: dict[str, float] = {}
        for place in range(len(phrase.forms) - 1):
            one, other = phrase.forms[place : place + 2]
            if one not in STOPWORDS and other not in STOPWORDS:
                self._joined.add(one + other)
                stems = phrase.stems[place : place + 2]
                compounds[f"+{one}{other}"] = sum(weights[stem] for stem in stems)
        return compounds

    def _find_compounds(self, task: WordSequence) -> Iterator[tuple[str, str]]:
        """Yield terms of words written apart or together, each with the words: "time zone"."""
        for one, other in zip(task.forms, task.forms[1:], strict=False):
            if one + other in self._words:
                yield read_words(one + other).stems[0], f"{one} {other}"
        for said in task.forms:
            if said in self._joined:
                yield f"+{said}", said

    def _find_abbreviations(self, task: WordSequence) -> Iterator[tuple[str, str]]:
        initials = "".join(said[0] for said in task.forms)
        for size in ABBREVIATION_LENGTHS:
            for at in range(len(initials) - size + 1):
                short = initials[at : at + size]
                if short in self._words:
                    yield read_words(short).stems[0], " ".join(task.forms[at : at + size])

    def _find_similar_terms(self, stem: str) -> Sequence[tuple[str, float]]:
        """Return the indexed terms with the same beginning as a stem, each with a certainty."""
        if stem not in self._similar_terms:
            self._similar_terms[stem] = [
                (term, SIMILAR_TERM_WEIGHT * part)
                for term in self._heads.get(stem[:MIN_COMMON_PREFIX], ())
                if term != stem and (part := _compare_prefix(stem, term)) >= MIN_COMMON_FRACTION
            ]
        return self._similar_terms[stem]


def _compute_rarities(
    profiles: Sequence[Profile], every: Sequence[Sequence[ProfilePhrase]]
) -> dict[str, float]:
    """Return the inverse document frequency of each stem, scaled to at most 1.

    It is `log(1 + n / having) / log(1 + n)`, where a profile counts among those having the stem
    by the best weight that it gives to it. Equal profiles count as one, and so do profiles that
    have the stem in the same declared capabilities, whatever else they can do.
    """
    equals = find_equals(profiles)
    best: dict[str, dict[Hashable, float]] = {}
    for profile, own, first in zip(profiles, every, equals, strict=True):
        declared: dict[str, list[tuple[str, ...]]] = {}
        for phrase in () if profile.derived else own:
            if phrase.weight == CAPABILITY_WEIGHT:
                for stem in phrase.words.stems:
                    declared.setdefault(stem, []).append(phrase.words.stems)
        for phrase in own:
            for stem in phrase.words.stems:
                known = best.setdefault(stem, {})
                key = frozenset(declared[stem]) if stem in declared else first
                known[key] = max(known.get(key, 0.0), phrase.weight)
    size = len(set(equals))
    most = log(1 + size)
    return {
        stem: log(1 + size / max(sum(weights.values()), 1.0)) / most
        for stem, weights in best.items()
    }


def _compare_prefix(one: str, other: str) -> float:
    same = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        same += 1
    return same / max(len(one), len(other))
