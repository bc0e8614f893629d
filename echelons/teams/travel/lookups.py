"""The tools of the travel agents, and the gazetteer of places and facts that they look up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import chain, zip_longest
from math import asin, cos, radians, sin, sqrt
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeVar

from langchain_core.tools import ToolException
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from echelons.errors import missing_extra
from echelons.text.stemming import extract_stems, extract_words

if TYPE_CHECKING:
    from airportsdata import Airport as Row


FactKind = Literal[
    "dish", "drink", "restaurant", "cafe", "market", "shop",
    "sight", "museum", "walk", "venue", "festival", "district", "hotel",
]  # fmt: skip
TextLine = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$")]
AirportCode = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fact(_Record):
    """One fact about a city, with its source."""

    kind: FactKind
    name: TextLine
    text: TextLine
    tags: tuple[TextLine, ...]
    source: TextLine

    @cached_property
    def stems(self) -> frozenset[str]:
        """The stems of all words by which the fact is found."""
        return frozenset(
            extract_stems(f"{self.kind} {self.name} {self.text} {' '.join(self.tags)}")
        )


class GazetteerPlace(_Record):
    """A place to travel to."""

    name: TextLine
    aliases: tuple[TextLine, ...]
    airports: tuple[AirportCode, ...] = Field(min_length=1)


class City(GazetteerPlace):
    """A city with its facts."""

    country: TextLine
    facts: tuple[Fact, ...] = Field(min_length=1)


class Region(GazetteerPlace):
    """A country or a part of one, known through its cities."""

    adjectives: tuple[TextLine, ...]
    cities: tuple[TextLine, ...] = Field(min_length=1)


class Gazetteer(_Record):
    """All places that the team knows."""

    regions: tuple[Region, ...]
    cities: tuple[City, ...]

    @model_validator(mode="after")
    def _check_references(self) -> Gazetteer:
        cities = {city.name for city in self.cities}
        regions = {region.name for region in self.regions}
        missing = {name for region in self.regions for name in region.cities} - cities
        missing |= {city.country for city in self.cities} - regions
        if missing:
            raise ValueError(f"named, but without an entry: {', '.join(sorted(missing))}")
        return self

    def list_cities(self, place: GazetteerPlace) -> tuple[City, ...]:
        """Return the cities of a region, or the city itself."""
        names = place.cities if isinstance(place, Region) else (place.name,)
        by_name = {city.name: city for city in self.cities}
        return tuple(by_name[name] for name in names)


@lru_cache(maxsize=1)
def load_gazetteer() -> Gazetteer:
    """Read the gazetteer that ships with the package, once per process."""
    text = files("echelons.teams.travel").joinpath("gazetteer.json").read_text("utf-8")
    return Gazetteer.model_validate_json(text)


PlaceNames = dict[tuple[str, ...], GazetteerPlace]

# "US" in capitals is a country, "us" is not: distinguished before case is dropped.
_US = re.compile(r"\bUS\b")
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)
_TO = re.compile(r"\bto\b", re.IGNORECASE)


def find_places(text: str) -> list[GazetteerPlace]:
    """Return the places that `text` names, in order, each once.

    A region is left out when a part of it is named too ("Rome, Italy"). Where no name
    occurs, adjectives count ("Japanese gardens").
    """
    tokens = extract_words(_US.sub("USA", text))
    places = _scan_names(tokens, _load_names()) or _scan_names(tokens, _load_adjectives())
    return [place for place in places if not any(_is_within(other, place) for other in places)]


def known_places(text: str) -> list[GazetteerPlace]:
    """Return the places that `text` names.

    Raises:
        ToolException: It names none that the gazetteer knows.
    """
    places = find_places(text)
    if not places:
        names = [place.name for place in (*load_gazetteer().regions, *load_gazetteer().cities)]
        raise ToolException(f"no facts about {text!r}; known places are {', '.join(names)}")
    return places


def split_route(text: str) -> tuple[str, str | None]:
    """Split "from London to Rome" into the destination and, if it is a known place, the origin."""
    start = _FROM.search(text)
    if start is None:
        return text, None
    before, after = text[: start.start()], text[start.end() :]
    turn = _TO.search(after)
    origin, rest = (after[: turn.start()], after[turn.end() :]) if turn else (after, "")
    destination = before + rest
    if not find_places(origin) or not find_places(destination):
        return text, None
    return destination, origin


def _is_within(part: GazetteerPlace, whole: GazetteerPlace) -> bool:
    if part is whole or isinstance(whole, City):
        return False
    parts, cities = (set(load_gazetteer().list_cities(place)) for place in (part, whole))
    return parts < cities or (isinstance(part, City) and parts == cities)


def _scan_names(tokens: list[str], names: PlaceNames) -> list[GazetteerPlace]:
    """Return the places named in `tokens`; the longest name wins ("Mexico City")."""
    places: dict[str, GazetteerPlace] = {}
    longest = max(map(len, names))
    at = 0
    while at < len(tokens):
        for size in range(longest, 0, -1):
            place = names.get(tuple(tokens[at : at + size]))
            if place is not None:
                places.setdefault(place.name, place)
                at += size - 1
                break
        at += 1
    return list(places.values())


@lru_cache(maxsize=1)
def _load_names() -> PlaceNames:
    places = (*load_gazetteer().regions, *load_gazetteer().cities)
    return _index_names((place, (place.name, *place.aliases)) for place in places)


@lru_cache(maxsize=1)
def _load_adjectives() -> PlaceNames:
    return _index_names((region, region.adjectives) for region in load_gazetteer().regions)


def _index_names(named: Iterable[tuple[GazetteerPlace, tuple[str, ...]]]) -> PlaceNames:
    return {tuple(extract_words(name)): place for place, names in named for name in names}


MOST_LINES = 6
"""Most facts about one place: few, because a model reads them all."""

FEWEST_LINES = 2
"""Most facts about each place if a text names many."""

BEST_KNOWN = 3
"""Number of cities that represent a country if no wish selects among all."""

VAGUE_STEMS = frozenset(
    extract_stems("good great best better nice lovely typical traditional famous popular")
)
"""Stems of praise, which select no fact."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Topic:
    """The topic of one tool."""

    name: str
    kinds: tuple[FactKind, ...]
    general: str

    def list_facts(self, cities: Iterable[City]) -> list[CityFact]:
        """Return all facts of the topic; cities alternate, and within each city kinds do."""
        return _take_turns(
            [
                _take_turns(
                    [
                        [CityFact(city, fact) for fact in city.facts if fact.kind == k]
                        for k in self.kinds
                    ]
                )
                for city in cities
            ]
        )


