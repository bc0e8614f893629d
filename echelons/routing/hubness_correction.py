"""Naming: what a name means beside the other names of its tree.

A few words alone mean little. Whom an agent stands beside says more of what it is for; and a name
as general as "calendar", which is somewhat like everything, must not take what more special names
are meant for. `embedding` sees all agents without examples like this, once for a tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from math import fsum
from statistics import fmean
from typing import Final

from echelons.routing.discriminative_weights import COMPARED
from echelons.routing.vectors import Vector, dot, unit

TEAM: Final = 0.25
"""What the middle of all who have the same superior counts beside what an agent's names mean."""

NEAREST: Final = 20
"""How many others say how like everything a name is: those that are most like it."""

HELD_BACK: Final = 0.25
"""How much of what it is more like them than others are like theirs is no likeness to a task."""


def beside_team(
    middles: Sequence[Vector], paths: Sequence[Sequence[str]], named: Sequence[int]
) -> list[Vector]:
    """Return the meanings, of those who are only named a little nearer to their team's.

    >>> alone, one, other = (0.0, 0.0), (1.0, 0.0), (0.0, 1.0)
    >>> moved = beside_team([alone, one, other], [["a"], ["a", "b"], ["a", "c"]], [1])
    >>> [round(value, 2) for value in moved[1]], moved[2]
    ([0.99, 0.11], (0.0, 1.0))
    """
    teams: dict[tuple[str, ...], list[Vector]] = {}
    for path, middle in zip(paths, middles, strict=True):
        teams.setdefault(tuple(path[:-1]), []).append(middle)
    means = {
        superior: [TEAM * fsum(each) / len(team) for each in zip(*team, strict=True)]
        for superior, team in teams.items()
    }
    found = list(middles)
    for place in named:
        mean = means[tuple(paths[place][:-1])]
        found[place] = unit([x + y for x, y in zip(middles[place], mean, strict=True)])
    return found


def held_back(middles: Sequence[Vector], named: Sequence[int]) -> Mapping[int, float]:
    """Return by how much more, or less below 0, a task must be like those who are only named.

    This is what cross-domain similarity local scaling (Conneau et al. 2018, "Word Translation
    Without Parallel Data") does against hubs, vectors that are near to all others.

    >>> hub, one, other = (0.8, 0.6), (1.0, 0.0), (0.0, 1.0)
    >>> [round(each, 2) for each in held_back([hub, one, other], [0, 1, 2]).values()]
    [0.06, -0.02, -0.04]
    """
    if len(middles) < 2 or len(named) * len(middles) > COMPARED:
        return {}
    near: dict[int, float] = {}
    for place in named:
        others = (dot(middles[place], each) for at, each in enumerate(middles) if at != place)
        near[place] = fmean(nlargest(NEAREST, others))
    usual = fmean(near.values()) if near else 0.0
    return {place: HELD_BACK * (each - usual) for place, each in near.items()}
