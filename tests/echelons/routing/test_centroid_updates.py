"""What agents mean is moved away from the examples of those who are like them."""

from __future__ import annotations

from echelons.routing.centroid_updates import Sharpening
from echelons.routing.vectors import Vector, added, centre, dot, unit


def near(x: float, y: float, z: float = 0.0) -> Vector:
    return unit([x, y, z])


ASTRAY = near(0.6, 0.8)
WIDE = [near(1, 0), near(1, 0, 0.3), near(1, 0, -0.3), ASTRAY]
NARROW = [near(0.2, 1), near(0.3, 1), near(0.25, 1)]


def test_an_example_that_would_go_astray_goes_to_its_own_agent_afterwards() -> None:
    middles = {0: centre(WIDE), 1: centre(NARROW)}
    moved = Sharpening({0: WIDE, 1: NARROW}, middles).moved()
    after = {place: added(middle, moved[place]) for place, middle in middles.items()}

    assert dot(ASTRAY, middles[0]) < dot(ASTRAY, middles[1])
    assert dot(ASTRAY, after[0]) > dot(ASTRAY, after[1])
    assert all(dot(each, after[1]) > dot(each, after[0]) for each in NARROW)


def test_who_has_no_rival_stays_where_it_is() -> None:
    assert Sharpening({0: WIDE}, {0: centre(WIDE)}).moved() == {}


def test_an_agents_only_example_moves_nothing() -> None:
    vectors = {0: [near(1, 0)], 1: [near(0.9, 0.1)]}
    middles = {place: centre(each) for place, each in vectors.items()}

    assert Sharpening(vectors, middles).moved() == {}
