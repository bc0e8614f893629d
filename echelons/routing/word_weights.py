"""The features of texts, how often they occur, and how well they tell agents apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from itertools import chain, pairwise
from math import exp, log, log1p, sqrt
from typing import Final, NamedTuple

from echelons.text.stemming import STOPWORDS, extract_words, stem

PIECE_LENGTH: Final = 4
"""Length of the character n-grams, which bridge inflection, compounds and typos."""

MAX_WORDS: Final = 600
"""Words of one text that are compared at most."""


class WordSequence(NamedTuple):
    """The words of a text in order, in lower case, and the stem of each."""

    forms: tuple[str, ...]
    stems: tuple[str, ...]


@lru_cache(maxsize=4096)
def read_words(text: str) -> WordSequence:
    """Return the words and stems of a text; stop words are kept, as "who" and "how" can matter."""
    words = tuple(extract_words(text)[:MAX_WORDS])
    return WordSequence(words, tuple(map(stem, words)))


STOPWORD_STEMS: Final = frozenset(map(stem, STOPWORDS)) | STOPWORDS


def extract_pairs(stems: Iterable[str]) -> list[str]:
    """Return bigrams with text ends, and unordered pairs with one or two words between."""
    order = list(stems)
    framed = ["^", *order, "$"]
    near = [f"{one} {other}" for one, other in pairwise(framed)]
    far = [
        f"{min(one, other)}~{max(one, other)}"
        for place, one in enumerate(order)
        for other in order[place + 2 : place + 4]
    ]
    return list(dict.fromkeys(near + far))


def extract_pieces(words: Iterable[str]) -> list[str]:
    """Return the character n-grams of the running text, across word boundaries."""
    line = "#".join(["", *words, ""])
    return list(
        dict.fromkeys(line[at : at + PIECE_LENGTH] for at in range(len(line) - PIECE_LENGTH + 1))
    )


IMAGINED_GROUPS: Final = 5
"""Imagined agents outside the tree, in whose texts none of its content words occur."""

SMOOTHING: Final = 2.0
"""Weight of the prior, in multiples of the mean length of an agent's examples."""

Features = Sequence[str]


@dataclass(frozen=True, slots=True)
class FeatureKind:
    """A kind of feature, with its weight and its own `SMOOTHING`."""

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
    """Statistics of one kind of feature over groups of texts."""

    def __init__(
        self, kind: FeatureKind, texts: Mapping[int, Sequence[Features]], unit: float = 1.0
    ) -> None:
        self._weight = kind.weight / unit
        self._counts: dict[str, dict[int, int]] = {}
        self._lengths = dict.fromkeys(texts, 0)
        for group, item in texts.items():
            for feature in chain.from_iterable(item):
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
    """Return how many examples of each agent are used."""
    return min(MAX_EXAMPLES, MAX_COMPARISONS // max(agents, 1) ** 2)


@dataclass(frozen=True, slots=True)
class WeightExample:
    """An example, with the evidence for the agents that compete for it."""

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
        return {place: (place == self.place) - item / whole for place, item in odds.items()}

    def update_weights(self, errors: Mapping[int, float]) -> None:
        """Change the weights of its features, for agents that have the feature."""
        much = [(place, item) for place, item in errors.items() if abs(item) > ERROR_TOLERANCE]
        for tells, rate in zip(self.weights, self.learning_rates, strict=True):
            for place, item in much:
                if place in tells:
                    tells[place] += rate * item


def sum_weights(place: int, weights: Sequence[Mapping[int, float]]) -> float:
    """Return the sum of the weights that features have for an agent."""
    return sum([tells[place] for tells in weights if place in tells])


def select_competitors(place: int, evidence: Mapping[int, float]) -> list[int]:
    """Return the position of an example's own agent, then those of its strongest rivals."""
    others = (item for item in evidence if item != place)
    return [place, *nlargest(RIVAL_COUNT, others, key=evidence.__getitem__)]


def compute_learning_rates(texts: Sequence[Features]) -> list[list[float]]:
    """Return the learning rate of each feature of each text.

    Proportional to the squared inverse document frequency, and normalised by text length.
    """
    having: dict[str, int] = {}
    for text in texts:
        for feature in text:
            having[feature] = having.get(feature, 0) + 1
    rare = {entry: (1 + log((1 + len(texts)) / (1 + n))) ** 2 for entry, n in having.items()}
    sizes = [sqrt(sum(rare[item] for item in text)) or 1.0 for text in texts]
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
        errors = [(lesson, lesson.compute_errors()) for lesson in left]
        left = [lesson for lesson, item in errors if max(map(abs, item.values())) > ERROR_TOLERANCE]
        for lesson, item in errors:
            lesson.update_weights(item)
