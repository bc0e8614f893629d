"""The protocol of matchers, and the weights of words by which they tell agents apart."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from itertools import chain, pairwise
from math import exp, log, log1p, sqrt
from typing import Final, NamedTuple, Protocol

from echelons.capabilities import DeclaredCapabilities
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


MAX_TASK_CHARACTERS = 12_000
"""Characters of a task that a matcher reads; of a longer one, its beginning and its end."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The facts that a matcher knows of an agent.

    Attributes:
        path: Names from the root down to the agent.
        capabilities: Its capabilities; `capabilities.full` has their example tasks.
        derived: Whether the capabilities were derived from names.
        texts: Descriptions of it and its tools.
    """

    path: tuple[str, ...]
    capabilities: DeclaredCapabilities
    derived: bool = False
    texts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.path[-1]

    @property
    def confidence(self) -> float:
        """Its best confidence, used where it is unknown which capability is meant."""
        return max(self.capabilities.values(), default=0.0)

    @property
    def examples(self) -> tuple[tuple[str, float], ...]:
        """Its example tasks, each with the confidence of its capability."""
        return tuple(
            (text, item.confidence)
            for item in self.capabilities.full.values()
            for text in item.examples
        )

    @property
    def ability(self) -> Hashable:
        """The overlap of two agents: the names of their capabilities.

        If they were derived, the descriptions too. Its own name is then one of them: it counts
        only if there is no other, and without its number ("weather_2").
        """
        phrases = {read_words(name).stems for name in self.capabilities}
        if not self.derived:
            return frozenset(phrases)
        name_stems = read_words(self.name).stems
        plain = tuple(filter(None, (item.rstrip("0123456789") for item in name_stems)))
        return frozenset(phrases - {name_stems} or {plain or name_stems}), self.texts


class Match(NamedTuple):
    """How well an agent fits a task.

    Attributes:
        value: The match, from 0 (not at all) to 1.
        confidence: The agent's declared confidence in the capability that the task is about.
    """

    value: float
    confidence: float


class PreparedMatcher(Protocol):
    """A matcher that has read the profiles of a tree."""

    def match(self, task: str) -> Mapping[int, Match]:
        """Return the matches above 0, by position of the profile."""
        ...

    async def amatch(self, task: str) -> Mapping[int, Match]:
        """Async version of `match`."""
        ...

    def reasons(self, task: str, place: int) -> Sequence[str]:
        """Return readable reasons why a task matches the profile at position `place`."""
        ...


class Matcher(Protocol):
    """A way of rating how well agents fit a task."""

    @property
    def threshold(self) -> float:
        """The match, from 0 to 1, that an agent needs, unless the router sets another."""
        ...

    def prepare(self, profiles: Sequence[Profile]) -> PreparedMatcher:
        """Prepare the profiles of a tree, without blocking."""
        ...


def find_equals(profiles: Sequence[Profile], *, by_examples: bool = False) -> list[int]:
    """Return for each profile the position of the first that can do the same.

    Words that many agents share tell little, unless the agents are equal: then there is nothing
    to tell apart. So statistics over a tree count each of these positions once.
    """
    first: dict[Hashable, int] = {}
    return [
        first.setdefault(
            frozenset(text for text, _ in item.examples)
            if by_examples and item.examples
            else item.ability,
            place,
        )
        if item.capabilities
        else place
        for place, item in enumerate(profiles)
    ]


def saturate_evidence(evidence: float) -> float:
    """Return unbounded evidence as a match below 1: `e² / (1 + e²)`.

    This is Hill's equation: a little evidence counts almost nothing, 1 gives a half, and more
    evidence always gives a higher match.
    """
    if evidence <= 0:
        return 0.0
    return evidence * evidence / (1 + evidence * evidence)


def shorten_task(task: str) -> str:
    """Return the excerpt of a task that matchers read."""
    if len(task) <= MAX_TASK_CHARACTERS:
        return task
    return f"{task[: MAX_TASK_CHARACTERS // 2]}\n{task[-MAX_TASK_CHARACTERS // 2 :]}"
