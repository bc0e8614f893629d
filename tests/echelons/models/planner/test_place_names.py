"""Places: capitalised spans by the words before them, and what stands where a place would."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.language.tokens import TokenizedText
from echelons.models.planner.place_names import find_listed_places, find_place_names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I want to fly to Rome from London", ["Rome destination", "London origin"]),
        ("London to Rome on 5 May 2026", ["London origin", "Rome destination"]),
        ("between London and Rome", ["London origin", "Rome destination"]),
        ("flights to new york from san francisco tomorrow", ["New York d", "San Francisco o"]),
        ("FLIGHTS TO ROME", ["Rome destination"]),
        ("Plan a trip to Italy with great food", ["Italy destination"]),
        ("museums in the Netherlands in May", ["Netherlands place"]),
        ("around the Colosseum in Rome at noon", ["Colosseum near", "Rome place"]),
        ("a weekend in Rio de Janeiro for two", ["Rio de Janeiro place"]),
        ("from Baden-Baden to St. Moritz", ["Baden-Baden origin", "St. Moritz destination"]),
        ("dinner at Da Enzo on Friday", ["Da Enzo venue"]),
        ("things to do in general", []),
        ("I want to find cheap food in May", []),
        ("Book me a tour in English", []),
    ],
)
def test_places_are_found_by_their_role(text: str, expected: list[str]) -> None:
    found = find_place_names(TokenizedText(text))
    assert [place.name for place in found] == [each.rpartition(" ")[0] for each in expected]
    for place, each in zip(found, expected, strict=True):
        assert place.role.value.startswith(each.rpartition(" ")[2])


def test_places_without_capitals_are_less_certain() -> None:
    assert [place.certain for place in find_place_names(TokenizedText("from Rome to paris"))] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("in Rome, Florence and Venice for a week", ["Rome", "Florence", "Venice"]),
        ("in Rome or Florence", ["Rome", "Florence"]),
        ("London, then Paris and then Rome", ["London", "Paris", "Rome"]),
        ("in Rome, Italy", ["Rome"]),
        ("in Rome with Anna and Bob", ["Rome"]),
    ],
)
def test_places_named_in_one_breath_belong_together(text: str, names: list[str]) -> None:
    reading = TokenizedText(text)
    found = find_place_names(reading)
    assert [place.name for place in find_listed_places(reading.tokens, found, found[0])] == names


@given(st.text())
def test_any_text_has_places_in_order_or_none(text: str) -> None:
    found = find_place_names(TokenizedText(text))
    assert all(a.end <= b.start for a, b in pairwise(found))
    assert all(place.name.strip() for place in found)
