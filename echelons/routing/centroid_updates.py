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

from echelons.routing.discriminative_weights import ERROR_TOLERANCE, limit_examples
from echelons.routing.vectors import Vector, dot, normalize_vector

STEPS: Final = 4
"""Passes over the examples."""

STEP_SIZE: Final = 0.5
"""How far a centroid moves in a step if all of its agent's examples would go to others."""

RIVAL_COUNT: Final = 5
"""Rivals that an example is compared with: the agents with the nearest centroids."""

INVERSE_TEMPERATURE: Final = 10.0
"""Inverse temperature of the softmax: a cosine of 1 has e to this power the odds of 0."""


@dataclass(slots=True)
class CentroidExample:
    """An example, with its similarity to its own agent and to the rivals.

    Attributes:
        place: Position of its own agent among the profiles.
        vector: Its unit vector.
        cosines: Cosine by position: to the rivals' centroids, and to its own agent's without it.
        weight: Its weight: all examples of an agent together weigh 1.
    """

    place: int
    vector: Vector
    cosines: Mapping[int, float]
    weight: float

    def compute_errors(self, shifts: Mapping[int, Vector]) -> list[tuple[int, float]]:
        """Return for each position how far its centroid should move, below 0 for away."""
        odds = {
            place: exp(
                INVERSE_TEMPERATURE
                * (like + (dot(self.vector, shifts[place]) if place in shifts else 0.0))
            )
            for place, like in self.cosines.items()
        }
        whole = sum(odds.values())
        return [(place, (place == self.place) - each / whole) for place, each in odds.items()]


@dataclass(slots=True)
class CentroidUpdates:
    """Computes the centroid shifts of a tree.

    Attributes:
        examples: Vectors of each agent's examples, by position of the profile.
        centroids: The centroid of each agent's examples, by position.
    """

    examples: Mapping[int, Sequence[Vector]]
    centroids: Mapping[int, Vector]
    _shifts: dict[int, Vector] = field(default_factory=dict)

    def compute_shifts(self) -> Mapping[int, Vector]:
        """Return the shift of each centroid that moves, by position."""
        lessons = self._build_examples()
        for _ in range(STEPS):
            pushes: dict[int, list[tuple[float, Vector]]] = {}
            for lesson in lessons:
                for place, much in lesson.compute_errors(self._shifts):
                    if abs(much) > ERROR_TOLERANCE:
                        push = (STEP_SIZE * much * lesson.weight, lesson.vector)
                        pushes.setdefault(place, []).append(push)
            for place, each in pushes.items():
                self._shifts[place] = _add_weighted(self._shifts.get(place), each)
        return self._shifts

    def _build_examples(self) -> list[CentroidExample]:
        most = limit_examples(len(self.examples))
        found: list[CentroidExample] = []
        for place, vectors in self.examples.items():
            if len(vectors) < 2 or not most:
                continue
            rivals = self._find_rivals(place)
            total = [fsum(each) for each in zip(*vectors, strict=True)]
            for vector in vectors[:most]:
                # Leave-one-out: the agent's centroid without this example.
                rest = normalize_vector(
                    [whole - own for whole, own in zip(total, vector, strict=True)]
                )
                likeness = {each: dot(vector, self.centroids[each]) for each in rivals}
                likeness[place] = dot(vector, rest)
                found.append(CentroidExample(place, vector, likeness, 1 / min(len(vectors), most)))
        return found

    def _find_rivals(self, place: int) -> list[int]:
        own = self.centroids[place]
        near = {each: dot(own, other) for each, other in self.centroids.items() if each != place}
        return nlargest(RIVAL_COUNT, near, key=near.__getitem__)


def _add_weighted(start: Vector | None, pushes: Sequence[tuple[float, Vector]]) -> Vector:
    total = list(start) if start else [0.0] * len(pushes[0][1])
    for much, vector in pushes:
        total = [one + much * other for one, other in zip(total, vector, strict=True)]
    return tuple(total)
