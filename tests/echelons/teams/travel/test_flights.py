"""The flights tool answers with airports, distances and estimates, and says what it lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import ToolException

from echelons.teams.travel.lookups import LIMITS_NOTE, find_airport, find_flights, load_gazetteer


def test_a_city_answers_with_its_airports_and_no_distance_without_an_origin() -> None:
    assert find_flights("Rome") == (
        "Rome: FCO Leonardo Da Vinci (Fiumicino) International Airport (airportsdata)\n"
        f"Rome: CIA Ciampino Airport (airportsdata)\n{LIMITS_NOTE}"
    )


def test_the_distance_from_a_known_origin_and_the_time_are_given() -> None:
    first = find_flights("Rome", "London").splitlines()[0]
    assert "1,444 km from LHR London Heathrow Airport, about 2 h 20 min nonstop" in first
    assert first.endswith("(airportsdata; great circle; Travelmath's rule)")


def test_a_country_answers_with_its_main_airports() -> None:
    codes = [line.split(": ")[1][:3] for line in find_flights("Italy").splitlines()[:-1]]
    italy = next(region for region in load_gazetteer().regions if region.name == "Italy")
    assert codes == list(italy.airports)


def test_codes_work_at_both_ends() -> None:
    answer = find_flights("FCO", "JFK")
    assert answer.startswith("FCO Leonardo Da Vinci")
    assert "km from JFK" in answer


def test_a_country_goes_before_an_airport_of_the_same_letters() -> None:
    assert find_airport("USA") is not None
    assert find_flights("USA") == find_flights("United States")


def test_the_origin_may_stand_inside_the_destination() -> None:
    assert find_flights("from London to Rome") == find_flights("Rome", "London")


def test_an_unknown_origin_loses_nothing_but_the_distances() -> None:
    lines = find_flights("Rome", "Atlantis").splitlines()
    assert lines[:2] == find_flights("Rome").splitlines()[:2]
    assert "'Atlantis'" in lines[2]


def test_the_distance_to_the_airport_of_departure_is_left_out() -> None:
    first, second, _ = find_flights("Rome", "Rome").splitlines()
    assert "km" not in first
    assert "km from FCO" in second


def test_an_airport_of_two_places_stands_once() -> None:
    answer = find_flights("Kyoto and Osaka")
    assert answer.count("KIX ") == 1


@pytest.mark.parametrize("destination", ["Atlantis", "", "any", "usb"])
def test_an_unknown_destination_is_refused(destination: str) -> None:
    with pytest.raises(ToolException, match="known places are"):
        find_flights(destination)


@given(st.text(max_size=100), st.none() | st.text(max_size=100))
def test_any_input_is_answered_or_refused(destination: str, origin: str | None) -> None:
    try:
        answer = find_flights(destination, origin)
    except ToolException as refusal:
        assert "known places are" in str(refusal)
    else:
        assert answer.endswith(LIMITS_NOTE)
