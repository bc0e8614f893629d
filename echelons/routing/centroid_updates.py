"""Sharpening: moves what agents mean away from the examples of those who are most like them.

The middle of an agent's examples says what they are like, and nothing of where those of its rivals
begin. So each example is held against its own agent and its rivals, as if it were not known; as
far as it would go to a rival, its own agent's meaning moves towards it and the rival's away.
`embedding` does this once for a tree.
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
"""How often the examples are looked at."""

STEP: Final = 0.5
"""How far an agent's meaning moves in a step, if all of its examples would go to others."""

RIVALS: Final = 5
"""How many others an example is held against: those whose middles are nearest to its agent's."""

SURE: Final = 10.0
"""How much surer a likeness of 1 is than one of 0: the power of e."""


@dataclass(slots=True)
class Lesson:
    """An example, and how like it is to those who may get it.

    Attributes:
        place: Whose example it is.
        vector: What it means.
        likeness: To its own agent, as if it were not known, and to its rivals.
        share: What it counts: all examples of an agent count as one.
    """

    place: int
    vector: Vector
    likeness: Mapping[int, float]
    share: float

    def mistakes(self, moved: Mapping[int, Vector]) -> list[tuple[int, float]]:
        """Return by how much each meaning should be nearer to the example; farther below 0."""
        odds = {
            place: exp(SURE * (like + (dot(self.vector, moved[place]) if place in moved else 0.0)))
            for place, like in self.likeness.items()
        }
        whole = sum(odds.values())
        return [(place, (place == self.place) - each / whole) for place, each in odds.items()]


@dataclass(slots=True)
class Sharpening:
    """The examples of a tree and the middles of them.

    Attributes:
        examples: The vectors of each agent's examples, by place.
        middles: The middle of each agent's.
    """

    examples: Mapping[int, Sequence[Vector]]
    middles: Mapping[int, Vector]
    _moved: dict[int, Vector] = field(default_factory=dict)

    def moved(self) -> Mapping[int, Vector]:
        """Return how far each meaning moves, for those that do."""
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
