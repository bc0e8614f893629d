"""The gazetteer: places, facts about them, and the facts that answer a question."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import chain, zip_longest
from typing import Annotated, Literal, NamedTuple, TypeVar

from langchain_core.tools import ToolException
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from echelons.text.stemming import extract_stems, extract_words

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
            [_take_turns([_list_city_facts(city, k) for k in self.kinds]) for city in cities]
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


def _list_city_facts(city: City, kind: FactKind) -> list[CityFact]:
    return [CityFact(city, fact) for fact in city.facts if fact.kind == kind]


def _take_turns(rows: Sequence[Sequence[T]]) -> list[T]:
    """Return the first of every row, then the second of every row, and so on."""
    turns = chain.from_iterable(zip_longest(*rows))
    return [item for item in turns if item is not None]
