"""Moves the centroids of agents away from the examples of their most similar rivals.

The centroid of an agent's examples says what they are like, but not where those of its rivals
begin. So each example is classified, leaving it out, among its own agent and that agent's rivals;
in proportion to the error its own centroid moves towards it and the rivals' away (gradient steps
of softmax regression). `embedding_matcher` does this once for a tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from math import exp, fsum
from typing import Final

from echelons.routing.discriminative_weights import SETTLED, lessons_of_each
from echelons.routing.vectors import Vector, dot, unit

STEPS: Final = 4
"""Passes over the examples."""

STEP: Final = 0.5
"""How far a centroid moves in a step if all of its agent's examples would go to others."""

RIVALS: Final = 5
"""Rivals that an example is compared with: the agents with the nearest centroids."""

SURE: Final = 10.0
"""Inverse temperature of the softmax: a cosine of 1 has e to this power the odds of 0."""


@dataclass(slots=True)
class Lesson:
    """An example, with its similarity to its own agent and to the rivals.

    Attributes:
        place: Position of its own agent among the profiles.
        vector: Its unit vector.
        likeness: Cosine by position: to the rivals' centroids, and to its own agent's without it.
        share: Its weight: all examples of an agent together weigh 1.
    """

    place: int
    vector: Vector
    likeness: Mapping[int, float]
    share: float

    def mistakes(self, moved: Mapping[int, Vector]) -> list[tuple[int, float]]:
        """Return for each position how far its centroid should move, below 0 for away."""
        odds = {
            place: exp(SURE * (like + (dot(self.vector, moved[place]) if place in moved else 0.0)))
            for place, like in self.likeness.items()
        }
        whole = sum(odds.values())
        return [(place, (place == self.place) - each / whole) for place, each in odds.items()]


@dataclass(slots=True)
class Sharpening:
    """Computes the centroid shifts of a tree.

    Attributes:
        examples: Vectors of each agent's examples, by position of the profile.
        middles: The centroid of each agent's examples, by position.
    """

    examples: Mapping[int, Sequence[Vector]]
    middles: Mapping[int, Vector]
    _moved: dict[int, Vector] = field(default_factory=dict)

    def moved(self) -> Mapping[int, Vector]:
        """Return the shift of each centroid that moves, by position."""
        lessons = self._lessons()
        for _ in range(STEPS):
            pushes: dict[int, list[tuple[float, Vector]]] = {}
            for lesson in lessons:
                for place, much in lesson.mistakes(self._moved):
                    if abs(much) > SETTLED:
                        push = (STEP * much * lesson.share, lesson.vector)
                        pushes.setdefault(place, []).append(push)
            for place, each in pushes.items():
                self._moved[place] = _sum(self._moved.get(place), each)
        return self._moved

    def _lessons(self) -> list[Lesson]:
        most = lessons_of_each(len(self.examples))
        found: list[Lesson] = []
        for place, vectors in self.examples.items():
            if len(vectors) < 2 or not most:
                continue
            rivals = self._rivals(place)
            total = [fsum(each) for each in zip(*vectors, strict=True)]
            for vector in vectors[:most]:
                # Leave-one-out: the agent's centroid without this example.
                rest = unit([whole - own for whole, own in zip(total, vector, strict=True)])
                likeness = {each: dot(vector, self.middles[each]) for each in rivals}
                likeness[place] = dot(vector, rest)
                found.append(Lesson(place, vector, likeness, 1 / min(len(vectors), most)))
        return found

    def _rivals(self, place: int) -> list[int]:
        own = self.middles[place]
        near = {each: dot(own, other) for each, other in self.middles.items() if each != place}
        return nlargest(RIVALS, near, key=near.__getitem__)


def _sum(start: Vector | None, pushes: Sequence[tuple[float, Vector]]) -> Vector:
    total = list(start) if start else [0.0] * len(pushes[0][1])
    for much, vector in pushes:
        total = [one + much * other for one, other in zip(total, vector, strict=True)]
    return tuple(total)
