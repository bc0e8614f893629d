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
from echelons.routing.matcher import Profile
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
        # Capabilities are compared, not agents. Equal ones count as one, whatever else their agents
        # can do: else they would take each other's evidence away.
        numbers: dict[tuple[tuple[str, ...], frozenset[str]], int] = {}
        self._numbers: dict[int, list[int]] = {}
        own: list[list[WordSequence]] = []
        for place in self._examples:
            mine = self._numbers[place] = []
            for name, each in profiles[place].capabilities.full.items():
                key = read_words(name).stems, frozenset(each.examples)
                mine.append(numbers.setdefault(key, len(numbers)))
                if len(own) < len(numbers):
                    own.append([read_words(text) for text in (*each.examples, name)])
        teams: dict[tuple[str, ...], set[int]] = {}
        for place, mine in self._numbers.items():
            teams.setdefault(profiles[place].path[:-1], set()).update(mine)
        members = {path: tuple(sorted(each)) for path, each in teams.items()}
        groups = {each: at for at, each in enumerate(dict.fromkeys(members.values()))}
        self._group = {place: groups[members[profiles[place].path[:-1]]] for place in self._numbers}
        # The group of each capability's first agent, and what its agents can do besides.
        self._homes: dict[int, int] = {}
        self._beside: dict[int, set[int]] = {}
        for place, mine in self._numbers.items():
            for number in mine:
                self._homes.setdefault(number, self._group[place])
                self._beside.setdefault(number, set()).update(mine)
        self._counts = [len(each) - 1 for each in own]
        self._size = len(own)
        self._groups = len(groups)
        self._own: list[FeatureStatistics] = []
        self._pooled: list[FeatureStatistics] = []
        # The unit of evidence: the weight of a word in the examples of only one agent.
        unit = log1p((len(own) + IMAGINED_GROUPS) / SMOOTHING) - log1p(1 / SMOOTHING)
        known = [
            {number: [kind.extract(text) for text in each] for number, each in enumerate(own)}
            for kind in FEATURE_KINDS
        ]
        for kind, features in zip(FEATURE_KINDS, known, strict=True):
            pooled = {
                group: [text for number in each for text in features[number]]
                for each, group in groups.items()
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
        own, pooled = self._compute_scores(features)
        best = {place: max(own[number] for number in mine) for place, mine in self._numbers.items()}
        return {
            place: much + POOLED_WEIGHT * max(pooled[self._group[place]], 0.0)
            for place, much in best.items()
            if much > 0
        }

    def _compute_scores(self, text: Sequence[Features]) -> tuple[list[float], list[float]]:
        own, pooled = [0.0] * self._size, [0.0] * self._groups
        for features, mine, ours in zip(text, self._own, self._pooled, strict=True):
            mine.add_scores(features, own)
            ours.add_scores(features, pooled)
        return own, pooled

    def _correct_weights(self, known: Sequence[Mapping[int, Sequence[Features]]]) -> None:
        """Correct weights by the first few examples in `known`, features by kind and capability."""
        most = limit_examples(self._size)
        texts = [
            (number, [features[number][each] for features in known])
            for number, count in enumerate(self._counts)
            # Leaving out an only example would leave nothing to compare.
            if count > 1
            for each in range(min(count, most))
        ]
        learning = [at for at, kind in enumerate(FEATURE_KINDS) if kind.is_corrected]
        rates = [compute_learning_rates([text[at] for _, text in texts]) for at in learning]
        fast = [list(zip(learning, each, strict=True)) for each in zip(*rates, strict=True)]
        correct_weights(
            [self._build_example(*text, each) for text, each in zip(texts, fast, strict=True)]
        )

    def _build_example(
        self, number: int, text: Sequence[Features], fast: Sequence[tuple[int, Sequence[float]]]
    ) -> WeightExample:
        weights = [self._own[at].get_weights(feature) for at, _ in fast for feature in text[at]]
        # The more examples a capability has, the less each of them needs to correct.
        part = min(1.0, MAX_EXAMPLES / self._counts[number])
        evidence = self._leave_one_out(text, number)
        scores = {
            each: evidence.get(each, 0.0) - sum_weights(each, weights)
            for each in select_competitors(number, evidence)
        }
        others = sum(exp(much) for each, much in evidence.items() if each not in scores)
        nothing = self._size - len({*evidence, *self._beside[number]})
        rates = [part * rate for _, each in fast for rate in each]
        return WeightExample(number, scores, others + nothing, weights, rates)

    def _leave_one_out(self, text: Sequence[Features], number: int) -> Mapping[int, float]:
        """Return the evidence of capabilities for an example of one, leaving that example out.

        What the same agents can do besides does not compete for it.
        """
        own, pooled = self._compute_scores(text)
        home = self._homes[number]
        for features, mine, ours in zip(text, self._own, self._pooled, strict=True):
            own[number] -= mine.compute_loss(features, number)
            pooled[home] -= ours.compute_loss(features, home)
        return {
            each: much + POOLED_WEIGHT * max(pooled[self._homes[each]], 0.0)
            for each, much in enumerate(own)
            if much > 0 and (each == number or each not in self._beside[number])
        }

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
