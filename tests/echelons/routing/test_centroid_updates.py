"""What agents mean is moved away from the examples of those who are like them."""

from __future__ import annotations

from echelons.routing.centroid_updates import CentroidUpdates
from echelons.routing.vectors import Vector, add_vectors, compute_centroid, dot, normalize_vector


def near(x: float, y: float, z: float = 0.0) -> Vector:
    return normalize_vector([x, y, z])


ASTRAY = near(0.6, 0.8)
WIDE = [near(1, 0), near(1, 0, 0.3), near(1, 0, -0.3), ASTRAY]
NARROW = [near(0.2, 1), near(0.3, 1), near(0.25, 1)]


def test_an_example_that_would_go_astray_goes_to_its_own_agent_afterwards() -> None:
    middles = {0: compute_centroid(WIDE), 1: compute_centroid(NARROW)}
    moved = CentroidUpdates({0: WIDE, 1: NARROW}, middles).compute_shifts()
    after = {place: add_vectors(middle, moved[place]) for place, middle in middles.items()}

    assert dot(ASTRAY, middles[0]) < dot(ASTRAY, middles[1])
    assert dot(ASTRAY, after[0]) > dot(ASTRAY, after[1])
    assert all(dot(each, after[1]) > dot(each, after[0]) for each in NARROW)


def test_who_has_no_rival_stays_where_it_is() -> None:
    assert CentroidUpdates({0: WIDE}, {0: compute_centroid(WIDE)}).compute_shifts() == {}


def test_an_agents_only_example_moves_nothing() -> None:
    vectors = {0: [near(1, 0)], 1: [near(0.9, 0.1)]}
    middles = {place: compute_centroid(each) for place, each in vectors.items()}

    assert CentroidUpdates(vectors, middles).compute_shifts() == {}
