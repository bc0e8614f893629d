"""Who gets which part of a task, with how many rankings, and which capabilities it needs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent
from echelons.capabilities import Capability, CapabilityMap
from echelons.errors import UnknownPath
from echelons.routing import Part, Router
from tests.echelons.routing.trees import Fixed, below, travel
from tests.error_codes import raises_code

CLERK = Agent(
    "clerk",
    capabilities={"reservations": Capability(0.9, ["book a table", "reserve seats for dinner"])},
)
BANK = Agent(
    "bank", capabilities={"banking": Capability(0.9, ["pay my bill", "transfer cash to savings"])}
)
BICYCLE = "Repair the bicycle and oil its chain"


def told(found: tuple[Part, ...]) -> list[tuple[str, str]]:
    return [(part.candidate.agent, part.task) for part in found]


def parts(task: str, *receiver: str, without: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return told(Router(travel()).split(task, receiver, without=without))


def among(task: str, *crowd: Agent) -> list[tuple[str, str]]:
    return told(Router(below(*crowd)).split(task))


def test_the_travel_task_becomes_three_requests_one_of_them_to_the_grandchild() -> None:
    assert parts("Plan a trip to Italy with great food") == [
        ("flights", "trip"),
        ("hotels", "trip"),
        ("restaurants", "food"),
    ]


def test_what_is_refused_is_nobodys_part() -> None:
    task = "We have hotels already, just find us food"
    assert parts(task) == [("restaurants", task)]


def test_agent_with_same_capability_is_no_separate_part() -> None:
    twins = [Agent(name, capabilities={"cook dinner": 0.9}) for name in ("a", "b", "c")]
    router = Router(CapabilityMap.discover(Agent("head", subordinates=twins)))

    [part] = router.split("Cook dinner", "head", without={"head"})

    assert (part.task, part.candidate.agent) == ("Cook dinner", "a")
    assert [each.agent for each in part.route.candidates] == ["a", "b", "c"]


def test_a_capability_that_agents_share_beside_others_is_asked_of_one_of_them() -> None:
    crowd = [Agent(f"s{at}", capabilities={"weather": 0.9, f"city {at}": 0.9}) for at in range(12)]
    router = Router(CapabilityMap.discover(Agent("head", subordinates=crowd)))

    [part] = router.split("What is the weather?", "head", without={"head"})

    assert (part.task, part.candidate.agent) == ("What is the weather?", "s0")
    assert len(part.route.candidates) == 12


def test_task_for_agent_with_shared_and_unique_capability_stays_whole() -> None:
    own = ["payroll", "gardening", "billing", "catering", "dancing"]
    crowd = [
        Agent(f"s{at}", capabilities={"translation": 0.9, each: 0.9}) for at, each in enumerate(own)
    ]
    router = Router(CapabilityMap.discover(Agent("head", subordinates=crowd)))

    for task in ("translation and catering", "catering, then a translation"):
        [part] = router.split(task, "head", without={"head"})
        assert (part.task, part.candidate.agent) == (task, "s3")


def test_task_for_one_agent_is_one_part_and_for_none_no_part() -> None:
    assert parts("Find guides") == [("tours", "Find guides")]
    assert parts("Repair my bicycle") == []


def test_the_receiver_gets_no_part_and_splits_among_those_below_it() -> None:
    task = "activities with concerts and flights"
    assert parts(task, "experiences") == [("events", task)]
    assert parts(task, "events") == []


def test_clauses_find_agents_that_only_show_examples() -> None:
    found = Router(below(CLERK, BANK)).split("Please book a table, then transfer cash to savings")

    assert told(found) == [
        ("clerk", "Please book a table"),
        ("bank", "then transfer cash to savings"),
    ]
    assert [part.route.best for part in found] == [part.candidate for part in found]


def test_clause_with_name_takes_nothing_from_clause_of_examples() -> None:
    tours = Agent("tours", capabilities={"guides": 0.9})

    assert among("Please book a table, then find us guides", CLERK, tours) == [
        ("clerk", "Please book a table"),
        ("tours", "then find us guides"),
    ]


def test_clause_without_candidate_joins_the_words_before_it() -> None:
    task = "Hello there, book a table, for tonight, then transfer cash to savings, reserve seats"

    assert among(task, CLERK, BANK) == [
        ("clerk", "Hello there, book a table, for tonight, reserve seats"),
        ("bank", "then transfer cash to savings"),
    ]


def test_the_words_of_an_agent_that_was_asked_before_go_to_the_next_one() -> None:
    cook = Agent("cook", capabilities={"food": 0.6})
    eat = Agent("restaurants", capabilities={"food": 0.9})
    fly = Agent("flights", capabilities={"flights": 0.9})
    router = Router(below(cook, eat, fly))

    assert told(router.split("flights and food")) == [
        ("restaurants", "food"),
        ("flights", "flights"),
    ]
    assert told(router.split("flights and food", without={"restaurants"})) == [
        ("cook", "food"),
        ("flights", "flights"),
    ]


def test_part_falls_back_to_no_agent_meant_for_other_words() -> None:
    cook = Agent("cook", capabilities={"food": 0.6})
    eat = Agent("restaurants", capabilities={"food": 0.9})
    fly = Agent("flights", capabilities={"flights": 1.0})

    food, flights = Router(below(cook, eat, fly)).split("food and flights")

    assert [each.agent for each in food.route.candidates] == ["restaurants", "cook"]
    assert [each.agent for each in flights.route.candidates] == ["flights", "cook"]


# What one agent can do whole


@pytest.mark.parametrize(
    "mechanic",
    [
        Agent("mechanic", capabilities={"bicycles": 0.9, "chain": 0.8}),
        Agent("mechanic", capabilities={"bicycle repair": 0.9}),
        Agent("mechanic", "Repairs bicycles, their chains and brakes"),
        Agent(
            "mechanic",
            capabilities={"works": Capability(0.9, ["repair my bicycle", "oil the chain"])},
        ),
    ],
    ids=["by capabilities", "by a phrase", "by its description", "by examples"],
)
def test_what_one_agent_can_do_whole_stays_one_part(mechanic: Agent) -> None:
    dealer = Agent("dealer", capabilities={"chain": 0.9})
    cook = Agent("cook", capabilities={"soups": 0.9})

    assert among(BICYCLE, mechanic, cook) == [("mechanic", BICYCLE)]
    if "chain" in mechanic.capabilities:
        assert among(BICYCLE, mechanic, dealer) == [("mechanic", BICYCLE)]


def test_one_word_does_not_take_a_task_from_better_agent() -> None:
    mechanic = Agent(
        "mechanic", "Repairs bicycles, chains and brakes", capabilities={"bicycle repair": 0.9}
    )
    assert among(BICYCLE, mechanic, Agent("chemist", capabilities={"oil": 0.9})) == [
        ("mechanic", BICYCLE)
    ]


def test_agent_nearly_best_in_all_clauses_is_asked_once() -> None:
    task = "Mend the wheel, then paint the frame"
    matcher = Fixed(mechanic=0.8, painter=0.9)
    crowd = [Agent("mechanic"), Agent("painter")]

    assert told(Router(below(*crowd), matcher).split(task)) == [("painter", task)]


def test_two_agents_good_at_one_half_are_both_asked() -> None:
    mechanic = Agent("mechanic", capabilities={"bicycles": 0.9})
    dealer = Agent("dealer", capabilities={"chain": 0.9})

    assert among(BICYCLE, mechanic, dealer) == [("mechanic", "bicycle"), ("dealer", "chain")]


def test_equally_good_agent_is_meant_beside_one_that_can_do_all() -> None:
    assert parts("Plan a trip with flights") == [("flights", "trip, flights"), ("hotels", "trip")]


# How often is ranked


@pytest.mark.parametrize(
    ("task", "asked"),
    [
        ("See Rome", ["See Rome"]),
        ("Plan a trip to Italy with great food", ["Plan a trip to Italy with great food"]),
        ("go there, go there, then come", ["go there", "then come"]),
        ("We have hotels already, just find us food", ["just find us food"]),
    ],
)
def test_each_clause_that_is_wished_is_ranked_once(task: str, asked: list[str]) -> None:
    matcher = Fixed(tours=0.9)
    Router(travel(), matcher).split(task)

    assert matcher.asked == asked


@pytest.mark.parametrize(
    "task",
    ["Plan a trip to Italy with great food", "See a show, then find us guides", "Repair my bike"],
)
async def test_waiting_splits_alike(task: str) -> None:
    router = Router(travel())

    assert await router.asplit(task) == router.split(task)
    found = await router.asplit(task, "head", without={"flights"})
    assert found == router.split(task, "head", without={"flights"})
    assert "flights" not in {part.candidate.agent for part in found}


@given(st.text(max_size=80).filter(str.strip))
def test_any_text_is_split_among_different_agents(task: str) -> None:
    found = Router(travel()).split(task)

    assert len({part.candidate.agent for part in found}) == len(found)
    assert all(part.route.best == part.candidate and part.task for part in found)


# What a task needs


def test_a_task_needs_the_capabilities_that_its_words_name() -> None:
    router = Router(travel(), Fixed())

    assert router.needs("Plan a trip to Italy with great food") == ("trip", "food")
    assert router.needs("Airlines, no hotels, and a guide please") == ("airlines", "guides")
    assert router.needs("concerts and flights and shows", "experiences") == ("concerts", "shows")


def test_a_task_that_names_one_capability_or_none_needs_nothing_to_be_covered() -> None:
    assert Router(travel()).needs("Where is good food, good food?") == ()
    assert Router(travel()).needs("Repair my bicycle") == ()
    assert Router(travel()).needs("food and shows", "flights") == ()


def test_an_agent_is_able_to_do_what_it_declares() -> None:
    router = Router(travel())

    assert router.able("flights") == {"flights", "airlines", "trip"}
    assert router.able("experiences") == {"activities", "restaurants"}
    assert router.able("head") == {"head"}


def test_two_spellings_of_a_capability_cover_each_other() -> None:
    fly = Agent("fly", capabilities={"flights": 0.8})
    jet = Agent("jet", capabilities={"Flight": 0.9, "food": 0.9})
    router = Router(below(fly, jet))

    assert router.needs("a flight with food") == ("flights", "food")
    assert router.able("jet") == {"Flight", "flights", "food"}
    assert router.able("fly") == {"flights"}


@pytest.mark.parametrize("task", ["", "  ", None, 3])
async def test_what_is_no_task_is_refused(task: Any) -> None:
    router = Router(travel())
    for ask in (router.split, router.needs):
        with raises_code("invalid_task"):
            ask(task)
    with raises_code("invalid_task"):
        await router.asplit(task)


async def test_agent_outside_the_tree_is_refused() -> None:
    router = Router(travel())
    with pytest.raises(UnknownPath):
        router.needs("food", "nobody")
    with pytest.raises(UnknownPath):
        router.able("nobody")
    with pytest.raises(UnknownPath):
        await router.asplit("food", "nobody")
