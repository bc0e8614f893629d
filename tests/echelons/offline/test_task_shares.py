"""Splitting: every word goes to who is best at it, and nobody outside the roster is asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.offline.team import MAX_SUBORDINATES, TeamIndex, parse_team, split_task
from echelons.offline.words import TokenizedText
from echelons.tree.members import RosterEntry, render_roster


def can(confidence: float, *abilities: str) -> dict[str, float]:
    return dict.fromkeys(abilities, confidence)


FLIGHTS = RosterEntry("flights", "Knows airlines", can(0.9, "flights", "fly", "airports", "trip"))
HOTELS = RosterEntry("hotels", "Knows beds", can(0.9, "hotels", "rooms", "stay", "sleep", "trip"))
DAYS = RosterEntry(
    "experiences",
    "Plans days",
    can(0.9, "food", "museums", "tours", "opera", "things to do", "wine tasting", "what to see")
    | can(0.8, "sights", "guides", "concerts", "shows", "festivals"),
)
TRAVEL = TeamIndex([FLIGHTS, HOTELS, DAYS])


def asked(team: TeamIndex, text: str, *part: str) -> dict[str, tuple[str, ...]]:
    return {share.name: share.words for share in split_task(team, TokenizedText(text), part)}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Plan a trip to Italy with great food", "flights hotels experiences"),
        ("I want to fly to Rome from London", "flights"),
        ("Where can we sleep, and which museums are there?", "hotels experiences"),
        ("We already have our rooms, just find us good food", "experiences"),
        ("Plan a trip, no hotels", "flights"),
        ("Plan a trip with hotels already booked", "flights"),
        ("What is near the museums?", "experiences"),
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


def test_shares_list_their_words() -> None:
    shares = asked(TRAVEL, "Flights and a hotel, then wine tasting and museums")
    assert shares == {
        "flights": ("flights",),
        "hotels": ("hotel",),
        "experiences": ("wine tasting", "museums"),
    }


def test_word_goes_to_the_best_and_to_ties() -> None:
    team = TeamIndex(
        [
            RosterEntry("inn", "", {"breakfast": 0.9, "bed": 0.5}),
            RosterEntry("cafe", "", {"breakfast": 0.7}),
            RosterEntry("camp", "", {"bed": 0.5}),
        ]
    )
    assert list(asked(team, "breakfast")) == ["inn"]
    assert list(asked(team, "a bed")) == ["inn", "camp"]


def test_only_the_part_that_is_meant_is_split() -> None:
    assert list(asked(TRAVEL, "Flights and hotels and food", "food")) == ["experiences"]


def test_part_without_candidate_leaves_the_whole_task() -> None:
    assert list(asked(TRAVEL, "Flights to Rome", "trains")) == ["flights"]


def test_refused_name_rules_out_even_capable_agents() -> None:
    team = TeamIndex([FLIGHTS, HOTELS, RosterEntry("days", "", {**DAYS.capabilities, "trip": 0.9})])
    assert list(asked(team, "Plan a trip, no museums")) == ["flights", "hotels", "days"]
    assert list(asked(team, "Plan a trip, no days")) == ["flights", "hotels"]


def test_a_description_is_gone_by_if_no_capability_is_named() -> None:
    assert list(asked(TRAVEL, "I need a bed")) == ["hotels"]
    assert list(asked(TRAVEL, "A bed and flights")) == ["flights"]


def test_a_name_counts_but_less_than_a_capability() -> None:
    team = TeamIndex(
        [RosterEntry("Rome_expert", "", {"ruins": 0.9}), RosterEntry("guide", "", {"rome": 0.9})]
    )
    assert list(asked(team, "Ask the Rome expert")) == ["Rome_expert"]
    both = TeamIndex(
        [RosterEntry("food", "", {"soup": 0.9}), RosterEntry("cook", "", {"food": 0.9})]
    )
    assert list(asked(both, "food")) == ["cook"]


def test_capitals_make_a_department_of_a_small_word() -> None:
    team = TeamIndex(
        [RosterEntry("helpdesk", "", {"IT": 0.9}), RosterEntry("sales", "", {"offers": 0.9})]
    )
    assert list(asked(team, "Who does IT here?")) == ["helpdesk"]
    assert asked(team, "Is it raining?") == {}


def documents(count: int) -> list[RosterEntry]:
    return [
        RosterEntry(
            f"doc{i}", f"Knows paper {i}", {"common": 0.5, f"topic{i % 40}": 0.9, f"key{i}": 0.9}
        )
        for i in range(count)
    ]


def test_large_team_is_ranked_by_rare_words() -> None:
    team = TeamIndex(documents(60))
    assert next(iter(asked(team, "common questions on topic7 and key47"))) == "doc47"
    assert list(asked(team, "what about key3?")) == ["doc3"]


def test_at_most_ten_of_a_large_team_get_a_task() -> None:
    team = TeamIndex(documents(60))
    assert len(asked(team, "what is common?")) == MAX_SUBORDINATES
    assert len(asked(team, " ".join(f"key{i}" for i in range(60)))) == MAX_SUBORDINATES


def test_agent_with_few_words_of_a_long_question_is_not_asked() -> None:
    expert = {f"word{i}": 0.9 for i in range(12)}
    team = TeamIndex(
        [
            RosterEntry("expert", "", expert),
            RosterEntry("layman", "", {"word0": 0.1}),
            *documents(15),
        ]
    )
    assert list(asked(team, " ".join(expert))) == ["expert"]


def test_two_fields_of_a_large_team_both_get_the_task() -> None:
    team = TeamIndex([*documents(12), FLIGHTS, HOTELS])
    assert set(asked(team, "Fly, flights, airports, and a hotel")) == {"flights", "hotels"}


def test_names_outside_the_enum_get_no_task() -> None:
    team = parse_team(render_roster([FLIGHTS, HOTELS]), ("hotels", "lodge", "two words"))
    assert team.names == ("hotels", "lodge")
    assert asked(team, "flights") == {}


@given(st.text(), st.lists(st.sampled_from(["food", "trip", "x", "what to"]), max_size=3))
def test_only_agents_on_the_roster_get_a_task(text: str, part: list[str]) -> None:
    shares = split_task(TRAVEL, TokenizedText(f"{text} trip, no {text} food"), part)
    names = [share.name for share in shares]
    assert set(names) <= set(TRAVEL.names)
    assert len(set(names)) == len(names)
