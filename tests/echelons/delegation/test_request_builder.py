"""The request of a call is the same to whoever sends it and to whoever reads of it later."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from echelons.delegation.calls import Delegation, Parted
from echelons.delegation.join_policies import All
from echelons.delegation.request import DelegationRequest
from echelons.delegation.request_builder import all_sent, noted, plain, sent
from echelons.errors import UnreadableRecord
from echelons.identity.lineage import PARTS_KEY, REQUESTS_KEY, ROUTES_KEY, THREADS_KEY, request_id

ASKED = Delegation("1", "eat", "dinner", reset=False)
HEAD = ("head", "root")
limits = st.fixed_dictionaries(
    {
        "max_hops": st.integers(1, 32),
        "budget": st.one_of(st.just({}), st.builds(dict, seconds=st.floats(0, 1e6))),
        "deadline": st.one_of(st.none(), st.floats(0, 1e10)),
    }
)


def calling(**kept: Any) -> AIMessage:
    call: Any = {"name": "call_subordinate", "args": ASKED.arguments, "id": "1"}
    return AIMessage("", id="m", tool_calls=[call], response_metadata=kept)


def test_most_of_a_request_is_plain_from_its_call() -> None:
    assert plain(ASKED, None, calling(), *HEAD) == DelegationRequest(
        id=request_id("root", "m", "1"),
        origin="head",
        current="eat",
        task="dinner",
        path=("head", "eat"),
    )


def test_a_task_that_names_nobody_goes_to_the_first_on_its_way() -> None:
    message = calling(**{ROUTES_KEY: {"1": {"ahead": [["fun", "eat", "fish"], ["walk"]]}}})
    request = plain(Delegation("1", "", "dinner", reset=False), None, message, *HEAD)

    assert (request.current, request.route) == ("fun", ("eat", "fish"))


def test_a_part_knows_the_whole() -> None:
    parted = Parted("1", All(), (Delegation("1/1", "eat", "fish", reset=False),))

    assert plain(parted.parts[0], parted, calling(), *HEAD).context == {"part of": "dinner"}


@given(limits)
def test_what_is_noted_of_a_request_gives_it_back(more: dict[str, Any]) -> None:
    request = plain(ASKED, None, calling(), *HEAD, **more)
    note = noted(request.stored(), plain(ASKED, None, calling(), *HEAD))

    assert sent(ASKED, None, calling(**{REQUESTS_KEY: {"1": note}}), *HEAD) == request


def test_nothing_is_noted_of_a_request_without_limits_of_its_own() -> None:
    request = plain(ASKED, None, calling(), *HEAD)

    assert noted(request.stored(), request) == {}


@pytest.mark.parametrize("note", [5, [1], "x", {"deadline": "soon"}, {"king": 1}, {"path": 5}])
def test_a_note_that_is_damaged_is_named(note: object) -> None:
    with pytest.raises(UnreadableRecord, match="DelegationRequest"):
        sent(ASKED, None, calling(**{REQUESTS_KEY: {"1": note}}), *HEAD)


def test_only_what_has_a_thread_was_sent() -> None:
    parts = [{**ASKED.arguments, "group": n} for n in (1, 2)]
    kept = {PARTS_KEY: {"1": {"join": "all", "requests": parts}}, THREADS_KEY: {"1/2": "t"}}

    assert [*all_sent(calling(**kept), *HEAD)] == ["1/2"]
    assert all_sent(calling(), *HEAD) == {}
