"""Choice and formatting of the facts that answer a question. The lookup tools call this.

The choice is deterministic: facts that share words with the wish go first, and cities and
kinds of facts alternate, so that a short answer about a country covers several of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import NamedTuple, TypeVar

from echelons.teams.travel.gazetteer import (
    City,
    Fact,
    FactKind,
    GazetteerPlace,
    Region,
    load_gazetteer,
)
from echelons.teams.travel.places import known_places
from echelons.text.stemming import extract_stems

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
    """The topic of one tool.

    Attributes:
        name: Its name in an answer.
        kinds: The kinds of facts that belong to it.
        general: Words for the topic as a whole, which select no fact within it.
    """

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

    Args:
        topic: The topic.
        place: A city or country, or a text that names some. Facts that contain its other
            words go first.
        wish: Words that select facts. If no fact contains any of them, the answer says so
            and lists other facts of the topic.

    Raises:
        ToolException: The text names no known place.
    """
    places = known_places(place)
    most = max(MOST_LINES // len(places), FEWEST_LINES)
    names = " ".join(_join_names(each) for each in places)
    empty = VAGUE_STEMS.union(extract_stems(f"{topic.general} {names}"))
    wanted, hinted = (frozenset(extract_stems(text)) - empty for text in (wish or "", place))
    lines: list[str] = []
    for each in places:
        chosen = _choose_facts(topic, each, wanted)
        if wanted and not chosen:
            lines.append(f"No fact about {wish!r} is known in {each.name}; {topic.name} there:")
        best_known = topic.list_facts(load_gazetteer().list_cities(each)[:BEST_KNOWN])
        rest = [] if chosen else [*_choose_facts(topic, each, hinted), *best_known]
        lines += [str(find) for find in list(dict.fromkeys([*chosen, *rest]))[:most]]
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
