"""Corrects the weights of features by which of them tell a tree's agents apart.

The statistics of `feature_statistics` treat every feature as independent, so of two agents with
similar examples the one with the heavier words wins. A few gradient steps of softmax regression
mend that: every example is ranked, leaving it out, and in proportion to the error its features
gain weight for its own agent and lose weight for the others. `example_index` does this once for
a tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from math import exp, log, sqrt
from typing import Final

from echelons.routing.feature_statistics import Features

STEPS: Final = 4
"""Passes over the examples; more of them would overfit."""

STEP: Final = 0.6
"""Size of a step, in units of evidence, for an example that would certainly go to others."""

RIVALS: Final = 3
"""Rivals that an example is compared with: the agents with the most evidence."""

MOST: Final = 10
"""Examples of an agent that are used: agents with more need no correction."""

COMPARED: Final = 300_000
"""Limit on pairwise comparisons, so that a large tree is read in bounded time."""

SETTLED: Final = 0.01
"""Errors up to this are not corrected."""


def lessons_of_each(agents: int) -> int:
    """Return how many examples of each agent are used.

    >>> [lessons_of_each(agents) for agents in (3, 150, 300, 1000)]
    [10, 10, 3, 0]
    """
    return min(MOST, COMPARED // max(agents, 1) ** 2)


@dataclass(frozen=True, slots=True)
class Lesson:
    """An example, with the evidence for the agents that compete for it.

    Attributes:
        place: Position of its own agent among the profiles.
        scores: Evidence for its own agent and the rivals, without the weights in `told`.
        others: The summed odds of all other agents.
        told: The weights of each of its features, by position; shared, and changed in place.
        rates: The learning rate of each of its features.
    """

    place: int
    scores: Mapping[int, float]
    others: float
    told: Sequence[dict[int, float]]
    rates: Sequence[float]

    def mistakes(self) -> Mapping[int, float]:
        """Return the error for each position: target minus probability."""
        odds = {
            place: exp(min(fixed + told_of(place, self.told), 500.0))  # no overflow
            for place, fixed in self.scores.items()
        }
        whole = self.others + sum(odds.values())
        return {place: (place == self.place) - each / whole for place, each in odds.items()}

    def correct(self, mistakes: Mapping[int, float]) -> None:
        """Change the weights of its features, for agents that have the feature."""
        much = [(place, each) for place, each in mistakes.items() if abs(each) > SETTLED]
        for tells, rate in zip(self.told, self.rates, strict=True):
            for place, each in much:
                if place in tells:
                    tells[place] += rate * each


def told_of(place: int, told: Sequence[Mapping[int, float]]) -> float:
    """Return the sum of the weights that features have for an agent.

    >>> told_of(1, [{1: 0.5}, {2: 1.0}, {1: 0.25}])
    0.75
    """
    return sum([tells[place] for tells in told if place in tells])


def held_against(place: int, evidence: Mapping[int, float]) -> list[int]:
    """Return the position of an example's own agent, then those of its strongest rivals.

    >>> held_against(7, {1: 0.5, 2: 3.0, 3: 1.0, 4: 2.0, 7: 0.1})
    [7, 2, 4, 3]
    """
    others = (each for each in evidence if each != place)
    return [place, *nlargest(RIVALS, others, key=evidence.__getitem__)]


def rates(texts: Sequence[Features]) -> list[list[float]]:
    """Return the learning rate of each feature of each text.

    Proportional to the squared inverse document frequency, and normalised by text length.
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
    """Correct the feature weights in place; the order of the examples makes no difference."""
    left = lessons
    for _ in range(STEPS):
        # All errors are computed before any weight changes, or the order would matter.
        found = [(lesson, lesson.mistakes()) for lesson in left]
        left = [lesson for lesson, each in found if max(map(abs, each.values())) > SETTLED]
        for lesson, each in found:
            lesson.correct(each)
