"""Many responses are combined by the rules of recursive delegation, restated here."""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.delegation.join import (
    aggregate_responses,
    choose_best,
    compute_preference,
    settle_responses,
)
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage
from echelons.tree.agent_path import AgentPath

REQUEST = DelegationRequest(
    id="r", origin="head", current="head", task="plan", path=AgentPath("head")
)


def response(
    agent: str, status: str, confidence: float = 0.5, result: str = "", **more: Any
) -> DelegationResponse:
    path = more.pop("path", ("head", agent))
    return DelegationResponse(
        request_id="r",
        agent=agent,
        status=Status(status),
        confidence=confidence,
        result=result,
        path=path,
        **more,
    )


def reference(statuses: list[str]) -> str:
    """Return the seed's outcome for the statuses of some responses."""
    fulfilled = [each for each in statuses if each == "fulfilled"]
    partial = [each for each in statuses if each == "partial"]
    if fulfilled:
        return "fulfilled"
    if partial or "needs_input" in statuses:
        return "needs_input"
    return "unable"


# Statuses


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_mixture_of_statuses_comes_to_what_the_rules_say(count: int) -> None:
    for statuses in combinations_with_replacement([str(each) for each in Status], count):
        found = {
            str(
                aggregate_responses(
                    REQUEST, [response(f"a{n}", s) for n, s in enumerate(order)]
                ).status
            )
            for order in permutations(statuses)
        }
        assert found == {reference(list(statuses))}, statuses


def test_of_conflicting_answers_the_best_counts() -> None:
    far = response("far", "fulfilled", 0.8, "far", path=("head", "a", "b", "far"))
    near = response("near", "fulfilled", 0.75, "near")

    answer = aggregate_responses(REQUEST, [far, near])

    assert (answer.result, answer.agent, answer.confidence) == ("near", "near", 0.75)
    assert compute_preference(near) > compute_preference(far)


def test_no_rounding_of_numbers_decides_between_equal_answers() -> None:
    # As floating-point numbers the first is 1.1e-16 more.
    near = response("z", "fulfilled", 0.8, path=("head", "z"))
    far = response("b", "fulfilled", 0.85, path=("head", "a", "b"))

    assert near.confidence - 0.05 * 2 > far.confidence - 0.05 * 3
    assert choose_best([near, far]) is far


def test_equal_answers_are_decided_by_their_paths() -> None:
    equal = [response(name, "fulfilled", 0.5, name) for name in ("c", "a", "b")]

    assert {choose_best(order).agent for order in permutations(equal)} == {"a"}


def test_fulfilled_and_partial_answers_are_put_together() -> None:
    whole = response("eat", "fulfilled", 0.9, "pizza")
    part = response("walk", "partial", 0.4, "one museum", reason="the others are closed")

    answer = aggregate_responses(REQUEST, [part, whole])

    assert (answer.status, answer.confidence) == (Status.FULFILLED, 0.9)
    assert answer.result == "eat: pizza\n\nwalk: one museum"
    assert answer.partial_results == ("one museum",)


def test_partial_answers_that_cover_the_task_are_put_together() -> None:
    parts = [
        response("eat", "partial", 0.6, "pizza"),
        response("walk", "partial", 0.4, "museum"),
    ]
    abilities = {"eat": ["food", "wine"], "walk": ["sights"]}

    covered = aggregate_responses(REQUEST, parts, ["food", "sights"], abilities)
    uncovered = aggregate_responses(REQUEST, parts, ["food", "sights", "flights"], abilities)

    assert (covered.status, covered.confidence) == (Status.FULFILLED, 0.4)
    assert covered.partial_results == ("pizza", "museum")
    assert uncovered.status is Status.NEEDS_INPUT
    assert uncovered.partial_results == ("pizza", "museum")


def test_one_agent_with_a_part_done_has_not_done_all() -> None:
    part = response("eat", "partial", 0.6, "pizza", reason="no wine")
    nobody = response("walk", "unable", reason="ill")

    answer = aggregate_responses(
        REQUEST, [part, nobody], ["food", "wine"], {"eat": ["food", "wine"]}
    )

    assert answer.status is Status.NEEDS_INPUT


def test_partial_answers_alone_become_a_question_that_says_what_is_missing() -> None:
    part = response("eat", "partial", 0.4, "pizza", reason="which city?")

    answer = aggregate_responses(REQUEST, [part])

    assert answer.status is Status.NEEDS_INPUT
    assert "which city?" in answer.reason
    assert answer.result == "pizza", "the reason names the agent and what it lacks, once"
    assert [each.agent for each in answer.subordinate_responses] == ["eat"]


