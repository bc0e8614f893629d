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

STEP_SIZE: Final = 0.6
"""Size of a step, in units of evidence, for an example that would certainly go to others."""

RIVAL_COUNT: Final = 3
"""Rivals that an example is compared with: the agents with the most evidence."""

MAX_EXAMPLES: Final = 10
"""Examples of an agent that are used: agents with more need no correction."""

MAX_COMPARISONS: Final = 300_000
"""Limit on pairwise comparisons, so that a large tree is read in bounded time."""

ERROR_TOLERANCE: Final = 0.01
"""Errors up to this are not corrected."""


def limit_examples(agents: int) -> int:
    """Return how many examples of each agent are used.

    >>> [limit_examples(agents) for agents in (3, 150, 300, 1000)]
    [10, 10, 3, 0]
    """
    return min(MAX_EXAMPLES, MAX_COMPARISONS // max(agents, 1) ** 2)


@dataclass(frozen=True, slots=True)
class WeightExample:
    """An example, with the evidence for the agents that compete for it.

    Attributes:
        place: Position of its own agent among the profiles.
        scores: Evidence for its own agent and the rivals, without the weights in `weights`.
        other_odds: The summed odds of all other agents.
        weights: The weights of each of its features, by position; shared, and changed in place.
        learning_rates: The learning rate of each of its features.
    """

    place: int
    scores: Mapping[int, float]
    other_odds: float
    weights: Sequence[dict[int, float]]
    learning_rates: Sequence[float]

    def compute_errors(self) -> Mapping[int, float]:
        """Return the error for each position: target minus probability."""
        odds = {
            place: exp(min(fixed + sum_weights(place, self.weights), 500.0))  # no overflow
            for place, fixed in self.scores.items()
        }
        whole = self.other_odds + sum(odds.values())
        return {place: (place == self.place) - each / whole for place, each in odds.items()}

    def update_weights(self, errors: Mapping[int, float]) -> None:
        """Change the weights of its features, for agents that have the feature."""
        much = [(place, each) for place, each in errors.items() if abs(each) > ERROR_TOLERANCE]
        for tells, rate in zip(self.weights, self.learning_rates, strict=True):
            for place, each in much:
                if place in tells:
                    tells[place] += rate * each


def sum_weights(place: int, weights: Sequence[Mapping[int, float]]) -> float:
    """Return the sum of the weights that features have for an agent.

    >>> sum_weights(1, [{1: 0.5}, {2: 1.0}, {1: 0.25}])
    0.75
    """
    return sum([tells[place] for tells in weights if place in tells])


def select_competitors(place: int, evidence: Mapping[int, float]) -> list[int]:
    """Return the position of an example's own agent, then those of its strongest rivals.

    >>> select_competitors(7, {1: 0.5, 2: 3.0, 3: 1.0, 4: 2.0, 7: 0.1})
    [7, 2, 4, 3]
    """
    others = (each for each in evidence if each != place)
    return [place, *nlargest(RIVAL_COUNT, others, key=evidence.__getitem__)]


def compute_learning_rates(texts: Sequence[Features]) -> list[list[float]]:
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
        [STEP_SIZE * rare[feature] / (size * usual) for feature in text]
        for text, size in zip(texts, sizes, strict=True)
    ]


def correct_weights(examples: Sequence[WeightExample]) -> None:
    """Correct the feature weights in place; the order of the examples makes no difference."""
    left = examples
    for _ in range(STEPS):
        # All errors are computed before any weight changes, or the order would matter.
        found = [(lesson, lesson.compute_errors()) for lesson in left]
        left = [lesson for lesson, each in found if max(map(abs, each.values())) > ERROR_TOLERANCE]
        for lesson, each in found:
            lesson.update_weights(each)
