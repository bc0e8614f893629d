"""Evidence from example tasks: which agent's examples a task is most likely to be one of.

`lexical` keeps one `Shown` for a tree. Each kind of feature (stems, words, pairs, pieces) is a
language model of its own: the logarithm of how much more likely a feature is in an agent's
examples than in general (see `language`). The examples themselves correct what features tell
(see `correcting`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log1p
from typing import Final

from echelons.routing.discriminative_weights import (
    MOST,
    Lesson,
    correct,
    held_against,
    lessons_of_each,
    rates,
    told_of,
)
from echelons.routing.feature_statistics import ELSEWHERE, KINDS, SMOOTHING, Features, LanguageModel
from echelons.routing.matcher import Profile
from echelons.routing.text_features import SMALL_STEMS, Words, read

POOLED: Final = 0.8
"""What the examples of all colleagues under one superior count, beside the agent's own."""


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
        # Agents are asked for by the names of what they can do, too.
        self._texts = {
            place: (*each, *profiles[place].capabilities.items())
            for place, each in self._examples.items()
        }
        own = {place: [read(text) for text, _ in each] for place, each in self._texts.items()}
        superiors = {place: profiles[place].path[:-1] for place in own}
        groups = {path: number for number, path in enumerate(dict.fromkeys(superiors.values()))}
        self._group = {place: groups[path] for place, path in superiors.items()}
        self._size = len(profiles)
        self._groups = len(groups)
        self._own: list[LanguageModel] = []
        self._pooled: list[LanguageModel] = []
        # What a word tells that only one agent's examples have.
        unit = log1p((len(own) + ELSEWHERE) / SMOOTHING) - log1p(1 / SMOOTHING)
        known = [
            {place: [kind.of(text) for text in each] for place, each in own.items()}
            for kind in KINDS
        ]
        for kind, features in zip(KINDS, known, strict=True):
            pooled: dict[int, list[Features]] = {number: [] for number in groups.values()}
            for place, each in features.items():
                pooled[self._group[place]] += each
            self._own.append(LanguageModel(kind, features, unit))
            self._pooled.append(LanguageModel(kind, pooled, unit))
        self._correct(known)

    def evidence(self, task: Words) -> Mapping[int, float]:
        """Return, by place, how many telling words' worth speaks for it.

        Colleagues' examples count for an agent only beside its own. What is in nobody's
        examples is no evidence against what a name says.
        """
        if not self._examples or not task.said:
            return {}
        return self._evidence(*self._scores([kind.of(task) for kind in KINDS]))

    def _scores(self, text: Sequence[Features]) -> tuple[list[float], list[float]]:
        own, pooled = [0.0] * self._size, [0.0] * self._groups
        for features, mine, ours in zip(text, self._own, self._pooled, strict=True):
            mine.add(features, own)
            ours.add(features, pooled)
        return own, pooled

    def _evidence(self, own: Sequence[float], pooled: Sequence[float]) -> dict[int, float]:
        return {
            place: own[place] + POOLED * max(pooled[group], 0.0)
            for place, group in self._group.items()
            if own[place] > 0
        }

    def _correct(self, known: Sequence[Mapping[int, Sequence[Features]]]) -> None:
        """Correct what features tell by the examples, the first few of each agent.

        Args:
            known: The features of each example of each agent, by kind.
        """
        texts = [
            (place, [features[place][each] for features in known])
            for place, number in self.numbers.items()
            # Without its only example nothing is left of an agent that could be mistaken.
            for each in range(min(number, lessons_of_each(len(self.numbers))) if number > 1 else 0)
        ]
        learning = [at for at, kind in enumerate(KINDS) if kind.learns]
        fast = [rates([text[at] for _, text in texts]) for at in learning]
        correct(
            [
                self._lesson(
                    place,
                    text,
                    [(at, each[number]) for at, each in zip(learning, fast, strict=True)],
                )
                for number, (place, text) in enumerate(texts)
            ]
        )

    def _lesson(
        self, place: int, text: Sequence[Features], fast: Sequence[tuple[int, Sequence[float]]]
    ) -> Lesson:
        told = [self._own[at].tells(feature) for at, _ in fast for feature in text[at]]
        # The more examples an agent has, the better its models know it without.
        part = min(1.0, MOST / self.numbers[place])
        evidence = self._as_if_new(text, place)
        scores = {
            each: evidence.get(each, 0.0) - told_of(each, told)
            for each in held_against(place, evidence)
        }
        others = sum(exp(much) for each, much in evidence.items() if each not in scores)
        nothing = len(self.numbers) - len({*evidence, place})
        return Lesson(
            place,
            scores,
            others + nothing,
            told,
            [part * rate for _, each in fast for rate in each],
        )

    def _as_if_new(self, text: Sequence[Features], place: int) -> Mapping[int, float]:
        """Return the evidence of an example as if it were not known."""
        own, pooled = self._scores(text)
        group = self._group[place]
        for features, mine, ours in zip(text, self._own, self._pooled, strict=True):
            own[place] -= mine.lost(features, place)
            pooled[group] -= ours.lost(features, group)
        return self._evidence(own, pooled)

    def nearest(self, task: Words, place: int) -> str:
        """Return the example with most of a task's words."""
        return _nearest(task, self._examples[place])[0]

    def confidence(self, task: Words, place: int) -> float:
        """Return the confidence of what a task is about, of the nearest example or name."""
        texts = self._texts[place]
        first = texts[0][1]
        if all(confidence == first for _, confidence in texts):
            return first
        return _nearest(task, texts)[1]


def _nearest(task: Words, texts: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """Return the text with most of a task's words, and its confidence."""
    meant = {stem for stem in task.stems if stem not in SMALL_STEMS}

    def likeness(text: tuple[str, float]) -> float:
        stems = set(read(text[0]).stems)
        every = set(task.stems) | stems
        return len(meant & stems) + len(stems & set(task.stems)) / max(len(every), 1)

    return max(texts, key=likeness)
