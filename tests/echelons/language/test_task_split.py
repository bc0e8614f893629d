"""Splitting: every word goes to who is best at it, and nobody outside the roster is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.language.task_split import MOST_ASKED, split
from echelons.language.team_index import Team, team_of
from echelons.language.tokens import Reading
from echelons.tree.roster import Entry, render


def can(confidence: float, *abilities: str) -> dict[str, float]:
    return dict.fromkeys(abilities, confidence)


FLIGHTS = Entry("flights", "Knows airlines", can(0.9, "flights", "fly", "airports", "trip"))
HOTELS = Entry("hotels", "Knows beds", can(0.9, "hotels", "rooms", "stay", "sleep", "trip"))
DAYS = Entry(
    "experiences",
    "Plans days",
    can(0.9, "food", "museums", "tours", "opera", "things to do", "wine tasting", "what to see")
    | can(0.8, "sights", "guides", "concerts", "shows", "festivals"),
)
TRAVEL = Team([FLIGHTS, HOTELS, DAYS])


def asked(team: Team, text: str, *part: str) -> dict[str, tuple[str, ...]]:
    return {share.name: share.words for share in split(team, Reading(text), part)}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Plan a trip to Italy with great food", "flights hotels experiences"),
        ("I want to fly to Rome from London", "flights"),
        ("Where can we sleep, and which museums are there?", "hotels experiences"),
        ("We already have our rooms, just find us good food", "experiences"),
        ("Plan a trip, no hotels", "flights"),
        ("Plan a trip with hotels already booked", "flights"),
        ("A hotel near the museums for our trip", "hotels"),
        ("What is near the museums?", "experiences"),
        ("Everything except flights", "hotels experiences"),
        ("Is wine tasting possible?", "experiences"),
        ("What can we see in Athens?", "experiences"),
        ("What things to do are there?", "experiences"),
        ("Show me flights", "flights"),
        ("We do not need a hotel", ""),
        ("What is the capital of France?", ""),
        ("", ""),
    ],
)
def test_a_task_is_split_by_its_words(text: str, names: str) -> None:
    assert list(asked(TRAVEL, text)) == names.split()


def test_each_share_names_its_own_words() -> None:
    shares = asked(TRAVEL, "Flights and a hotel, then wine tasting and museums")
    assert shares == {
        "flights": ("flights",),
        "hotels": ("hotel",),
        "experiences": ("wine tasting", "museums"),
    }


def test_a_word_goes_to_the_best_and_to_all_who_tie() -> None:
    team = Team(
        [
            Entry("inn", "", {"breakfast": 0.9, "bed": 0.5}),
            Entry("cafe", "", {"breakfast": 0.7}),
            Entry("camp", "", {"bed": 0.5}),
        ]
    )
    assert list(asked(team, "breakfast")) == ["inn"]
    assert list(asked(team, "a bed")) == ["inn", "camp"]


def test_only_the_part_that_is_meant_is_split() -> None:
    assert list(asked(TRAVEL, "Flights and hotels and food", "food")) == ["experiences"]


def test_a_part_that_nobody_knows_leaves_the_whole_task() -> None:
    assert list(asked(TRAVEL, "Flights to Rome", "trains")) == ["flights"]


def test_a_refused_name_rules_out_even_who_can_do_much_else() -> None:
    team = Team([FLIGHTS, HOTELS, Entry("days", "", {**DAYS.capabilities, "trip": 0.9})])
    assert list(asked(team, "Plan a trip, no museums")) == ["flights", "hotels", "days"]
    assert list(asked(team, "Plan a trip, no days")) == ["flights", "hotels"]


def test_a_description_is_gone_by_if_no_capability_is_named() -> None:
    assert list(asked(TRAVEL, "I need a bed")) == ["hotels"]
    assert list(asked(TRAVEL, "A bed and flights")) == ["flights"]


def test_a_name_counts_but_less_than_a_capability() -> None:
    team = Team([Entry("Rome_expert", "", {"ruins": 0.9}), Entry("guide", "", {"rome": 0.9})])
    assert list(asked(team, "Ask the Rome expert")) == ["Rome_expert"]
    both = Team([Entry("food", "", {"soup": 0.9}), Entry("cook", "", {"food": 0.9})])
    assert list(asked(both, "food")) == ["cook"]


def test_capitals_make_a_department_of_a_small_word() -> None:
    team = Team([Entry("helpdesk", "", {"IT": 0.9}), Entry("sales", "", {"offers": 0.9})])
    assert list(asked(team, "Who does IT here?")) == ["helpdesk"]
    assert asked(team, "Is it raining?") == {}


def documents(count: int) -> list[Entry]:
    return [
        Entry(f"doc{i}", f"Knows paper {i}", {"common": 0.5, f"topic{i % 40}": 0.9, f"key{i}": 0.9})
        for i in range(count)
    ]


def test_a_large_team_is_asked_by_telling_words_best_first() -> None:
    team = Team(documents(60))
    assert next(iter(asked(team, "common questions on topic7 and key47"))) == "doc47"
    assert list(asked(team, "what about key3?")) == ["doc3"]


def test_no_more_than_ten_of_a_large_team_are_asked() -> None:
    team = Team(documents(60))
    assert len(asked(team, "what is common?")) == MOST_ASKED
    assert len(asked(team, " ".join(f"key{i}" for i in range(60)))) == MOST_ASKED


def test_who_knows_hardly_anything_of_a_long_question_is_not_asked() -> None:
    expert = {f"word{i}": 0.9 for i in range(12)}
    team = Team([Entry("expert", "", expert), Entry("layman", "", {"word0": 0.1}), *documents(15)])
    assert list(asked(team, " ".join(expert))) == ["expert"]


def test_two_trades_of_a_large_team_are_both_asked() -> None:
    team = Team([*documents(12), FLIGHTS, HOTELS])
    assert set(asked(team, "Fly, flights, airports, and a hotel")) == {"flights", "hotels"}


def test_names_that_the_tool_does_not_take_are_never_asked() -> None:
    team = team_of(render([FLIGHTS, HOTELS]), ("hotels", "lodge", "two words"))
    assert team.names == ("hotels", "lodge")
    assert asked(team, "flights") == {}


@given(st.text(), st.lists(st.sampled_from(["food", "trip", "x", "what to"]), max_size=3))
def test_whatever_is_said_only_the_roster_is_asked(text: str, part: list[str]) -> None:
    shares = split(TRAVEL, Reading(f"{text} trip, no {text} food"), part)
    names = [share.name for share in shares]
    assert set(names) <= set(TRAVEL.names)
    assert len(set(names)) == len(names)
