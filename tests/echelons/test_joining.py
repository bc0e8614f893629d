"""How several requests of one call are joined."""

from __future__ import annotations

from typing import Any

import pytest

from echelons.delegation import DelegationResponse, Status
from echelons.errors import InvalidJoin
from echelons.joining import JOINS, join_of, status_of


def responses(*statuses: str) -> list[DelegationResponse]:
    return [
        DelegationResponse(
            request_id=str(number),
            agent=f"a{number}",
            status=Status(status),
            confidence=number / 10,
            path=("head", f"a{number}"),
        )
        for number, status in enumerate(statuses, start=1)
    ]


def agents(found: list[DelegationResponse]) -> list[str]:
    return [each.agent for each in found]


def test_all_waits_for_all_and_counts_all() -> None:
    join = join_of("all", None, 2)

    assert not join.is_enough(responses("fulfilled", "fulfilled"))
    assert agents(join.counted(responses("fulfilled", "unable"))) == ["a1", "a2"]


def test_the_first_that_is_fulfilled_is_enough() -> None:
    join = join_of("first", None, 3)

    assert not join.is_enough(responses("unable", "partial"))
    assert join.is_enough(responses("unable", "fulfilled"))
    assert agents(join.counted(responses("unable", "fulfilled", "fulfilled"))) == ["a2"]


def test_a_quorum_is_enough() -> None:
    join = join_of("quorum", 2, 3)

    assert not join.is_enough(responses("fulfilled", "unable"))
    assert join.is_enough(responses("fulfilled", "unable", "fulfilled"))
    assert agents(join.counted(responses("fulfilled", "unable", "fulfilled"))) == ["a1", "a3"]


def test_the_best_waits_for_all_and_counts_one() -> None:
    join = join_of("best", None, 3)

    assert not join.is_enough(responses("fulfilled", "fulfilled"))
    assert agents(join.counted(responses("fulfilled", "unable", "fulfilled"))) == ["a3"]


@pytest.mark.parametrize("name", JOINS)
def test_where_too_few_are_fulfilled_every_response_counts(name: str) -> None:
    join = join_of(name, 2, 2)

    assert agents(join.counted(responses("unable", "partial"))) == ["a1", "a2"]


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
    with pytest.raises(InvalidJoin) as refused:
        join_of(name, count, 3)

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
    assert status_of(responses(*statuses)) == expected
