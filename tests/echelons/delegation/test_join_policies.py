"""How several requests of one call are joined."""

from __future__ import annotations

from typing import Any

import pytest

from echelons.delegation.join import (
    JOIN_NAMES,
    combine_statuses,
    join_call_responses,
    load_join,
    parse_join,
)
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage
from echelons.tree.agent_path import AgentPath
from tests.error_codes import raises_code

REQUEST = DelegationRequest(id="r", origin="head", current="head", task="", path=AgentPath("head"))


def responses(*statuses: str) -> list[DelegationResponse]:
    return [
        DelegationResponse(
            request_id=str(number),
            agent=f"a{number}",
            status=Status(status),
            result="" if status == "unable" else f"said {number}",
            reason="" if status == "fulfilled" else f"why {number}",
            confidence=number / 10,
            path=AgentPath(("head", f"a{number}")),
            usage=Usage(model_calls=number),
        )
        for number, status in enumerate(statuses, start=1)
    ]


def settled(name: str, *statuses: str, n: Any = None) -> DelegationResponse:
    join = parse_join(name, n, len(statuses))
    return join.join_responses(REQUEST, responses(*statuses))


def test_all_shows_every_answer_under_one_status() -> None:
    answer = settled("all", "fulfilled", "unable", "partial")

    assert answer.status == "partial"
    assert answer.result.split("\n\n") == [
        "1. a1: said 1",
        "2. a2: [unable] why 2",
        "3. a3: [partial] why 3\nsaid 3",
    ]
    assert answer.reason == "a2: why 2; a3: why 3"
    assert answer.partial_results == ("said 3",)
    assert answer.confidence == 0.1, "that of who is least sure"


def test_all_are_fulfilled_when_each_is() -> None:
    answer = settled("all", "fulfilled", "fulfilled")

    assert (answer.status, answer.reason) == ("fulfilled", "")


def test_the_first_that_is_fulfilled_is_the_answer() -> None:
    answer = settled("first", "unable", "fulfilled", "fulfilled")

    assert (answer.agent, answer.result, answer.status) == ("a2", "said 2", "fulfilled")


def test_a_quorum_is_made_of_the_first_that_are_fulfilled() -> None:
    answer = settled("quorum", "fulfilled", "unable", "fulfilled", "fulfilled", n=2)

    assert answer.status == "fulfilled"
    assert answer.result == "1. a1: said 1\n\n2. a3: said 3"


def test_too_small_a_quorum_is_a_part() -> None:
    answer = settled("quorum", "fulfilled", "unable", "unable", n=2)

    assert answer.status == "partial"
    assert answer.reason == "quorum: 1 of 2 are fulfilled; a2: why 2; a3: why 3"
    assert "said 1" in answer.result


def test_too_small_quorum_asks_if_an_agent_asks() -> None:
    answer = settled("quorum", "fulfilled", "needs_input", "unable", n=2)

    assert answer.status == "needs_input"
    assert "said 1" in answer.result
    assert "said 2" in answer.result


def test_the_best_is_the_surest_with_the_shortest_path() -> None:
    answer = settled("best", "fulfilled", "unable", "fulfilled")

    assert (answer.agent, answer.result) == ("a3", "said 3")


@pytest.mark.parametrize("name", ["first", "quorum", "best"])
def test_rules_for_many_answers_hold_if_none_is_fulfilled(name: str) -> None:
    assert settled(name, "unable", "unable", n=1).reason == "no agent can: a1: why 1; a2: why 2"
    assert settled(name, "unable", "partial", n=1).status == "needs_input"


def test_only_joins_that_can_be_decided_early_stop_others() -> None:
    assert [parse_join(name, 2, 3).enough for name in JOIN_NAMES] == [0, 1, 2, 0]


@pytest.mark.parametrize("name", JOIN_NAMES)
def test_a_join_is_stored_and_read_as_it_is(name: str) -> None:
    join = parse_join(name, 2, 3)
    stored = join.stored()

    again = load_join(stored["join"], stored.get("n"))

    assert (type(again), again.name, again.enough) == (type(join), name, join.enough)


@pytest.mark.parametrize("name", JOIN_NAMES)
def test_nothing_that_was_said_or_spent_is_lost(name: str) -> None:
    every = responses("fulfilled", "fulfilled", "unable")

    answer = join_call_responses(REQUEST, parse_join(name, 2, 3), every, every)

    assert answer.request_id == "r"
    assert answer.usage == Usage(model_calls=6)
    assert [each.agent for each in answer.subordinate_responses] == ["a1", "a2", "a3"]
    assert [each.result for each in answer.subordinate_responses] == [each.result for each in every]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("some", None),
        (None, None),
        (["all"], None),
        ("quorum", None),
        ("quorum", 0),
        ("quorum", 4),
        ("quorum", True),
        ("quorum", 1.5),
        ("quorum", "2"),
    ],
)
def test_a_join_that_there_is_not_is_refused(name: Any, count: Any) -> None:
    with raises_code("join") as refused:
        parse_join(name, count, 3)

    assert (refused.value.join, refused.value.count) == (name, count)
    assert refused.value.reason.startswith("join: ")


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["fulfilled", "fulfilled"], "fulfilled"),
        (["fulfilled", "unable"], "partial"),
        (["fulfilled", "needs_input"], "needs_input"),
        (["unable", "unable"], "unable"),
        ([], "unable"),
    ],
)
def test_a_call_ends_as_all_of_its_requests_did_or_in_part(
    statuses: list[str], expected: str
) -> None:
    assert combine_statuses(responses(*statuses)) == expected
