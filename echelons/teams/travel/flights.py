"""The tool of the flights agent: airports, distances and estimated flight times.

A plain function; `team` gives it to the agent.
"""

from __future__ import annotations

from collections.abc import Iterator

from echelons.teams.travel.airports import Airport, distance_km, find_airport, flight_hours
from echelons.teams.travel.places import find_places, known_places, split_route

LIMITS_NOTE = "Known here: airports, distances and estimates. Not known: fares, timetables, seats."
MINUTES_STEP = 5


def find_flights(destination: str, origin: str | None = None) -> str:
    """Find the airports of a destination, their distance and an estimated flight time.

    Knows airports and distances, not fares, timetables or free seats. The distance is the
    great circle (haversine, earth radius 6371.0088 km); the time is the rule of Travelmath's
    flight time calculator: distance over 500 mph, and 30 minutes for take-off and landing.

    Args:
        destination: A city, a country or an IATA code to fly to, such as "Rome" or "FCO".
        origin: A city, a country or an IATA code to fly from, such as "London" or "LHR".

    Returns:
        One airport a line, with its source, and a line that says what is not known.

    Raises:
        ToolException: The destination is unknown; the message names the known places.
        ConfigurationError: The package `airportsdata` is not installed.
    """
    if origin is None:
        destination, origin = split_route(destination)
    start = _find_departure(origin) if origin else None
    lines = [
        _format_airport(airport, served, start) for airport, served in _find_arrivals(destination)
    ]
    if origin and start is None:
        lines.append(
            f"No airport is known for the origin {origin.strip()!r}, so no distances; "
            "its IATA code would do."
        )
    return "\n".join([*lines, LIMITS_NOTE])


def _find_arrivals(destination: str) -> Iterator[tuple[Airport, str]]:
    direct = _read_airport_code(destination)
    if direct is not None:
        yield direct, ""
        return
    seen: set[str] = set()
    for place in known_places(destination):
        for code in place.airports:
            airport = find_airport(code)
            if airport is not None and code not in seen:
                seen.add(code)
                yield airport, f"{place.name}: "


def _find_departure(origin: str) -> Airport | None:
    """Return the main airport of the first place that `origin` names."""
    direct = _read_airport_code(origin)
    if direct is not None:
        return direct
    return next((find_airport(place.airports[0]) for place in find_places(origin)), None)


def _read_airport_code(text: str) -> Airport | None:
    """Return the airport if the text is only an IATA code, in capitals: "any" is a word.

    Places take precedence over codes, or "USA" would be an airport in North Carolina.
    """
    code = text.strip()
    if len(code) != 3 or not code.isupper() or find_places(code):
        return None
    return find_airport(code)


def _format_airport(airport: Airport, served: str, start: Airport | None) -> str:
    line = f"{served}{airport.code} {airport.name}"
    if start is None or start.code == airport.code:
        return f"{line} (airportsdata)"
    km = distance_km(start, airport)
    minutes = round(flight_hours(km) * 60 / MINUTES_STEP) * MINUTES_STEP
    time = f"{minutes // 60} h {minutes % 60:02d} min"
    away = f"{km:,.0f} km from {start.code} {start.name}, about {time} nonstop"
    return f"{line}, {away} (airportsdata; great circle; Travelmath's rule)"
