"""Evidence from names: the words of capabilities, agent names and descriptions.

`lexical_matcher` keeps one index for a tree. A phrase that a task contains in full counts the
square root of the sum of its words' rarities; one that it contains in part, in proportion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import Final, NamedTuple

from echelons.routing.matcher import Profile
from echelons.routing.text_features import Words, is_small, read

OWN_NAME: Final = 0.5
"""Weight of the agent's name; that of a declared capability is 1."""

TEXT: Final = 0.8
"""Weight of a description."""

IN_A_TEXT: Final = 0.25
"""Exponent of the length by which words of a description are divided; names have 0.5."""

SUPERIOR: Final = 0.3
"""Weight of the superiors' names, which describe the agent too."""

SMALL: Final = 0.3
"""Weight of a stop word ("my", "who"); that of a content word is 1."""

NEAR: Final = 0.7
"""Weight of a word with the same beginning as another, times the fraction in common."""

ALIKE: Final = 0.6
"""Fraction of the longer of two stems that must be in common ("defin", "definit")."""

HEAD: Final = 4
"""Characters that two similar stems have in common at least."""

INITIALS: Final = range(3, 5)
"""Lengths of abbreviations: "pto" is found in "paid time off"."""


class Phrase(NamedTuple):
    """A text of a profile, with its weight and the confidence of what it describes."""

    words: Words
    weight: float
    confidence: float
    names: bool = True

    @property
    def power(self) -> float:
        """The exponent of its length by which the weight of its words is divided."""
        return 0.5 if self.names else IN_A_TEXT


class Entry(NamedTuple):
    """An occurrence of a term in the profile at `place`, with its weight and confidence."""

    place: int
    weight: float
    confidence: float


def phrases(profile: Profile) -> Iterator[Phrase]:
    """Yield the texts of a profile, the heaviest first."""
    best = profile.confidence
    for name, capability in profile.capabilities.full.items():
        yield Phrase(read(name), 1.0, capability.confidence)
    if not profile.derived:
        yield Phrase(read(profile.name), OWN_NAME, best)
    for text in profile.texts:
        yield Phrase(read(text), TEXT, best, names=False)
    for superior in profile.path[:-1]:
        yield Phrase(read(superior), SUPERIOR, best)


class Names:
    """An index from stems to the profiles of a tree that contain them.

    Args:
        profiles: The profiles; entries refer to them by position.
    """

    def __init__(self, profiles: Sequence[Profile]) -> None:
        every = [list(phrases(profile)) for profile in profiles]
        self._rarity = _rarities(every)
        self._entries: dict[str, list[Entry]] = {}
        self._words: set[str] = set()
        self._joined: set[str] = set()
        self._heads: dict[str, list[str]] = {}
        for place, own in enumerate(every):
            self._index(place, own)
        for term in self._entries:
            if not term.startswith("+") and len(term) >= HEAD:
                self._heads.setdefault(term[:HEAD], []).append(term)
        self._alike: dict[str, list[tuple[str, float]]] = {}

    def entries(self, task: Words) -> Iterator[tuple[str, float, Sequence[Entry]]]:
        """Yield for each known term of a task: its words, the certainty, and its occurrences."""
        terms: dict[str, tuple[str, float]] = {}
        for said, stem in zip(task.said, task.stems, strict=True):
            terms.setdefault(stem, (said, 1.0))
        for term, said in self._compounds(task):
            terms.setdefault(term, (said, 1.0))
        for term, said in self._abbreviations(task):
            terms.setdefault(term, (said, 1.0))
        for said, stem in zip(task.said, task.stems, strict=True):
            for term, sure in self._like(stem):
                terms.setdefault(term, (said, sure))
        for term, (said, sure) in terms.items():
            if found := self._entries.get(term):
                yield said, sure, found

    def _index(self, place: int, own: Sequence[Phrase]) -> None:
        best: dict[str, Entry] = {}
        for phrase in own:
            # Stop words are noise in a description; in a name they are part of it.
            weights = {
                stem: self._rarity[stem] * (SMALL if is_small(said) else 1.0)
                for said, stem in zip(*phrase.words, strict=True)
                if phrase.names or not is_small(said)
            }
            whole = sum(weights.values()) ** phrase.power or 1.0
            if phrase.weight == 1.0:
                self._words.update(phrase.words.said)
                weights.update(self._compound_weights(phrase.words, weights))
            for term, weight in weights.items():
                entry = Entry(place, phrase.weight * weight / whole, phrase.confidence)
                if term not in best or best[term].weight < entry.weight:
                    best[term] = entry
        for term, entry in best.items():
            self._entries.setdefault(term, []).append(entry)

    def _compound_weights(self, phrase: Words, weights: dict[str, float]) -> dict[str, float]:
        compounds: dict[str, float] = {}
        for place in range(len(phrase.said) - 1):
            one, other = phrase.said[place : place + 2]
            if not is_small(one) and not is_small(other):
                self._joined.add(one + other)
                stems = phrase.stems[place : place + 2]
                compounds[f"+{one}{other}"] = sum(weights[stem] for stem in stems)
        return compounds

    def _compounds(self, task: Words) -> Iterator[tuple[str, str]]:
        """Yield terms of words written apart or together, each with the words: "time zone"."""
        for one, other in zip(task.said, task.said[1:], strict=False):
            if one + other in self._words:
                yield read(one + other).stems[0], f"{one} {other}"
        for said in task.said:
            if said in self._joined:
                yield f"+{said}", said

    def _abbreviations(self, task: Words) -> Iterator[tuple[str, str]]:
        initials = "".join(said[0] for said in task.said)
        for size in INITIALS:
            for at in range(len(initials) - size + 1):
                short = initials[at : at + size]
                if short in self._words:
                    yield read(short).stems[0], " ".join(task.said[at : at + size])

    def _like(self, stem: str) -> Sequence[tuple[str, float]]:
        """Return the indexed terms with the same beginning as a stem, each with a certainty."""
        if stem not in self._alike:
            near = ((term, _alike(stem, term)) for term in self._heads.get(stem[:HEAD], ()))
            self._alike[stem] = [
                (term, NEAR * part) for term, part in near if part >= ALIKE and term != stem
            ]
        return self._alike[stem]


def _rarities(every: Sequence[Sequence[Phrase]]) -> dict[str, float]:
    """Return the inverse document frequency of each stem, scaled to at most 1.

    It is `log(1 + n / having) / log(1 + n)`, where a profile counts among those having the stem
    by the best weight that it gives to it.
    """
    having: dict[str, float] = {}
    for own in every:
        best: dict[str, float] = {}
        for phrase in own:
            for stem in phrase.words.stems:
                best[stem] = max(best.get(stem, 0.0), phrase.weight)
        for stem, weight in best.items():
            having[stem] = having.get(stem, 0.0) + weight
    most = log(1 + len(every))
    return {stem: log(1 + len(every) / max(many, 1.0)) / most for stem, many in having.items()}


def _alike(one: str, other: str) -> float:
    same = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        same += 1
    return same / max(len(one), len(other))
