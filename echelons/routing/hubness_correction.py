"""Corrects the meaning of agents known by name only, relative to the others of their tree.

A few words alone mean little: the colleagues of an agent say more about its purpose. And a name as
general as "calendar", whose vector is close to all others (a hub), must not win tasks of more
specific names. `embedding_matcher` applies both once for a tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from math import fsum
from statistics import fmean
from typing import Final

from echelons.routing.discriminative_weights import MAX_COMPARISONS
from echelons.routing.vectors import Vector, dot, normalize_vector

TEAM_WEIGHT: Final = 0.25
"""Weight of the mean of all agents with the same superior; that of the agent itself is 1."""

NEIGHBOUR_COUNT: Final = 20
"""Nearest neighbours whose mean cosine measures how much of a hub a name is."""

PENALTY_FRACTION: Final = 0.25
"""Fraction of a name's excess hubness that is subtracted from its likeness to a task."""


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
