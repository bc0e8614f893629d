"""Choice and formatting of the facts that answer a question. The lookup tools call this.

The choice is deterministic: facts that share words with the wish go first, and cities and
kinds of facts alternate, so that a short answer about a country covers several of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import NamedTuple, TypeVar

from echelons.teams.travel.gazetteer import City, Fact, Kind, Place, Region, gazetteer
from echelons.teams.travel.places import known_places
from echelons.text.stemming import stems

MOST_LINES = 6
"""Most facts about one place: few, because a model reads them all."""

FEWEST_LINES = 2
"""Most facts about each place if a text names many."""

BEST_KNOWN = 3
"""Number of cities that represent a country if no wish selects among all."""

VAGUE = frozenset(stems("good great best better nice lovely typical traditional famous popular"))
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
    kinds: tuple[Kind, ...]
    general: str

    def find(self, cities: Iterable[City]) -> list[Find]:
        """Return all facts of the topic; cities alternate, and within each city kinds do."""
        return _take_turns([_take_turns([_of(city, k) for k in self.kinds]) for city in cities])


class Find(NamedTuple):
    """A fact and the city that it is about."""

    city: City
    fact: Fact

    def __str__(self) -> str:
        fact = self.fact
        return f"{self.city.name}, {fact.kind}: {fact.name} - {fact.text} ({fact.source})"

    def hits(self, wanted: frozenset[str]) -> int:
        """Return the number of wanted stems that the fact contains."""
        return len(wanted & self.fact.stems)


def answer(topic: Topic, place: str, wish: str | None = None) -> str:
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
    names = " ".join(_names(each) for each in places)
    empty = VAGUE.union(stems(f"{topic.general} {names}"))
    wanted, hinted = (frozenset(stems(text)) - empty for text in (wish or "", place))
    lines: list[str] = []
    for each in places:
        chosen = _choose(topic, each, wanted)
        if wanted and not chosen:
            lines.append(f"No fact about {wish!r} is known in {each.name}; {topic.name} there:")
        best_known = topic.find(gazetteer().cities_of(each)[:BEST_KNOWN])
        rest = [] if chosen else [*_choose(topic, each, hinted), *best_known]
        lines += [str(find) for find in list(dict.fromkeys([*chosen, *rest]))[:most]]
    return "\n".join(lines)


def _choose(topic: Topic, place: Place, wanted: frozenset[str]) -> list[Find]:
    """Return the facts that share stems with `wanted`, those that share most first."""
    finds = topic.find(gazetteer().cities_of(place))
    return sorted((f for f in finds if f.hits(wanted)), key=lambda f: -f.hits(wanted))


def _names(place: Place) -> str:
    adjectives = place.adjectives if isinstance(place, Region) else ()
    return " ".join((place.name, *place.aliases, *adjectives))


def _of(city: City, kind: Kind) -> list[Find]:
    return [Find(city, fact) for fact in city.facts if fact.kind == kind]


def _take_turns(rows: Sequence[Sequence[T]]) -> list[T]:
    """Return the first of every row, then the second of every row, and so on."""
    turns = chain.from_iterable(zip_longest(*rows))
    return [item for item in turns if item is not None]
