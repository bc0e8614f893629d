"""Unigram statistics: how much more likely a feature is in one group of texts than in general.

`example_index` keeps several for the example tasks of a tree. Each is smoothed with a Dirichlet
prior (Zhai and Lafferty 2001, "A Study of Smoothing Methods for Language Models"). The background
is all texts and those of some imagined groups, or all words of a small tree would seem common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log1p
from typing import Final

from echelons.routing.text_features import (
    STOPWORD_STEMS,
    WordSequence,
    extract_pairs,
    extract_pieces,
)

IMAGINED_GROUPS: Final = 5
"""Imagined agents outside the tree, in whose texts none of its content words occur."""

SMOOTHING: Final = 2.0
"""Weight of the prior, in multiples of the mean length of an agent's examples."""

Features = Sequence[str]


@dataclass(frozen=True, slots=True)
class FeatureKind:
    """A kind of feature, with its weight and its own `SMOOTHING`.

    Attributes:
        is_corrected: Whether its weights are corrected by the examples (`discriminative_weights`).
    """

    extract: Callable[[WordSequence], Features]
    weight: float
    smoothing: float
    is_corrected: bool = False


FEATURE_KINDS: Final = (
    FeatureKind(lambda text: list(dict.fromkeys(text.stems)), 0.6, SMOOTHING, is_corrected=True),
    FeatureKind(lambda text: list(dict.fromkeys(text.forms)), 0.4, SMOOTHING),
    FeatureKind(lambda text: extract_pairs(text.stems), 0.1, SMOOTHING),
    FeatureKind(lambda text: extract_pieces(text.forms), 0.2, 1.0, is_corrected=True),
)


class FeatureStatistics:
    """Statistics of one kind of feature over groups of texts.

    Args:
        kind: The kind of feature.
        texts: The features of each text, by group.
        unit: The log-likelihood ratio that counts as 1.
    """

    def __init__(
        self, kind: FeatureKind, texts: Mapping[int, Sequence[Features]], unit: float = 1.0
    ) -> None:
        self._weight = kind.weight / unit
        self._counts: dict[str, dict[int, int]] = {}
        self._lengths = dict.fromkeys(texts, 0)
        for group, each in texts.items():
            for feature in chain.from_iterable(each):
                having = self._counts.setdefault(feature, {})
                having[group] = having.get(group, 0) + 1
                self._lengths[group] += 1
        total = sum(self._lengths.values()) or 1
        self._added = kind.smoothing * total / max(len(texts), 1)
        elsewhere = (len(texts) + IMAGINED_GROUPS) / max(len(texts), 1)
        self._costs = {group: self._compute_cost(length) for group, length in self._lengths.items()}
        self._usual: dict[str, float] = {}
        self._weights: dict[str, dict[int, float]] = {}
        for feature, having in self._counts.items():
            # Stop words are as frequent elsewhere as here; content words occur in this tree only.
            factor = 1.0 if feature in STOPWORD_STEMS else elsewhere
            usual = self._added * sum(having.values()) / (total * factor)
            self._usual[feature] = usual
            self._weights[feature] = {
                group: self._weight * log1p(n / usual) for group, n in having.items()
            }

    def add_scores(self, features: Features, scores: list[float]) -> None:
        """Add to the score of each group the log-likelihood ratio of a text."""
        weights = self._weights
        for feature in features:
            if feature in weights:
                for group, weight in weights[feature].items():
                    scores[group] += weight
        for group, cost in self._costs.items():
            scores[group] -= cost * len(features)

    def compute_loss(self, features: Features, group: int) -> float:
        """Return how much of a group's score for its own text is due to that text being in it."""
        left = self._lengths[group] - len(features)
        much = len(features) * (self._compute_cost(left) - self._costs[group])
        for feature in features:
            much += self._weights[feature][group]
            if others := self._counts[feature][group] - 1:
                much -= self._weight * log1p(others / self._usual[feature])
        return much

    def get_weights(self, feature: str) -> dict[int, float]:
        """Return the weights of a feature by group; the caller may change them in place."""
        return self._weights[feature]

    def _compute_cost(self, length: int) -> float:
        return self._weight * log1p(length / self._added)
