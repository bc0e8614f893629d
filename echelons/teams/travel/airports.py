"""Airports, the distance between two, and how long a flight may take.

Names and coordinates come from the package `airportsdata` (extra `travel`), which is read
once, at the first use. The flights tool calls this.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import asin, cos, radians, sin, sqrt
from typing import TYPE_CHECKING

from echelons.errors import missing_extra

if TYPE_CHECKING:
    from airportsdata import Airport as Row

EARTH_RADIUS_KM = 6371.0088
"""Mean radius of the earth (IUGG, R1), in km."""

CRUISE_KM_H = 804.672
"""500 mph, in km/h: the mean speed that Travelmath's flight time calculator assumes."""

GROUND_HOURS = 0.5
"""What the same calculator adds for take-off and landing, in hours."""


@dataclass(frozen=True, slots=True)
class Airport:
    """An airport: its IATA code, its name, and where it is, in degrees."""

    code: str
    name: str
    latitude: float
    longitude: float


def find_airport(code: str) -> Airport | None:
    """Return the airport with this IATA code, or `None`.

    Raises:
        ConfigurationError: `airportsdata` is not installed.
    """
    row = load_table().get(code)
    if row is None:
        return None
    return Airport(code, " ".join(row["name"].split()), row["lat"], row["lon"])


def haversine_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Return the great-circle distance of two points, in km.

    The haversine formula (R. W. Sinnott, "Virtues of the Haversine", Sky and Telescope 68,
    1984), on a sphere with `EARTH_RADIUS_KM`: within about 0.5 % of the true distance
    on the ellipsoid.

    Args:
        one: Latitude and longitude in degrees.
        other: Latitude and longitude in degrees.

    >>> round(haversine_km((0.0, 0.0), (0.0, 90.0)))
    10008
    """
    (lat1, lon1), (lat2, lon2) = (map(radians, one), map(radians, other))
    half = sin((lat2 - lat1) / 2) ** 2 + cos(lat1) * cos(lat2) * sin((lon2 - lon1) / 2) ** 2
    # Rounding can lift the value of two antipodes a hair above 1.
    return 2 * EARTH_RADIUS_KM * asin(sqrt(min(1.0, half)))


def distance_km(one: Airport, other: Airport) -> float:
    """Return the great-circle distance of two airports, in km."""
    return haversine_km((one.latitude, one.longitude), (other.latitude, other.longitude))


def flight_hours(km: float) -> float:
    """Estimate the hours of a nonstop flight over `km` kilometres.

    Distance over `CRUISE_KM_H`, and `GROUND_HOURS`: the rule of Travelmath's
    flight time calculator (500 mph and 30 minutes). Wind and routing are not in it.

    >>> flight_hours(804.672)
    1.5
    """
    return km / CRUISE_KM_H + GROUND_HOURS


@lru_cache(maxsize=1)
def load_table() -> dict[str, Row]:
    """Return the rows of all airports by their codes."""
    try:
        import airportsdata
    except ModuleNotFoundError as error:
        raise missing_extra("travel", "airportsdata") from error
    return airportsdata.load("IATA")