def test_the_only_answer_is_handed_on_as_it_is_unless_it_is_a_part() -> None:
    spent = response("eat", "partial", 0.4, "pizza", reason="limit: 5 of 5 model calls")
    others = [response("eat", status) for status in ("fulfilled", "unable", "needs_input")]

    for each in (spent, *others):
        assert settle_responses(REQUEST, [each]) is each
    assert settle_responses(REQUEST, [response("eat", "partial")]).status is Status.NEEDS_INPUT


@pytest.mark.parametrize("reason", ["limited opening hours", "budget airlines do not fly there"])
def test_an_agent_that_speaks_of_limits_has_not_reached_one(reason: str) -> None:
    answer = aggregate_responses(
        REQUEST, [response("fly", "partial", 0.4, "a flight", reason=reason)]
    )

    assert answer.status is Status.NEEDS_INPUT


@pytest.mark.parametrize("reason", ["budget: 100 of 100 tokens", "limit: 5 of 5 model calls"])
def test_an_exhausted_budget_is_no_question(reason: str) -> None:
    answer = aggregate_responses(REQUEST, [response("eat", "partial", 0.4, "pizza", reason=reason)])

    assert (answer.status, answer.reason) == (Status.PARTIAL, reason)
    assert answer.partial_results == ("pizza",)


def test_parts_that_were_cut_short_cover_nothing() -> None:
    spent = "limit: 5 of 5 model calls"
    parts = [
        response("eat", "partial", 0.4, "half a pizza", reason=spent),
        response("walk", "partial", 0.6, "museum"),
    ]

    answer = aggregate_responses(
        REQUEST, parts, ["food", "sights"], {"eat": ["food"], "walk": ["sights"]}
    )

    assert (answer.status, answer.reason) == (Status.PARTIAL, spent)


def test_a_part_of_nothing_covers_nothing() -> None:
    parts = [response("eat", "partial", 0.4), response("walk", "partial", 0.6, "museum")]

    answer = aggregate_responses(
        REQUEST, parts, ["food", "sights"], {"eat": ["food"], "walk": ["sights"]}
    )

    assert answer.status is Status.NEEDS_INPUT


def test_one_question_is_handed_on_word_by_word() -> None:
    answer = aggregate_responses(REQUEST, [response("eat", "needs_input", 0.2, "Vegetarian?")])

    assert (answer.status, answer.result) == (Status.NEEDS_INPUT, "Vegetarian?")


def test_every_branch_says_why_no_agent_can() -> None:
    below = response("tours", "unable", 0.0, reason="no guides")
    branches = [
        response("flights", "unable", 0.0, reason="timeout: 30 s"),
        response("walk", "unable", 0.0, reason="nobody can", subordinate_responses=(below,)),
    ]

    answer = aggregate_responses(REQUEST, branches)

    assert answer.status is Status.UNABLE
    for part in ("flights: timeout: 30 s", "walk: nobody can"):
        assert part in answer.reason
    assert [each.agent for each in answer.subordinate_responses] == ["flights", "walk"]
    assert answer.subordinate_responses[1].subordinate_responses == (below,)


def test_no_request_has_no_able_agent() -> None:
    answer = aggregate_responses(REQUEST, [])

    assert (answer.status, answer.reason) == (
        Status.UNABLE,
        "no agent can: there is no candidate",
    )


# Properties


RESPONSES = st.lists(
    st.builds(
        response,
        agent=st.sampled_from("abcdef"),
        status=st.sampled_from([str(each) for each in Status]),
        confidence=st.floats(0, 1),
        result=st.sampled_from(["", "x", "y z"]),
        reason=st.sampled_from(["", "why", "limit: 1 of 1 steps"]),
        usage=st.builds(Usage, input_tokens=st.integers(0, 9), model_calls=st.integers(0, 3)),
    ),
    max_size=6,
)


@given(RESPONSES)
def test_nothing_that_was_spent_is_lost(responses: list[DelegationResponse]) -> None:
    answer = aggregate_responses(REQUEST, responses)

    assert answer.usage == sum((each.usage for each in responses), Usage())


@given(RESPONSES)
def test_an_answer_is_stored_and_read_as_it_is(responses: list[DelegationResponse]) -> None:
    answer = aggregate_responses(REQUEST, responses)

    assert DelegationResponse.load(answer.to_artifact()) == answer


@given(RESPONSES, st.randoms())
def test_the_status_does_not_hang_on_the_order(
    responses: list[DelegationResponse], random: Any
) -> None:
    shuffled = list(responses)
    random.shuffle(shuffled)

    assert (
        aggregate_responses(REQUEST, shuffled).status
        is aggregate_responses(REQUEST, responses).status
    )


@given(RESPONSES)
def test_no_confidence_is_made_up(responses: list[DelegationResponse]) -> None:
    answer = aggregate_responses(REQUEST, responses)

    assert answer.confidence <= max((each.confidence for each in responses), default=0.0)
