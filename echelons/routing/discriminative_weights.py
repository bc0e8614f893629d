"""Corrections: what a tree's own examples teach about which of their features tell agents apart.

Language models count every feature as if it stood alone, so that of two agents that are asked in
much the same words, the one with the louder words wins. A few steps of boosting mend that: every
example is ranked as if it were not known, and as far as it would go to others, its features tell
more of its own agent and less of those others. `shown` does this once, when a tree is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import exp, log, sqrt
from typing import Final

from echelons.routing.feature_statistics import Features

STEPS: Final = 4
"""How often the examples are looked at again; after more, they are learned by heart."""

STEP: Final = 0.6
"""How far a step goes, in telling words, for an example that would go to others altogether."""

RIVALS: Final = 3
"""How many others an example is held against: those who would most likely get it."""

MOST: Final = 10
"""Examples of an agent that correct: more of them need no correction."""

COMPARED: Final = 300_000
"""How many pairs of an example and an agent are compared at most: larger trees are read as fast."""

SETTLED: Final = 0.01
"""The mistake that is too small to be corrected."""


def lessons_of_each(agents: int) -> int:
    """Return how many examples of each agent may correct.

    >>> [lessons_of_each(agents) for agents in (3, 150, 300, 1000)]
    [10, 10, 3, 0]
    """
    return min(MOST, COMPARED // max(agents, 1) ** 2)


@dataclass(frozen=True, slots=True)
class Lesson:
    """An example, and who would get it if it were not known.

    Attributes:
        place: Whose example it is.
        scores: The evidence for it and its rivals, without what `told` says.
        others: The odds of all others together.
        told: For each of its features what it tells of whom.
        rates: How fast each of that changes.
    """

    place: int
    scores: Mapping[int, float]
    others: float
    told: Sequence[dict[int, float]]
    rates: Sequence[float]

    def mistakes(self) -> Mapping[int, float]:
        """Return how much too little the example goes to each, less than 0 for too much."""
        odds = {
            place: exp(min(fixed + told_of(place, self.told), 500.0))
            for place, fixed in self.scores.items()
        }
        whole = self.others + sum(odds.values())
        return {place: (place == self.place) - each / whole for place, each in odds.items()}

    def correct(self, mistakes: Mapping[int, float]) -> None:
        """Let its features tell more and less; nothing of those who do not have them."""
        much = [(place, each) for place, each in mistakes.items() if abs(each) > SETTLED]
        for tells, rate in zip(self.told, self.rates, strict=True):
            for place, each in much:
                if place in tells:
                    tells[place] += rate * each


def told_of(place: int, told: Sequence[Mapping[int, float]]) -> float:
    """Return what some features together tell of an agent.

    >>> told_of(1, [{1: 0.5}, {2: 1.0}, {1: 0.25}])
    0.75
    """
    return sum([tells[place] for tells in told if place in tells])


def held_against(place: int, evidence: Mapping[int, float]) -> list[int]:
    """Return an example's own agent, and those who would most likely get it.

    >>> held_against(7, {1: 0.5, 2: 3.0, 3: 1.0, 4: 2.0, 7: 0.1})
    [7, 2, 4, 3]
    """
    others = (each for each in evidence if each != place)
    return [place, *nlargest(RIVALS, others, key=evidence.__getitem__)]


def rates(texts: Sequence[Features]) -> list[list[float]]:
    """Return for each feature of each text how fast it changes.

    A feature counts by how rare it is, and a text as one, however long.
    """
    having: dict[str, int] = {}
    for text in texts:
        for feature in text:
            having[feature] = having.get(feature, 0) + 1
    rare = {each: (1 + log((1 + len(texts)) / (1 + n))) ** 2 for each, n in having.items()}
    sizes = [sqrt(sum(rare[each] for each in text)) or 1.0 for text in texts]
    usual = sum(sizes) / max(len(sizes), 1)
    return [
        [STEP * rare[feature] / (size * usual) for feature in text]
        for text, size in zip(texts, sizes, strict=True)
    ]


def correct(lessons: Sequence[Lesson]) -> None:
    """Correct what features tell; the order of the lessons makes no difference."""
    left = lessons
    for _ in range(STEPS):
        found = [(lesson, lesson.mistakes()) for lesson in left]
        left = [lesson for lesson, each in found if max(map(abs, each.values())) > SETTLED]
        for lesson, each in found:
            lesson.correct(each)
