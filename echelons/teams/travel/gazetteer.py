"""The gazetteer: true, sourced facts about cities, and the airports that serve them.

The facts are in `gazetteer.json`; this module defines their schema and reads them once.
`places` finds places in it, `fact_answers` selects facts.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from echelons.text.stemming import extract_stems

FactKind = Literal[
    "dish", "drink", "restaurant", "cafe", "market", "shop",
    "sight", "museum", "walk", "venue", "festival", "district", "hotel",
]  # fmt: skip
TextLine = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$")]
AirportCode = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fact(_Record):
    """One fact about a city, with its source.

    Attributes:
        tags: Words by which it is found, in addition to its name and text.
        source: The name of a public source.
    """

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
    """A place to travel to.

    Attributes:
        aliases: Its other names.
        airports: IATA codes of its airports with scheduled flights, the main one first.
    """

    name: TextLine
    aliases: tuple[TextLine, ...]
    airports: tuple[AirportCode, ...] = Field(min_length=1)


class City(GazetteerPlace):
    """A city with its facts."""

    country: TextLine
    facts: tuple[Fact, ...] = Field(min_length=1)


class Region(GazetteerPlace):
    """A country or a part of one, known through its cities.

    Attributes:
        adjectives: Words such as "Italian", used if a text has no name of a place.
        cities: Names of its cities, the best known first.
    """

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
    """Read the gazetteer that ships with the package, once per process.

    >>> "Rome" in {city.name for city in load_gazetteer().cities}
    True
    """
    text = files("echelons.teams.travel").joinpath("gazetteer.json").read_text("utf-8")
    return Gazetteer.model_validate_json(text)
