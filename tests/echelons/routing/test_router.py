"""Who is found: the rule, its ties, its limits, and an oracle that looks at every agent."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from math import log, nan, sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent
from echelons.capabilities import CapabilityMap
from echelons.errors import UnknownPath
from echelons.routing import DEPTH_PENALTY, Router
from echelons.teams.travel.team import team
from echelons.text.stemming import stem
from tests.echelons.routing.trees import Fixed, travel
from tests.error_codes import raises_code


def ranked(router: Router, *receiver: str) -> list[tuple[str, float]]:
    return [(each.agent, each.score) for each in router.route("task", receiver).candidates]


def test_the_score_is_confidence_times_match_less_a_tenth_a_level() -> None:
    router = Router(travel(), Fixed(flights=0.5, restaurants=1.0, head=0.3), threshold=0)

    names, scores = zip(*ranked(router), strict=True)
    assert names == ("restaurants", "flights", "head")
    assert scores == pytest.approx(
        (0.9 * 1.0 - 2 * DEPTH_PENALTY, 0.9 * 0.5 - DEPTH_PENALTY, 0.8 * 0.5 * 0.3)
    )


def test_depth_is_counted_from_the_receiver() -> None:
    route = Router(travel(), Fixed(restaurants=1.0)).route("task", "experiences")

    assert route.best is not None
    assert (route.best.depth, len(route.candidates)) == (1, 1)
    assert route.best.score == pytest.approx(0.8)
    assert route.receiver == ("head", "experiences")


def test_only_agents_below_the_receiver_are_candidates() -> None:
    router = Router(travel(), Fixed(head=1, flights=1, experiences=1, tours=1))

    assert [name for name, _ in ranked(router, "head", "experiences")] == ["experiences", "tours"]
    assert [name for name, _ in ranked(router, "flights")] == ["flights"]


def test_the_caller_is_no_candidate_for_its_own_request() -> None:
    router = Router(travel(), Fixed(head=1, tours=1))

    assert {each.agent for each in router.route("task").candidates} == {"head", "tours"}
    assert [each.agent for each in router.route("task", without=["head"]).candidates] == ["tours"]


def test_equals_are_ordered_by_their_paths() -> None:
    router = Router(travel(), Fixed(tours=0.7, restaurants=0.7, events=0.7))

    assert [name for name, _ in ranked(router)] == ["events", "restaurants", "tours"]


def test_a_match_of_0_is_no_candidate() -> None:
    route = Router(travel(), Fixed(tours=0.0), threshold=0).route("task")

    assert (route.candidates, route.short, route.best, route.match) == ((), (), None, 0.0)


def test_agent_below_the_threshold_is_no_candidate() -> None:
    route = Router(travel(), Fixed(tours=0.6, events=0.59), threshold=0.6).route("task")

    assert [each.agent for each in route.candidates] == ["tours"]
    assert [each.agent for each in route.short] == ["events"]
    assert route.match == 0.6


def test_the_threshold_is_held_against_the_match_and_not_the_score() -> None:
    agent = Agent("leaf", capabilities={"food": 0.2})
    for level in range(10):
        agent = Agent(f"level{level}", subordinates=[agent])

    best = Router(CapabilityMap.discover(agent), Fixed(leaf=0.9), threshold=0.8).route("food").best

    assert best is not None
    assert (best.agent, best.depth) == ("leaf", 10)
    assert best.score < 0


@pytest.mark.parametrize("task", ["", "  \n", None, 3, b"food"])
def test_a_task_that_is_none_is_refused(task: Any) -> None:
    with raises_code("invalid_task"):
        Router(travel()).route(task)


@pytest.mark.parametrize("receiver", ["nobody", "head/tours", ["flights", "tours"], "head/nobody"])
def test_a_receiver_that_is_not_there_is_refused(receiver: Any) -> None:
    with pytest.raises(UnknownPath, match="there are: head, flights"):
        Router(travel()).route("food", receiver)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, nan, True, "0.5"])
def test_a_threshold_that_is_none_is_refused(threshold: Any) -> None:
    with raises_code("invalid_threshold"):
        Router(travel(), threshold=threshold)


def test_without_a_threshold_the_matchers_own_holds() -> None:
    assert Router(travel(), Fixed()).threshold == 0.5
    assert Router(travel(), Fixed(), threshold=0).threshold == 0.0


async def test_waiting_finds_the_same() -> None:
    router = Router(travel())

    assert await router.aroute("Where is good food?") == router.route("Where is good food?")


def test_a_route_explains_itself() -> None:
    router = Router(travel(), Fixed(tours=0.6, events=0.1), threshold=0.5)

    assert router.route("see\x1b[2J Rome").explain() == (
        'at head, for "see [2J Rome": tours\n'
        "  1. head/experiences/tours: 0.34 = 0.9 * 0.60 - 0.1 * 2; told so of tours\n"
        "  1 below the threshold 0.5; the nearest: "
        "head/experiences/events: -0.11 = 0.9 * 0.10 - 0.1 * 2; told so of events"
    )
    assert Router(travel(), Fixed()).route("task").explain() == 'at head, for "task": no agent'


def test_long_ranking_is_shown_in_part() -> None:
    crowd = [Agent(f"agent{number}") for number in range(30)]
    matcher = Fixed(**{each.name: 0.9 for each in crowd})
    route = Router(CapabilityMap.discover(Agent("head", subordinates=crowd)), matcher).route("task")

    assert len(route.candidates) == 30
    assert "and 20 more" in route.explain()
    assert len(route.json()["candidates"]) == 10


# An oracle over a thousand agents

SYLLABLES = ["ba", "co", "du", "fe", "gi", "ho", "ku", "la", "mi", "no", "pu", "ra", "so", "tu"]


def vocabulary() -> list[str]:
    """Words of which no two begin alike, so that each is like itself only."""
    chance = random.Random(7)
    ends = ("".join(chance.choice(SYLLABLES) for _ in range(3)) + "x" for _ in iter(int, 1))
    return [one + other + next(ends) for one in SYLLABLES for other in SYLLABLES]


def thousand(words: Sequence[str]) -> Agent:
    """A tree of 1,000 agents and six levels, each with one or two capabilities of two words."""
    chance = random.Random(3)
    below: dict[int, list[int]] = {}
    levels = {0: 1}
    for number in range(1, 1000):
        superior = number - 1 if number < 6 else chance.choice([n for n in levels if levels[n] < 6])
        levels[number] = levels[superior] + 1
        below.setdefault(superior, []).append(number)

    def made(number: int) -> Agent:
        named = [" ".join(chance.sample(words, 2)) for _ in range(chance.randint(1, 2))]
        confidence = chance.choice([0.5, 0.8, 0.9, 1.0])
        return Agent(
            f"n{number}q",
            capabilities=dict.fromkeys(named, confidence),
            subordinates=[made(each) for each in below.get(number, [])],
        )

    return made(0)


Oracle = Callable[[Sequence[str]], list[tuple[float, tuple[str, ...]]]]


def oracle(root: CapabilityMap) -> Oracle:
    """The rule by its definition: every agent, every phrase, no index of places."""
    every = list(root.walk())
    phrases = [[tuple(map(stem, name.split())) for name in each.capabilities] for _, each in every]
    # Agents that have a word in the same capabilities count as one.
    having: dict[str, set[frozenset[tuple[str, ...]]]] = {}
    for own in phrases:
        for word in {word for p in own for word in p}:
            having.setdefault(word, set()).add(frozenset(p for p in own if word in p))
    size = len(set(map(frozenset, phrases)))
    rarity = {word: log(1 + size / len(each)) / log(1 + size) for word, each in having.items()}
    whole = {p: sqrt(sum(rarity[word] for word in set(p))) for own in phrases for p in own}

    def rank(task: Sequence[str]) -> list[tuple[float, tuple[str, ...]]]:
        said = {stem(word) for word in task}
        found = []
        for (path, each), own in zip(every, phrases, strict=True):
            evidence = sum(
                max((rarity[word] / whole[p] for p in own if word in p), default=0.0)
                for word in said
            )
            match = evidence**2 / (1 + evidence**2)
            confidence = max(each.capabilities.values())
            if match > 0:
                found.append((confidence * match - 0.1 * (len(path) - 1), path))
        return sorted(found, key=lambda one: (-round(one[0], 9), one[1]))

    return rank


def test_a_thousand_agents_are_ranked_as_an_oracle_ranks_them() -> None:
    words = vocabulary()
    known = CapabilityMap.discover(thousand(words))
    router, rank = Router(known, threshold=0), oracle(known)
    chance = random.Random(11)
    assert (len(list(known.walk())), known.total_depth) == (1000, 5)

    for _ in range(100):
        task = chance.sample(words, chance.randint(1, 4))
        expected = rank(task)
        found = [(each.score, each.path) for each in router.route(" ".join(task)).candidates]

        assert [path for _, path in found] == [path for _, path in expected]
        assert [score for score, _ in found] == pytest.approx([score for score, _ in expected])


# Properties

TEXTS = st.text(max_size=60)


@given(TEXTS.filter(str.strip), st.floats(0, 1))
def test_any_text_gives_ordered_candidates_within_bounds(task: str, threshold: float) -> None:
    route = Router(travel(), threshold=threshold).route(task)

    scores = [(-each.score, each.path) for each in route.candidates]
    assert scores == sorted(scores)
    assert all(threshold <= each.match <= 1 and each.match > 0 for each in route.candidates)
    assert all(0 < each.match < threshold for each in route.short)
    assert route.explain()


@given(st.lists(st.sampled_from(["food", "flight", "hotel", "who", "the", "opera"]), min_size=1))
def test_more_words_of_a_capability_never_take_its_agent_away(task: list[str]) -> None:
    router = Router(travel(), threshold=0)
    before = {each.agent: each.match for each in router.route(" ".join(task)).candidates}
    after = {each.agent: each.match for each in router.route(" ".join([*task, "food"])).candidates}

    assert after["restaurants"] >= before.get("restaurants", 0)


def test_every_process_ranks_alike() -> None:
    task = "a trip with great food, sights and a show in the opera"
    code = (
        "from echelons.routing import Router; from echelons.capabilities import CapabilityMap;"
        "from echelons.teams.travel.team import team;"
        f"print(Router(CapabilityMap.discover(team()), threshold=0).route({task!r}).json())"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "1"},  # ours is random
    ).stdout

    here = Router(CapabilityMap.discover(team()), threshold=0).route(task).json()
    assert elsewhere == f"{here}\n"


def test_a_task_of_ten_megabytes_is_read_in_part() -> None:
    best = Router(travel()).route("find food " + "x y z " * 1_700_000).best

    assert best is not None
    assert best.agent == "restaurants"
