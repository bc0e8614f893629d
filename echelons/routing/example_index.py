"""Evidence from example tasks: whose examples a task resembles most.

`lexical_matcher` keeps one index for a tree. Each kind of feature (stems, words, pairs, pieces)
has its own statistics: the logarithm of how much more likely a feature is in an agent's examples
than in general (see `feature_statistics`). The examples also correct these weights (see
`discriminative_weights`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log1p
from typing import Final

from echelons.routing.discriminative_weights import (
    MAX_EXAMPLES,
    WeightExample,
    compute_learning_rates,
    correct_weights,
    limit_examples,
    select_competitors,
    sum_weights,
)
from echelons.routing.feature_statistics import (
    FEATURE_KINDS,
    IMAGINED_GROUPS,
    SMOOTHING,
    Features,
    FeatureStatistics,
)
from echelons.routing.matcher import Profile, find_equals
from echelons.routing.text_features import STOPWORD_STEMS, WordSequence, read_words

POOLED_WEIGHT: Final = 0.8
"""Weight of the pooled examples of all agents under one superior; that of the own ones is 1."""


class ExampleIndex:
    """An index of the examples of all profiles of a tree, by position.

    Attributes:
        example_counts: The number of examples by position, for profiles that have some.
    """

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._examples = {
            place: profile.examples for place, profile in enumerate(profiles) if profile.examples
        }
        self.example_counts = {place: len(each) for place, each in self._examples.items()}
        # Users also ask for capabilities by name.
        self._texts = {
            place: (*each, *profiles[place].capabilities.items())
            for place, each in self._examples.items()
        }
        equals = find_equals(profiles, with_examples=True)
        # Equal agents count as one: else they would take each other's evidence away.
        self._equals = {place: equals[place] for place in self._texts}
        self._distinct = {place: first for place, first in self._equals.items() if place == first}
        own = {
            place: [read_words(text) for text, _ in self._texts[place]] for place in self._distinct
        }
        teams: dict[tuple[str, ...], set[int]] = {}
        for place, first in self._equals.items():
            teams.setdefault(profiles[place].path[:-1], set()).add(first)
        members = {path: tuple(sorted(each)) for path, each in teams.items()}
        groups = {each: at for at, each in enumerate(dict.fromkeys(members.values()))}
        self._group = {place: groups[members[profiles[place].path[:-1]]] for place in self._equals}
        self._size = len(profiles)
        self._groups = len(groups)
        self._own: list[FeatureStatistics] = []
        self._pooled: list[FeatureStatistics] = []
        # The unit of evidence: the weight of a word in the examples of only one agent.
        unit = log1p((len(own) + IMAGINED_GROUPS) / SMOOTHING) - log1p(1 / SMOOTHING)
        known = [
            {place: [kind.extract(text) for text in each] for place, each in own.items()}
            for kind in FEATURE_KINDS
        ]
        for kind, features in zip(FEATURE_KINDS, known, strict=True):
            pooled = {
                number: [text for place in each for text in features[place]]
                for each, number in groups.items()
            }
            self._own.append(FeatureStatistics(kind, features, unit))
            self._pooled.append(FeatureStatistics(kind, pooled, unit))
        self._correct_weights(known)

    def compute_evidence(self, task: WordSequence) -> Mapping[int, float]:
        """Return the evidence above 0 by position, in units of one distinctive word.

        The pooled examples of a team count for an agent only in addition to its own. Words that
        occur in no examples are no evidence against the evidence of names.
        """
        if not self._examples or not task.forms:
            return {}
        features = [kind.extract(task) for kind in FEATURE_KINDS]
        return self._combine_scores(*self._compute_scores(features), self._equals)

    def _compute_scores(self, text: Sequence[Features]) -> tuple[list[float], list[float]]:
        own, pooled = [0.0] * self._size, [0.0] * self._groups
        for features, mine, ours in zip(text, self._own, self._pooled, strict=True):
            mine.add_scores(features, own)
            ours.add_scores(features, pooled)
        return own, pooled

    def _combine_scores(
        self, own: Sequence[float], pooled: Sequence[float], equals: Mapping[int, int]
    ) -> dict[int, float]:
        return {
            place: own[first] + POOLED_WEIGHT * max(pooled[self._group[place]], 0.0)
            for place, first in equals.items()
            if own[first] > 0
        }

    def _correct_weights(self, known: Sequence[Mapping[int, Sequence[Features]]]) -> None:
        """Correct weights by the first few examples in `known`, features by kind and position."""
        most = limit_examples(len(self._distinct))
        texts = [
            (place, [features[place][each] for features in known])
            for place in self._distinct
            # Leaving out an agent's only example would leave nothing to compare.
            if (number := self.example_counts[place]) > 1
            for each in range(min(number, most))
        ]
        learning = [at for at, kind in enumerate(FEATURE_KINDS) if kind.is_corrected]
        rates = [compute_learning_rates([text[at] for _, text in texts]) for at in learning]
        fast = [list(zip(learning, each, strict=True)) for each in zip(*rates, strict=True)]
        correct_weights(
            [self._build_example(*text, each) for text, each in zip(texts, fast, strict=True)]
        )

    def _build_example(
        self, place: int, text: Sequence[Features], fast: Sequence[tuple[int, Sequence[float]]]
    ) -> WeightExample:
        weights = [self._own[at].get_weights(feature) for at, _ in fast for feature in text[at]]
        # The more examples an agent has, the less each of them needs to correct.
        part = min(1.0, MAX_EXAMPLES / self.example_counts[place])
        evidence = self._leave_one_out(text, place)
        scores = {
            each: evidence.get(each, 0.0) - sum_weights(each, weights)
            for each in select_competitors(place, evidence)
        }
        others = sum(exp(much) for each, much in evidence.items() if each not in scores)
        nothing = len(self._distinct) - len({*evidence, place})
        rates = [part * rate for _, each in fast for rate in each]
        return WeightExample(place, scores, others + nothing, weights, rates)

    def _leave_one_out(self, text: Sequence[Features], place: int) -> Mapping[int, float]:
        """Return the evidence for an example, leaving that example out."""
        own, pooled = self._compute_scores(text)
        group = self._group[place]
        for features, mine, ours in zip(text, self._own, self._pooled, strict=True):
            own[place] -= mine.compute_loss(features, place)
            pooled[group] -= ours.compute_loss(features, group)
        return self._combine_scores(own, pooled, self._distinct)

    def find_nearest(self, task: WordSequence, place: int) -> str:
        """Return the example that shares most words with a task."""
        return _find_nearest_text(task, self._examples[place])[0]

    def find_confidence(self, task: WordSequence, place: int) -> float:
        """Return the confidence of the example or capability name nearest to a task."""
        texts = self._texts[place]
        if len({confidence for _, confidence in texts}) == 1:
            return texts[0][1]
        return _find_nearest_text(task, texts)[1]


def _find_nearest_text(task: WordSequence, texts: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """Return the text that shares most words with a task, and its confidence."""
    every = set(task.stems)

    def likeness(text: tuple[str, float]) -> float:
        stems = set(read_words(text[0]).stems)
        shared = every & stems
        return len(shared - STOPWORD_STEMS) + len(shared) / max(len(every | stems), 1)

    return max(texts, key=likeness)
