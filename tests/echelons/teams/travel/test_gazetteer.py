"""The facts of the travel team are well-formed, sourced, and free of what goes stale."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from echelons.teams.travel.lookups import (
    City,
    Fact,
    Gazetteer,
    GazetteerPlace,
    find_airport,
    load_gazetteer,
)

CITIES = load_gazetteer().cities
FACTS = [(city.name, fact) for city in CITIES for fact in city.facts]
PLACES: list[GazetteerPlace] = [*load_gazetteer().regions, *CITIES]
EATING = {"restaurant", "cafe", "market", "shop"}
NAMED_SOURCE = re.compile(r"^[\w .,'&()-]+: \S")
TITLED_SOURCES = ("UNESCO World Heritage List: ", "EU register of geographical indications: ")


def of_kinds(city: City, *kinds: str) -> list[Fact]:
    return [fact for fact in city.facts if fact.kind in kinds]


def test_the_gazetteer_is_read_once() -> None:
    assert load_gazetteer() is load_gazetteer()


def test_it_knows_twelve_countries_and_thirty_cities() -> None:
    assert len({city.country for city in CITIES}) >= 12
    assert len(CITIES) >= 30


@pytest.mark.parametrize("city", CITIES, ids=lambda city: city.name)
def test_every_city_has_facts_for_every_agent(city: City) -> None:
    assert len(of_kinds(city, "dish", "drink")) >= 2
    assert of_kinds(city, *EATING)
    assert len(of_kinds(city, "sight", "museum", "walk")) >= 3
    assert of_kinds(city, "venue")
    assert of_kinds(city, "festival") or len(of_kinds(city, "venue")) >= 2
    assert of_kinds(city, "district")
    assert of_kinds(city, "hotel")


def test_every_fact_names_a_source_and_what_to_look_up_there() -> None:
    bad = [(city, fact.name) for city, fact in FACTS if not NAMED_SOURCE.match(fact.source)]
    assert not bad


def test_world_heritage_is_claimed_only_with_the_title_of_the_inscription() -> None:
    for city, fact in FACTS:
        claims = "World Heritage since" in fact.text
        assert claims == fact.source.startswith(TITLED_SOURCES[0]), (city, fact.name)


def test_a_protected_name_is_claimed_only_with_its_entry_in_the_register() -> None:
    for city, fact in FACTS:
        if fact.source.startswith(TITLED_SOURCES[1]):
            assert fact.source.endswith(("(PDO)", "(PGI)", "(TSG)")), (city, fact.name)


def test_no_fact_states_a_price_or_a_time_of_day() -> None:
    stale = re.compile(r"[€$£¥]|\b\d{1,2}[:.]\d{2}\b|\b\d{1,2} ?(am|pm)\b", re.IGNORECASE)
    assert not [(city, fact.name) for city, fact in FACTS if stale.search(fact.text)]


def test_no_year_lies_in_the_future_of_the_facts() -> None:
    years = [int(year) for _, fact in FACTS for year in re.findall(r"\b[12]\d{3}\b", fact.text)]
    assert years
    assert max(years) <= 2025


def test_no_fact_stands_twice_in_a_city() -> None:
    for city in CITIES:
        names = [(fact.kind, fact.name) for fact in city.facts]
        assert len(names) == len(set(names)), city.name


def test_every_name_and_alias_belongs_to_one_place() -> None:
    names = [name.casefold() for place in PLACES for name in (place.name, *place.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_every_airport_is_in_airportsdata(place: GazetteerPlace) -> None:
    for code in place.airports:
        assert find_airport(code) is not None, code
    assert len(place.airports) == len(set(place.airports))


def test_a_region_without_an_entry_for_its_city_is_refused() -> None:
    region = load_gazetteer().regions[0].model_dump() | {"cities": ["Nowhere"]}
    with pytest.raises(ValidationError, match="Nowhere"):
        Gazetteer.model_validate({"regions": [region], "cities": []})


@pytest.mark.parametrize("damage", [{"source": ""}, {"kind": "rumour"}, {"price": "10"}])
def test_a_fact_without_source_or_of_another_form_is_refused(damage: dict[str, str]) -> None:
    fact = FACTS[0][1].model_dump() | damage
    with pytest.raises(ValidationError):
        Fact.model_validate(fact)