class CityFact(NamedTuple):
    """A fact and the city that it is about."""

    city: City
    fact: Fact

    def __str__(self) -> str:
        fact = self.fact
        return f"{self.city.name}, {fact.kind}: {fact.name} - {fact.text} ({fact.source})"

    def count_hits(self, wanted: frozenset[str]) -> int:
        """Return the number of wanted stems that the fact contains."""
        return len(wanted & self.fact.stems)


def answer_topic(topic: Topic, place: str, wish: str | None = None) -> str:
    """Return the gazetteer's facts about a topic in a place, one a line.

    Raises:
        ToolException: The text names no known place.
    """
    places = known_places(place)
    limit = max(MOST_LINES // len(places), FEWEST_LINES)
    names = " ".join(_join_names(place) for place in places)
    empty = VAGUE_STEMS.union(extract_stems(f"{topic.general} {names}"))
    wanted, hinted = (frozenset(extract_stems(text)) - empty for text in (wish or "", place))
    lines: list[str] = []
    for item in places:
        chosen = _choose_facts(topic, item, wanted)
        if wanted and not chosen:
            lines.append(f"No fact about {wish!r} is known in {item.name}; {topic.name} there:")
        best_known = topic.list_facts(load_gazetteer().list_cities(item)[:BEST_KNOWN])
        rest = [] if chosen else [*_choose_facts(topic, item, hinted), *best_known]
        lines += [str(find) for find in list(dict.fromkeys([*chosen, *rest]))[:limit]]
    return "\n".join(lines)


def _choose_facts(topic: Topic, place: GazetteerPlace, wanted: frozenset[str]) -> list[CityFact]:
    """Return the facts that share stems with `wanted`, those that share most first."""
    finds = topic.list_facts(load_gazetteer().list_cities(place))
    return sorted((f for f in finds if f.count_hits(wanted)), key=lambda f: -f.count_hits(wanted))


def _join_names(place: GazetteerPlace) -> str:
    adjectives = place.adjectives if isinstance(place, Region) else ()
    return " ".join((place.name, *place.aliases, *adjectives))


def _take_turns(rows: Sequence[Sequence[T]]) -> list[T]:
    """Return the first of every row, then the second of every row, and so on."""
    turns = chain.from_iterable(zip_longest(*rows))
    return [item for item in turns if item is not None]


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


STAYS = Topic("places to stay", ("hotel", "district"), "stay hotel accommodation room night")
FOOD = Topic(
    "food and drink",
    ("dish", "restaurant", "market", "cafe", "drink", "shop"),
    "food eat dine dining meal lunch dinner supper cuisine culinary speciality specialty table",
)
TOURS = Topic("sights", ("museum", "sight", "walk"), "tour sight sightseeing see visit trip guide")
EVENTS = Topic("venues and events", ("venue", "festival"), "event show evening see watch")


def find_places_to_stay(place: str) -> str:
    """Find districts to stay in and long-standing hotels, without prices or vacancies.

    Args:
        place: A city or country, such as "Rome" or "Japan".
    """
    return answer_topic(STAYS, place)


def find_food(place: str, dish: str | None = None) -> str:
    """Find dishes, restaurants, cafés and markets, without prices or opening hours.

    Args:
        place: A city or country, such as "Bologna" or "Italy".
        dish: What to look for, such as "pasta", "seafood" or "vegetarian".
    """
    return answer_topic(FOOD, place, dish)


def find_tours(place: str, interest: str | None = None) -> str:
    """Find sights, museums, walks and outings, without prices or opening hours.

    Args:
        place: A city or country, such as "Florence" or "Greece".
        interest: What to look for, such as "art", "history", "hiking" or "architecture".
    """
    return answer_topic(TOURS, place, interest)


def find_events(place: str, kind: str | None = None) -> str:
    """Find opera houses, concert halls, theatres and recurring festivals, without programmes.

    Args:
        place: A city or country, such as "Verona" or "Austria".
        kind: What to look for, such as "opera", "jazz", "film" or "carnival".
    """
    return answer_topic(EVENTS, place, kind)


YES = frozenset({
    "yes", "y", "yeah", "yep", "yes please", "ok", "okay", "sure", "of course", "true", "done",
    "confirm", "confirmed", "agreed", "approve", "approved", "accept", "accepted", "go ahead",
    "do it", "book it", "please do",
})  # fmt: skip
NO = frozenset({
    "no", "n", "nope", "no thanks", "no thank you", "false", "decline", "declined", "reject",
    "rejected", "deny", "denied", "cancel", "cancelled", "canceled", "never mind", "do not", "dont",
})  # fmt: skip


def reserve_table(restaurant: str, when: str | None = None, people: int = 2) -> str:
    """Ask a human to reserve a table, and wait for the answer.

    Args:
        restaurant: The name of the restaurant.
        when: The day and time, such as "Friday at 8 pm".
        people: How many people will come, 1 or more.

    Returns:
        Whether a human confirmed or declined, or what the human said instead.

    Raises:
        ToolException: The restaurant has no name, or there are fewer than one person.
    """
    # Only those who run graphs pay for LangGraph's import.
    from langgraph.types import interrupt

    if not restaurant.strip():
        raise ToolException("a reservation needs the name of the restaurant; none was given")
    if people < 1:
        raise ToolException(f"a table is for 1 person or more, not for {people}; say how many")
    table = f"a table for {people} at {restaurant.strip()}"
    if when and when.strip():
        table = f"{table}, {when.strip()}"
    question = {
        "question": f"Please reserve {table}. Is it confirmed?",
        "restaurant": restaurant,
        "when": when,
        "people": people,
    }
    answer = interrupt(question)
    reply = "" if answer is None else str(answer).strip()
    plain = " ".join(extract_words(reply))
    if plain in YES:
        return f"Confirmed by a human: {table}."
    if plain in NO:
        return f"Declined by a human: {table} was not reserved."
    if not reply:
        return f"The human gave no answer: {table} is not confirmed."
    return f"Not confirmed: asked for {table}, the human answered: {reply}"
