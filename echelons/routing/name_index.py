"""Evidence from names: the words of capabilities, of the agent's own name, of descriptions.

`lexical` keeps one `Names` for a tree. A phrase that a task names in full counts the square
root of its rare words; one that it names in part, in proportion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import Final, NamedTuple

from echelons.routing.matcher import Profile
from echelons.routing.text_features import Words, is_small, read

OWN_NAME: Final = 0.5
"""What the agent's name counts beside capabilities that it declares (1.0)."""

TEXT: Final = 0.8
"""What a description counts."""

IN_A_TEXT: Final = 0.25
"""The power of its length by which a text's words count less; a phrase has a half (the root)."""

SUPERIOR: Final = 0.3
"""What the names of its superiors count: what they stand for is true of it too."""

SMALL: Final = 0.3
"""What a small word ("my", "who") counts beside another one."""

NEAR: Final = 0.7
"""What a word counts that only begins like another one, times the part that is alike."""

ALIKE: Final = 0.6
"""Of the longer of two stems: so much must be alike ("defin", "definit")."""

HEAD: Final = 4
"""Characters that two stems have in common at least, to be alike."""

INITIALS: Final = range(3, 5)
"""Letters of an abbreviation: "pto" is found in "paid time off"."""


class Phrase(NamedTuple):
    """Words that stand together in a profile, what they count, and with which confidence."""

    words: Words
    weight: float
    confidence: float
    names: bool = True

    @property
    def power(self) -> float:
        """By which power of its length a word of it counts less."""
        return 0.5 if self.names else IN_A_TEXT


class Entry(NamedTuple):
    """That a term stands in a profile, what it counts there, and with which confidence."""

    place: int
    weight: float
    confidence: float


def phrases(profile: Profile) -> Iterator[Phrase]:
    """Yield what is written about an agent, what counts most first."""
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
    """The words of all profiles of a tree, by the stems that a task may have.

    Args:
        profiles: The profiles; entries name them by their places.
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
        """Yield, for what of a task is known: the words said, how surely, and where it stands."""
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
            # In a sentence small words are everywhere; in a name they are part of it.
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
        """Yield the terms of words written apart or together: "time zone", "timezone"."""
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
        """Return the terms that begin like a stem, with how surely they mean the same."""
        if stem not in self._alike:
            near = ((term, _alike(stem, term)) for term in self._heads.get(stem[:HEAD], ()))
            self._alike[stem] = [
                (term, NEAR * part) for term, part in near if part >= ALIKE and term != stem
            ]
        return self._alike[stem]


def _rarities(every: Sequence[Sequence[Phrase]]) -> dict[str, float]:
    """How much each stem tells: `log(1 + n / having)`, as a part of the most that can be.

    Who has it with little weight counts as little among those who have it.
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
