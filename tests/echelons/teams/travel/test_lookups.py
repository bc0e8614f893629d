"""The tools that look facts up: what they choose, and how they say what they lack."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import ToolException

from echelons.teams.travel.lookups import (
    MOST_LINES,
    find_events,
    find_food,
    find_places_to_stay,
    find_tours,
    load_gazetteer,
)

TOOLS: list[Callable[..., str]] = [find_food, find_tours, find_events, find_places_to_stay]
CHOOSING: list[Callable[..., str]] = [find_food, find_tours, find_events]
NAMES = [place.name for place in (*load_gazetteer().regions, *load_gazetteer().cities)]
SOURCES = {fact.source for city in load_gazetteer().cities for fact in city.facts}


def kinds_in(answer: str) -> set[str]:
    return {line.split(": ")[0].rsplit(", ", 1)[1] for line in answer.splitlines()}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", NAMES)
def test_every_place_has_an_answer_of_a_handful_of_sourced_facts(
    tool: Callable[..., str], name: str
) -> None:
    lines = tool(name).splitlines()
    assert 1 < len(lines) <= MOST_LINES
    for line in lines:
        assert any(line.endswith(f" ({source})") for source in SOURCES), line
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("place", ["Atlantis", "", "us"])
def test_an_unknown_place_is_refused_with_the_known_ones(
    tool: Callable[..., str], place: str
) -> None:
    with pytest.raises(ToolException, match=r"no facts about .*known places are Italy"):
        tool(place)


@pytest.mark.parametrize(
    ("tool", "kinds"),
    [
        (find_food, {"dish", "drink", "restaurant", "cafe", "market", "shop"}),
        (find_tours, {"museum", "sight", "walk"}),
        (find_events, {"venue", "festival"}),
        (find_places_to_stay, {"hotel", "district"}),
    ],
)
def test_each_tool_keeps_to_its_own_kinds(tool: Callable[..., str], kinds: set[str]) -> None:
    for name in NAMES:
        assert kinds_in(tool(name)) <= kinds


def test_accents_and_case_make_no_difference() -> None:
    assert find_food("MÜNCHEN") == find_food("munchen") == find_food("Munich")


def test_a_place_is_found_inside_longer_text() -> None:
    assert find_food("Italy with great food") == find_food("Italy")


def test_a_country_answers_with_facts_of_several_cities() -> None:
    cities = {line.split(", ")[0] for line in find_events("Italy").splitlines()}
    assert cities == {"Rome", "Florence", "Bologna"}


def test_a_wish_chooses_among_all_cities_of_a_country() -> None:
    assert "Naples, dish: Pizza napoletana" in find_food("Italy", "pizza")
    assert "Arena di Verona Festival" in find_events("Italy", "summer opera")


def test_a_wish_matches_other_forms_of_its_words() -> None:
    assert find_tours("Rome", "museums") == find_tours("Rome", "museum")
    assert kinds_in(find_tours("Rome", "museums")) == {"museum"}


def test_a_wish_that_no_fact_meets_is_admitted_and_the_rest_is_given() -> None:
    first, *rest = find_food("Rome", "sushi").splitlines()
    assert first == "No fact about 'sushi' is known in Rome; food and drink there:"
    assert rest == find_food("Rome").splitlines()


@pytest.mark.parametrize("wish", [None, "", "  ", "the best food", "great", "Rome"])
def test_a_wish_that_chooses_nothing_changes_nothing(wish: str | None) -> None:
    assert find_food("Rome", wish) == find_food("Rome")


def test_other_words_of_the_place_only_change_the_order() -> None:
    lines = find_food("pizza in New York").splitlines()
    assert "pizza" in lines[0]
    assert len(lines) == MOST_LINES


def test_every_place_that_is_named_is_answered() -> None:
    answer = find_food("Rome, Paris, Tokyo, Vienna, Porto", "chocolate")
    for city in ("Rome", "Paris", "Tokyo", "Vienna", "Porto"):
        assert f"{city}, " in answer
    assert "No fact about 'chocolate' is known in Rome" in answer
    assert "known in Vienna" not in answer


@pytest.mark.parametrize("tool", CHOOSING)
def test_any_wish_is_answered(tool: Callable[..., str]) -> None:
    @given(st.sampled_from(NAMES), st.text(max_size=60))
    def check(name: str, wish: str) -> None:
        facts = [line for line in tool(name, wish).splitlines() if line.endswith(")")]
        assert facts

    check()
