"""Recognition of the places that a text names. The travel tools call this.

Names match regardless of case and accents, and inside longer text, because a model or
planner may pass a whole sentence where a tool expects a place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from langchain_core.tools import ToolException

from echelons.teams.travel.gazetteer import City, GazetteerPlace, load_gazetteer
from echelons.text.stemming import extract_words

PlaceNames = dict[tuple[str, ...], GazetteerPlace]

# "US" in capitals is a country, "us" is not: distinguished before case is dropped.
_US = re.compile(r"\bUS\b")
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)
_TO = re.compile(r"\bto\b", re.IGNORECASE)


def find_places(text: str) -> list[GazetteerPlace]:
    """Return the places that `text` names, in order, each once.

    A region is left out when a part of it is named too ("Rome, Italy"). Where no name
    occurs, adjectives count ("Japanese gardens").

    >>> [place.name for place in find_places("Italy with great food")]
    ['Italy']
    >>> [place.name for place in find_places("munchen, then WIEN")]
    ['Munich', 'Vienna']
    """
    tokens = extract_words(_US.sub("USA", text))
    found = _scan_names(tokens, _load_names()) or _scan_names(tokens, _load_adjectives())
    return [place for place in found if not any(_is_within(other, place) for other in found)]


def known_places(text: str) -> list[GazetteerPlace]:
    """Return the places that `text` names.

    Raises:
        ToolException: It names none that the gazetteer knows.
    """
    found = find_places(text)
    if not found:
        names = [place.name for place in (*load_gazetteer().regions, *load_gazetteer().cities)]
        raise ToolException(f"no facts about {text!r}; known places are {', '.join(names)}")
    return found


def split_route(text: str) -> tuple[str, str | None]:
    """Split "from London to Rome" into the destination and, if it is a known place, the origin.

    >>> split_route("a trip to Rome from London")
    ('a trip to Rome ', ' London')
    >>> split_route("from 3 May to Rome")
    ('from 3 May to Rome', None)
    """
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
    found: dict[str, GazetteerPlace] = {}
    longest = max(map(len, names))
    at = 0
    while at < len(tokens):
        for size in range(longest, 0, -1):
            place = names.get(tuple(tokens[at : at + size]))
            if place is not None:
                found.setdefault(place.name, place)
                at += size - 1
                break
        at += 1
    return list(found.values())


@lru_cache(maxsize=1)
def _load_names() -> PlaceNames:
    places = (*load_gazetteer().regions, *load_gazetteer().cities)
    return _index_names((place, (place.name, *place.aliases)) for place in places)


@lru_cache(maxsize=1)
def _load_adjectives() -> PlaceNames:
    return _index_names((region, region.adjectives) for region in load_gazetteer().regions)


def _index_names(named: Iterable[tuple[GazetteerPlace, tuple[str, ...]]]) -> PlaceNames:
    return {tuple(extract_words(name)): place for place, names in named for name in names}
