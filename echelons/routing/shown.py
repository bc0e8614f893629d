"""Evidence from example tasks: which agent's examples a task is most likely to be one of.

``lexical`` keeps one ``Shown`` for a tree. Each kind of feature (stems, words, pairs, pieces) is a
language model of its own with Dirichlet smoothing (Zhai and Lafferty 2001, "A Study of Smoothing
Methods for Language Models"): the logarithm of how much more likely a feature is in an agent's
examples than in general. In general means: in all examples, and in those of some agents that the
tree does not have, or the words of a small tree would all seem common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log1p
from typing import Final

from echelons.routing.features import SMALL_STEMS, Words, pairs, pieces, read
from echelons.routing.matcher import Profile

ELSEWHERE: Final = 5
"""Agents that are not in the tree, for what a word means outside of it."""

SMOOTHING: Final = 2.0
"""How many times the usual length of an agent's examples is added of general language."""

POOLED: Final = 0.8
"""What the examples of all colleagues under one superior count, beside the agent's own."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of feature.

    Attributes:
        of: Takes the features from a text.
        weight: What the kind counts.
        smoothing: As ``SMOOTHING``, for this kind.
    """

    of: Callable[[Words], Sequence[str]]
    weight: float
    smoothing: float


KINDS: Final = (
    Kind(lambda text: list(dict.fromkeys(text.stems)), 0.6, SMOOTHING),
    Kind(lambda text: list(dict.fromkeys(text.said)), 0.4, SMOOTHING),
    Kind(lambda text: pairs(text.stems), 0.1, SMOOTHING),
    Kind(lambda text: pieces(text.said), 0.2, 1.0),
)


class _Model:
    """One kind of feature over texts that are grouped by some key.

    Args:
        kind: The kind.
        texts: The features of each example task of each group.
    """

    def __init__(self, kind: Kind, texts: Mapping[int, Sequence[Sequence[str]]]) -> None:
        counts: dict[str, dict[int, int]] = {}
        lengths = dict.fromkeys(texts, 0)
        for group, each in texts.items():
            for feature in chain.from_iterable(each):
                having = counts.setdefault(feature, {})
                having[group] = having.get(group, 0) + 1
                lengths[group] += 1
        total = sum(lengths.values()) or 1
        added = kind.smoothing * total / max(len(texts), 1)
        elsewhere = (len(texts) + ELSEWHERE) / max(len(texts), 1)
        self.costs = {group: kind.weight * log1p(n / added) for group, n in lengths.items()}
        self._entries: dict[str, list[tuple[int, float]]] = {}
        for feature, having in counts.items():
            # Small words are as frequent elsewhere as here; other words belong to their agents.
            world = 1.0 if feature in SMALL_STEMS else elsewhere
            usual = added * sum(having.values()) / (total * world)
            self._entries[feature] = [
                (group, kind.weight * log1p(n / usual)) for group, n in having.items()
            ]

    def add(self, features: Sequence[str], scores: list[float]) -> None:
        """Add to the scores of the groups how much more likely a task is in each of them."""
        entries = self._entries
        for feature in features:
            for group, weight in entries.get(feature, ()):
                scores[group] += weight
        for group, cost in self.costs.items():
            scores[group] -= cost * len(features)


class Shown:
    """The examples of all profiles of a tree.

    Args:
        profiles: The profiles; evidence names them by their places.

    Attributes:
        numbers: How many examples each profile has that has some.
    """

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._examples = {
            place: profile.examples for place, profile in enumerate(profiles) if profile.examples
        }
        self.numbers = {place: len(each) for place, each in self._examples.items()}
        own = {place: [read(text) for text, _ in each] for place, each in self._examples.items()}
        superiors = {place: profiles[place].path[:-1] for place in own}
        groups = {path: number for number, path in enumerate(dict.fromkeys(superiors.values()))}
        self._group = {place: groups[path] for place, path in superiors.items()}
        self._size = len(profiles)
        self._own: list[_Model] = []
        self._pooled: list[_Model] = []
        for kind in KINDS:
            features = {place: [kind.of(text) for text in each] for place, each in own.items()}
            pooled: dict[int, list[Sequence[str]]] = {number: [] for number in groups.values()}
            for place, each in features.items():
                pooled[self._group[place]] += each
            self._own.append(_Model(kind, features))
            self._pooled.append(_Model(kind, pooled))
        # What a word tells that only one agent's examples have.
        self._unit = log1p((len(own) + ELSEWHERE) / SMOOTHING) - log1p(1 / SMOOTHING)

    def evidence(self, task: Words) -> Mapping[int, float]:
        """Return, by place, how many telling words' worth speaks for it.

        Colleagues' examples count for an agent only beside its own. What is in nobody's
        examples is no evidence against what a name says.
        """
        if not self._examples or not task.said:
            return {}
        own, pooled = [0.0] * self._size, [0.0] * len(self._pooled[0].costs)
        for kind, mine, ours in zip(KINDS, self._own, self._pooled, strict=True):
            features = kind.of(task)
            mine.add(features, own)
            ours.add(features, pooled)
        return {
            place: (own[place] + POOLED * max(pooled[group], 0.0)) / self._unit
            for place, group in self._group.items()
            if own[place] > 0
        }

    def nearest(self, task: Words, place: int) -> tuple[str, float]:
        """Return the example with most of a task's words, and its confidence."""
        meant = {stem for stem in task.stems if stem not in SMALL_STEMS}

        def likeness(example: tuple[str, float]) -> float:
            stems = set(read(example[0]).stems)
            every = set(task.stems) | stems
            return len(meant & stems) + len(stems & set(task.stems)) / max(len(every), 1)

        return max(self._examples[place], key=likeness)

    def confidence(self, task: Words, place: int) -> float:
        """Return the confidence of what a task is about, of the nearest example."""
        examples = self._examples[place]
        first = examples[0][1]
        if all(confidence == first for _, confidence in examples):
            return first
        return self.nearest(task, place)[1]
