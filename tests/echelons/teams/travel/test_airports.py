"""Distances on the sphere, flight times, and the package that they need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from math import pi

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.errors import EchelonsError
from echelons.teams.travel import lookups
from echelons.teams.travel.lookups import (
    EARTH_RADIUS_KM,
    distance_km,
    find_airport,
    find_food,
    flight_hours,
    haversine_km,
)
from tests.error_codes import raises_code

POINTS = st.tuples(st.floats(-90, 90), st.floats(-180, 180))
METRE = 1e-3
"""Near antipodes the formula loses half of a float's digits: 0.1 m of the earth."""


@pytest.fixture
def no_airportsdata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    lookups.load_table.cache_clear()
    monkeypatch.setitem(sys.modules, "airportsdata", None)
    yield
    lookups.load_table.cache_clear()


def between(one: str, other: str) -> float:
    start, end = find_airport(one), find_airport(other)
    assert start is not None
    assert end is not None
    return distance_km(start, end)


def test_london_and_rome_are_as_far_apart_as_known() -> None:
    assert between("LHR", "FCO") == pytest.approx(1434, rel=0.01)


def test_rome_and_athens_are_as_far_apart_as_airmilescalculator_says() -> None:
    # Their haversine figure, from their own coordinates of both airports.
    assert between("FCO", "ATH") == pytest.approx(1085.509, rel=0.002)


def test_a_quarter_of_the_equator_is_a_quarter_of_the_circumference() -> None:
    assert haversine_km((0, 0), (0, 90)) == pytest.approx(EARTH_RADIUS_KM * pi / 2)


@given(POINTS, POINTS)
def test_distance_is_symmetric(one: tuple[float, float], other: tuple[float, float]) -> None:
    assert haversine_km(one, other) == pytest.approx(haversine_km(other, one), abs=METRE)


@given(POINTS, POINTS)
def test_distance_is_never_negative_nor_more_than_half_the_circumference(
    one: tuple[float, float], other: tuple[float, float]
) -> None:
    assert 0 <= haversine_km(one, other) <= EARTH_RADIUS_KM * pi + METRE


@given(POINTS)
def test_a_point_has_no_distance_from_itself(point: tuple[float, float]) -> None:
    assert haversine_km(point, point) == 0


@given(POINTS, POINTS, POINTS)
def test_a_detour_is_never_shorter(
    one: tuple[float, float], via: tuple[float, float], other: tuple[float, float]
) -> None:
    direct = haversine_km(one, other)
    assert direct <= haversine_km(one, via) + haversine_km(via, other) + METRE


@given(st.floats(0, 20_100), st.floats(0, 20_100))
def test_a_longer_flight_never_takes_less_time(km: float, more: float) -> None:
    assert 0.5 <= flight_hours(km) <= flight_hours(km + more)


def test_an_unknown_code_has_no_airport() -> None:
    assert find_airport("???") is None


@pytest.mark.usefixtures("no_airportsdata")
def test_without_the_package_the_error_says_what_to_install() -> None:
    with raises_code("missing_extra") as caught:
        find_airport("FCO")
    assert isinstance(caught.value, EchelonsError)
    assert (caught.value.extra, caught.value.package) == ("travel", "airportsdata")
    assert "pip install 'echelons[travel]'" in str(caught.value)


@pytest.mark.usefixtures("no_airportsdata")
def test_without_the_package_the_other_tools_still_answer() -> None:
    assert "Carbonara" in find_food("Rome")
