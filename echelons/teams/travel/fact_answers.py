"""Which facts answer a question, and how they read. The tools that look facts up call this.

The choice is deterministic: facts that share words with the wish go first, and cities and
kinds of facts take turns, so that a short answer about a country is about more than one.
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
"""Facts in an answer about one place: a handful, for a model reads all of it."""

FEWEST_LINES = 2
"""Facts about each place when a text names many."""

BEST_KNOWN = 3
"""Cities that speak for a whole country when no wish chooses among all of them."""

VAGUE = frozenset(stems("good great best better nice lovely typical traditional famous popular"))
"""Stems of praise, which choose nothing."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Topic:
    """What one tool knows about.

    Attributes:
        name: What it is called in an answer.
        kinds: The kinds of facts that belong to it.
        general: Words for the topic as a whole, which choose nothing within it.
    """

    name: str
    kinds: tuple[Kind, ...]
    general: str

    def find(self, cities: Iterable[City]) -> list[Find]:
        """Return all facts of the topic; cities take turns, in each of them kinds do."""
        return _take_turns([_take_turns([_of(city, k) for k in self.kinds]) for city in cities])


class Find(NamedTuple):
    """A fact and the city that it is about."""

    city: City
    fact: Fact

    def __str__(self) -> str:
        fact = self.fact
        return f"{self.city.name}, {fact.kind}: {fact.name} - {fact.text} ({fact.source})"

    def hits(self, wanted: frozenset[str]) -> int:
        """Count the stems that the fact shares with those wanted."""
        return len(wanted & self.fact.stems)


def answer(topic: Topic, place: str, wish: str | None = None) -> str:
    """Return what the gazetteer knows of a topic in a place, one fact a line.

    Args:
        topic: What is asked about.
        place: A city or country, or a text that names some. Its other words are a hint:
            facts that have them go first.
        wish: Words to choose by. Where no fact has any of them, the answer says so and
            gives what there is.

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
        rest = [] if chosen else [*_choose(topic, each, hinted), *_general(topic, each)]
        lines += [str(find) for find in list(dict.fromkeys([*chosen, *rest]))[:most]]
    return "\n".join(lines)


def _choose(topic: Topic, place: Place, wanted: frozenset[str]) -> list[Find]:
    """Return the facts that share stems with ``wanted``, those with the most first."""
    finds = topic.find(gazetteer().cities_of(place))
    return sorted((f for f in finds if f.hits(wanted)), key=lambda f: -f.hits(wanted))


def _general(topic: Topic, place: Place) -> list[Find]:
    return topic.find(gazetteer().cities_of(place)[:BEST_KNOWN])


def _names(place: Place) -> str:
    adjectives = place.adjectives if isinstance(place, Region) else ()
    return " ".join((place.name, *place.aliases, *adjectives))


def _of(city: City, kind: Kind) -> list[Find]:
    return [Find(city, fact) for fact in city.facts if fact.kind == kind]


def _take_turns(rows: Sequence[Sequence[T]]) -> list[T]:
    """Return the first of every row, then the second of every row, and so on."""
    turns = chain.from_iterable(zip_longest(*rows))
    return [item for item in turns if item is not None]
