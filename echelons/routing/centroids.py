"""The centroids that represent agents by meaning, corrected by the others of their tree.

A few words alone mean little: the colleagues of an agent known by name only say more about its
purpose. And a name as general as "calendar", whose vector is close to all others (a hub), must not
win tasks of more specific names.

The centroid of an agent's examples says what they are like, but not where those of its rivals
begin. So each example is classified, leaving it out, among its own agent and that agent's rivals;
in proportion to the error its own centroid moves towards it and the rivals' away (gradient steps
of softmax regression). `embedding_matcher` does all this once for a tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from math import exp, fsum
from statistics import fmean
from typing import Final

from echelons.routing.discriminative_weights import ERROR_TOLERANCE, MAX_COMPARISONS, limit_examples
from echelons.routing.vectors import Vector, dot, normalize_vector

TEAM_WEIGHT: Final = 0.25
"""Weight of the mean of all agents with the same superior; that of the agent itself is 1."""

NEIGHBOUR_COUNT: Final = 20
"""Nearest neighbours whose mean cosine measures how much of a hub a name is."""

PENALTY_FRACTION: Final = 0.25
"""Fraction of a name's excess hubness that is subtracted from its likeness to a task."""

STEPS: Final = 4
"""Passes over the examples."""

STEP_SIZE: Final = 0.5
"""How far a centroid moves in a step if all of its agent's examples would go to others."""

RIVAL_COUNT: Final = 5
"""Rivals that an example is compared with: the agents with the nearest centroids."""

INVERSE_TEMPERATURE: Final = 10.0
"""Inverse temperature of the softmax: a cosine of 1 has e to this power the odds of 0."""


def blend_with_team(
    middles: Sequence[Vector], paths: Sequence[Sequence[str]], named: Sequence[int]
) -> list[Vector]:
    """Return the centroids, those at the positions `named` moved towards their team's mean.

    >>> alone, one, other = (0.0, 0.0), (1.0, 0.0), (0.0, 1.0)
    >>> moved = blend_with_team([alone, one, other], [["a"], ["a", "b"], ["a", "c"]], [1])
    >>> [round(value, 2) for value in moved[1]], moved[2]
    ([0.99, 0.11], (0.0, 1.0))
    """
    teams: dict[tuple[str, ...], list[Vector]] = {}
    for path, middle in zip(paths, middles, strict=True):
        teams.setdefault(tuple(path[:-1]), []).append(middle)
    means = {
        superior: [TEAM_WEIGHT * fsum(each) / len(team) for each in zip(*team, strict=True)]
        for superior, team in teams.items()
    }
    found = list(middles)
    for place in named:
        mean = means[tuple(paths[place][:-1])]
        found[place] = normalize_vector([x + y for x, y in zip(middles[place], mean, strict=True)])
    return found


def compute_penalties(middles: Sequence[Vector], named: Sequence[int]) -> Mapping[int, float]:
    """Return the penalty on the cosine for each position in `named`, negative for non-hubs.

    The penalty follows cross-domain similarity local scaling (Conneau et al. 2018, "Word
    Translation Without Parallel Data"). Empty if the tree is too large to compare all pairs.

    >>> hub, one, other = (0.8, 0.6), (1.0, 0.0), (0.0, 1.0)
    >>> [round(each, 2) for each in compute_penalties([hub, one, other], [0, 1, 2]).values()]
    [0.06, -0.02, -0.04]
    """
    if len(middles) < 2 or len(named) * len(middles) > MAX_COMPARISONS:
        return {}
    near: dict[int, float] = {}
    for place in named:
        others = (dot(middles[place], each) for at, each in enumerate(middles) if at != place)
        near[place] = fmean(nlargest(NEIGHBOUR_COUNT, others))
    usual = fmean(near.values()) if near else 0.0
    return {place: PENALTY_FRACTION * (each - usual) for place, each in near.items()}


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
                shift = list(self._shifts.get(place, (0.0,) * len(each[0][1])))
                for much, vector in each:
                    shift = [one + much * other for one, other in zip(shift, vector, strict=True)]
                self._shifts[place] = tuple(shift)
        return self._shifts

    def _build_examples(self) -> list[CentroidExample]:
        most = limit_examples(len(self.examples))
        found: list[CentroidExample] = []
        for place, vectors in self.examples.items():
            if len(vectors) < 2 or not most:
                continue
            own = self.centroids[place]
            near = {at: dot(own, other) for at, other in self.centroids.items() if at != place}
            rivals = nlargest(RIVAL_COUNT, near, key=near.__getitem__)
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
