"""Places are recognised inside longer text, whatever the case and the accents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import ToolException

from echelons.teams.travel.lookups import find_places, known_places, load_gazetteer, split_route

NAMES = [place.name for place in (*load_gazetteer().regions, *load_gazetteer().cities)]


def cities_in(text: str) -> set[str]:
    return {
        city.name for place in find_places(text) for city in load_gazetteer().list_cities(place)
    }


def named(text: str) -> list[str]:
    return [place.name for place in find_places(text)]


@pytest.mark.parametrize("name", NAMES)
def test_every_place_is_found_by_its_own_name_in_any_case(name: str) -> None:
    assert named(name) == named(name.upper()) == named(name.lower()) == [name]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("Italy with great food", ["Italy"]),
        ("MÜNCHEN", ["Munich"]),
        ("munchen", ["Munich"]),
        ("ciudad de mexico", ["Mexico City"]),
        ("Kyōto's gardens", ["Kyoto"]),
        ("Österreich", ["Austria"]),
        ("first Rome, then Venezia!", ["Rome", "Venice"]),
        ("Rome and Rome again", ["Rome"]),
        ("Mexico City", ["Mexico City"]),
        ("Mexico", ["Mexico"]),
        ("Rome, Italy", ["Rome"]),
        ("Tuscany in Italy", ["Tuscany"]),
        ("Florence in Tuscany", ["Florence"]),
        ("England and Scotland", ["England", "Scotland"]),
        ("Japanese gardens", ["Japan"]),
        ("Japanese food in London", ["London"]),
        ("the U.S.A.", ["United States"]),
        ("US", ["United States"]),
        ("find us a hotel in Porto", ["Porto"]),
        ("Romeo and the portly Parisian", []),
        ("", []),
    ],
)
def test_places_are_found_inside_text(text: str, places: list[str]) -> None:
    assert named(text) == places


def test_an_unknown_place_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ToolException) as caught:
        known_places("Atlantis")
    message = str(caught.value)
    assert message.startswith("no facts about 'Atlantis'; known places are ")
    assert all(name in message for name in NAMES)


@pytest.mark.parametrize(
    ("text", "destination", "origin"),
    [
        ("from London to Rome", ["Rome"], ["London"]),
        ("flights to Rome from London", ["Rome"], ["London"]),
        ("from 3 May to Rome", ["Rome"], []),
        ("from Atlantis to Rome", ["Rome"], []),
        ("Rome", ["Rome"], []),
        ("away from Rome", ["Rome"], []),
    ],
)
def test_a_route_is_split_only_where_both_ends_are_known(
    text: str, destination: list[str], origin: list[str]
) -> None:
    to, start = split_route(text)
    assert named(to) == destination
    assert named(start or "") == origin


@given(st.text(max_size=200), st.sampled_from(NAMES))
def test_a_place_or_a_part_of_it_is_found_in_any_text_around_it(text: str, name: str) -> None:
    assert cities_in(name) & cities_in(f"{text} . {name}")


@given(st.text(max_size=300))
def test_any_text_names_places_of_the_gazetteer_or_none(text: str) -> None:
    found = named(text)
    assert set(found) <= set(NAMES)
    assert len(found) == len(set(found))
