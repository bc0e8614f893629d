"""Comparing words: what counts, what counts less, and what is the same word."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent
from echelons.capabilities import (
    Capability,
    CapabilityMap,
    DeclaredCapabilities,
    check_capabilities,
)
from echelons.routing import LexicalMatcher, Profile, Route, Router
from echelons.routing.matcher import saturate_evidence, shorten_task


def router(*agents: Agent) -> Router:
    return Router(CapabilityMap.discover(Agent("head", subordinates=agents)), threshold=0)


def able(name: str, *capabilities: str, examples: tuple[str, ...] = ()) -> Agent:
    return Agent(name, capabilities=dict.fromkeys(capabilities, Capability(1.0, examples)))


def match(route: Route, agent: str) -> float:
    found = (*route.candidates, *route.short)
    return next((each.match for each in found if each.agent == agent), 0.0)


def get_weather(place: str) -> str:
    """Get the weather."""
    return place


def first(found: Router, task: str) -> str:
    best = found.route(task).best
    return best.agent if best else ""


@pytest.mark.parametrize(
    ("capability", "task"),
    [
        ("restaurants", "which restaurant is open"),
        ("timezone", "what time zone is Peru in"),
        ("todo list", "what is on my to do list"),
        ("time-zone", "show my timezone"),
        ("pto balance", "how much paid time off is left"),
        ("definition", "please define entropy"),
        ("findFlights", "find a flight"),
        ("café", "is there a cafe"),
    ],
)
def test_a_word_is_found_in_other_forms(capability: str, task: str) -> None:
    assert first(router(able("right", capability), able("wrong", "opera")), task) == "right"


def test_word_of_many_agents_weighs_less() -> None:
    crowd = [able(f"agent{number}", f"report {number + 10}") for number in range(8)]
    route = router(able("taxes", "tax report"), *crowd).route("tax report")

    assert match(route, "taxes") > 3 * match(route, "agent1") > 0


@pytest.mark.parametrize("number", [1, 10, 50])
@pytest.mark.parametrize(
    "make",
    [
        lambda name: able(name, "weather"),
        lambda name: able(name, "weather", examples=("will it rain", "how hot is it")),
        lambda name: Agent(name, f"The weather of {name}", capabilities={"weather": 0.9}),
        lambda name: Agent(f"weather_{name[1:]}"),
        lambda name: Agent(name, tools=[get_weather]),
    ],
)
def test_equal_agents_take_no_evidence_from_each_other(
    number: int, make: Callable[[str], Agent]
) -> None:
    others = [able("cook", "food", examples=("fry me an egg", "bake a cake")), able("fly", "jets")]
    alone, among = (
        router(*(make(f"s{each}") for each in range(count)), *others) for count in (1, number)
    )

    for task in ("what is the weather", "will it rain", "a weather report", "fry an egg"):
        one, found = alone.route(task), among.route(task)
        assert match(found, "cook") == pytest.approx(match(one, "cook"))
        assert match(found, make("s0").name) == pytest.approx(match(one, make("s0").name))


@pytest.mark.parametrize("number", [2, 10, 50])
@pytest.mark.parametrize("examples", [(), ("will it rain", "how hot is it")])
@pytest.mark.parametrize("own", [(), ("a walk by the river", "an old bridge over a lake")])
def test_a_capability_that_agents_share_keeps_its_evidence_whatever_else_they_can_do(
    number: int, examples: tuple[str, ...], own: tuple[str, ...]
) -> None:
    weather = Capability(0.9, examples)
    crowd = [
        Agent(
            f"s{at:02}",
            capabilities={
                "weather": weather,
                f"city_{at}": Capability(0.9, [f"{text} {'far away ' * at}" for text in own]),
            },
        )
        for at in range(number)
    ]
    route = router(*crowd, able("fly", "jets")).route

    for task in ("what is the weather", *examples):
        found = route(task)
        assert [each.agent for each in found.candidates] == [each.name for each in crowd]
        assert {each.score for each in found.candidates} == {found.candidates[0].score}
        assert found.match >= 0.3
    assert first(router(*crowd), "the weather in city 1") == "s01"


def test_a_phrase_named_in_full_fits_better_than_one_in_part() -> None:
    found = router(able("score", "credit score"), able("limit", "credit limit"))
    route = found.route("raise my credit limit")

    assert match(route, "limit") > match(route, "score") > 0


def test_many_other_capabilities_take_nothing_from_the_one_that_is_named() -> None:
    many = able("many", "food", *(f"thing{number}x" for number in range(50)))
    route = router(many, able("one", "opera")).route("food")

    assert match(route, "many") > 0.4


def test_what_is_declared_counts_more_than_the_name_and_the_description() -> None:
    found = router(
        able("declares", "opera"),
        Agent("opera", capabilities={"music": 1.0}),
        Agent("describes", "Sells opera tickets", capabilities={"tickets": 1.0}),
    )
    route = found.route("opera")

    assert match(route, "declares") > match(route, "opera") > 0
    assert match(route, "declares") > match(route, "describes") > 0


def test_small_words_alone_are_next_to_nothing() -> None:
    agents = (able("what", "what you can do"), able("food", "food"))
    assert match(router(*agents).route("can you do the food"), "food") > 0.4
    assert match(router(*agents).route("what of the and to"), "what") < 0.1


def test_the_superiors_name_decides_between_equals() -> None:
    bank = Agent("banking", subordinates=[able("status1", "status")])
    trip = Agent("travel", subordinates=[able("status2", "status")])

    assert first(router(bank, trip), "the status of my travel") == "status2"


def test_examples_recognise_a_task_in_other_words_than_the_names() -> None:
    pay = able("pay", "billing", examples=("settle my invoice", "send money for the invoice"))
    play = able("play", "music", examples=("put on a song", "some jazz please"))
    found = router(pay, play)

    assert first(found, "put some jazz on") == "play"
    assert first(found, "I want to settle an invoice") == "pay"


def test_the_confidence_is_that_of_the_capability_that_is_meant() -> None:
    agent = Agent(
        "eat",
        capabilities={
            "dining": Capability(0.9, ["where to eat well"]),
            "booking": Capability(0.3, ["reserve two seats"]),
        },
    )
    found = router(agent, able("other", "opera", examples=("see a tenor",)))

    assert [found.route(task).candidates[0].confidence for task in ("booking", "dining")] == [
        pytest.approx(0.3),
        pytest.approx(0.9),
    ]
    assert found.route("reserve two seats").candidates[0].confidence == pytest.approx(0.3)


def test_reasons_name_the_words_and_the_nearest_example() -> None:
    found = router(able("eat", "fine dining", examples=("a table for two", "where to eat")))
    route = found.route("some fine table for two people")
    assert route.best is not None

    words, example = route.reasons(route.best)
    assert words == "words: fine"
    assert "'a table for two'" in example


def test_a_single_agent_is_matched_too() -> None:
    alone = Router(CapabilityMap.discover(able("eat", "food", examples=("find dinner",))))

    assert alone.route("food").best is not None
    assert alone.route("find dinner").best is not None
    assert alone.route("repair a bicycle").best is None


def test_tree_without_capabilities_finds_no_candidate() -> None:
    assert router(able("eat", "?!")).route("food").candidates == ()


TASKS = st.text(alphabet=st.sampled_from("abefoods éß漢💥'_-1\n\x00"), max_size=40)


@given(st.lists(TASKS.filter(str.strip), min_size=1, max_size=4), TASKS)
def test_matches_of_any_texts_are_within_bounds(capabilities: list[str], task: str) -> None:
    agents = [able("shows", *capabilities, examples=tuple(capabilities)), able("eat", "food")]
    profiles = [Profile(("head", each.name), _declared(each)) for each in agents]

    found = LexicalMatcher().prepare(profiles).match(task)

    assert all(0 < each.value < 1 and 0 <= each.confidence <= 1 for each in found.values())


def _declared(agent: Agent) -> DeclaredCapabilities:
    return check_capabilities(agent.name, agent.capabilities)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_more_evidence_is_never_a_lesser_match(one: float, other: float) -> None:
    low, high = sorted([one, other])

    assert 0 <= saturate_evidence(low) <= saturate_evidence(high) <= 1


def test_of_a_long_task_the_beginning_and_the_end_are_read() -> None:
    read = shorten_task("begin " + "x" * 50_000 + " end")

    assert read.startswith("begin")
    assert read.endswith("end")
    assert len(read) < 12_100
