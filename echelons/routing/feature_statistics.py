"""`LanguageModel`: how much more likely a feature is in one group of texts than in general.

`shown` keeps some for the example tasks of a tree. Each is smoothed by Dirichlet's prior (Zhai
and Lafferty 2001, "A Study of Smoothing Methods for Language Models"). In general means: in all
texts, and in those of some groups that are not there, or the words of a small tree would all seem
common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log1p
from typing import Final

from echelons.routing.text_features import SMALL_STEMS, Words, pairs, pieces

ELSEWHERE: Final = 5
"""Agents that are not in the tree, for what a word means outside of it."""

SMOOTHING: Final = 2.0
"""How many times the usual length of an agent's examples is added of general language."""

Features = Sequence[str]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of feature.

    Attributes:
        of: Takes the features from a text.
        weight: What the kind counts.
        smoothing: As `SMOOTHING`, for this kind.
        learns: Whether what its features tell is corrected by the examples (see `correcting`).
    """

    of: Callable[[Words], Features]
    weight: float
    smoothing: float
    learns: bool = False


KINDS: Final = (
    Kind(lambda text: list(dict.fromkeys(text.stems)), 0.6, SMOOTHING, learns=True),
    Kind(lambda text: list(dict.fromkeys(text.said)), 0.4, SMOOTHING),
    Kind(lambda text: pairs(text.stems), 0.1, SMOOTHING),
    Kind(lambda text: pieces(text.said), 0.2, 1.0, learns=True),
)


class LanguageModel:
    """One kind of feature over texts that are grouped by some key.

    Args:
        kind: The kind.
        texts: The features of each text of each group.
        unit: What counts as 1.
    """

    def __init__(
        self, kind: Kind, texts: Mapping[int, Sequence[Features]], unit: float = 1.0
    ) -> None:
        self._weight = kind.weight / unit
        self._counts: dict[str, dict[int, int]] = {}
        self._lengths = dict.fromkeys(texts, 0)
        for group, each in texts.items():
            for feature in chain.from_iterable(each):
                having = self._counts.setdefault(feature, {})
                having[group] = having.get(group, 0) + 1
                self._lengths[group] += 1
        self._total = sum(self._lengths.values()) or 1
        self._added = kind.smoothing * self._total / max(len(texts), 1)
        self._elsewhere = (len(texts) + ELSEWHERE) / max(len(texts), 1)
        self._costs = {group: self._cost(length) for group, length in self._lengths.items()}
        self._usual = {
            feature: self._added * sum(having.values()) / (self._total * self._world(feature))
            for feature, having in self._counts.items()
        }
        self._weights = {
            feature: {
                group: self._weight * log1p(n / self._usual[feature]) for group, n in having.items()
            }
            for feature, having in self._counts.items()
        }

    def add(self, features: Features, scores: list[float]) -> None:
        """Add to the scores of the groups how much more likely a text is in each of them."""
        weights = self._weights
        for feature in features:
            if feature in weights:
                for group, weight in weights[feature].items():
                    scores[group] += weight
        for group, cost in self._costs.items():
            scores[group] -= cost * len(features)

    def lost(self, features: Features, group: int) -> float:
        """Return how much less `add` would add for a text if it were none of its group's."""
        left = self._lengths[group] - len(features)
        much = len(features) * (self._cost(left) - self._costs[group])
        for feature in features:
            much += self._weights[feature][group]
            if others := self._counts[feature][group] - 1:
                much -= self._weight * log1p(others / self._usual[feature])
        return much

    def tells(self, feature: str) -> dict[int, float]:
        """Return what a feature tells of each group that has it; to be read, or corrected."""
        return self._weights[feature]

    def _cost(self, length: int) -> float:
        return self._weight * log1p(length / self._added)

    def _world(self, feature: str) -> float:
        # Small words are as frequent elsewhere as here; other words belong to their agents.
        return 1.0 if feature in SMALL_STEMS else self._elsewhere
