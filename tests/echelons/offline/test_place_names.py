"""Places: capitalised spans by the words before them, and what stands where a place would."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.offline.values import find_place_names
from echelons.offline.words import TokenizedText


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I want to fly to Rome from London", ["Rome destination", "London origin"]),
        ("flights to new york from san francisco tomorrow", ["New York d", "San Francisco o"]),
        ("FLIGHTS TO ROME", ["Rome destination"]),
        ("Plan a trip to Italy with great food", ["Italy destination"]),
        ("museums in the Netherlands in May", ["Netherlands place"]),
        ("around the Colosseum in Rome at noon", ["Colosseum place", "Rome place"]),
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


@given(st.text())
def test_any_text_has_places_in_order_or_none(text: str) -> None:
    found = find_place_names(TokenizedText(text))
    assert all(a.end <= b.start for a, b in pairwise(found))
    assert all(place.name.strip() for place in found)
