"""The request of a call is the same to whoever sends it and to whoever reads of it later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from echelons.delegation.calls import (
    FanOutCall,
    SubordinateCall,
    build_request,
    iterate_requests,
    load_sent_requests,
    request_as_sent,
    request_diff,
)
from echelons.delegation.join import JoinAll
from echelons.delegation.request import DelegationRequest
from echelons.errors import UnreadableRecord
from echelons.identity.lineage import (
    PARTS_KEY,
    REQUESTS_KEY,
    ROUTES_KEY,
    THREADS_KEY,
    derive_request_id,
)
from echelons.tree.agent_path import AgentPath

ASKED = SubordinateCall("1", "eat", "dinner", reset=False)
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


def test_the_context_of_a_call_is_that_of_its_request() -> None:
    call = replace(ASKED, context={"id": 7, "part of": "mine"})
    made: Any = {"name": "call_subordinate", "args": call.arguments, "id": "1"}
    message = AIMessage("", tool_calls=[made])

    [(read, _)] = iterate_requests(message, message.tool_calls)

    assert read == call
    assert build_request(read, None, message, *HEAD).context == {"id": 7, "part of": "mine"}


def test_most_of_a_request_is_plain_from_its_call() -> None:
    assert build_request(ASKED, None, calling(), *HEAD) == DelegationRequest(
        id=derive_request_id("root", "m", "1"),
        origin="head",
        current="eat",
        task="dinner",
        path=AgentPath("head/eat"),
    )


def test_task_without_name_goes_to_first_on_its_way() -> None:
    message = calling(**{ROUTES_KEY: {"1": {"ahead": [["fun", "eat", "fish"], ["walk"]]}}})
    request = build_request(SubordinateCall("1", "", "dinner", reset=False), None, message, *HEAD)

    assert (request.current, request.route) == ("fun", ("eat", "fish"))


def test_a_part_knows_the_whole() -> None:
    parted = FanOutCall("1", JoinAll(), (SubordinateCall("1/1", "eat", "fish", reset=False),))

    assert build_request(parted.parts[0], parted, calling(), *HEAD).context == {"part of": "dinner"}


@given(limits)
def test_what_is_noted_of_a_request_gives_it_back(more: dict[str, Any]) -> None:
    request = build_request(ASKED, None, calling(), *HEAD, **more)
    note = request_diff(request.stored(), build_request(ASKED, None, calling(), *HEAD))

    assert request_as_sent(ASKED, None, calling(**{REQUESTS_KEY: {"1": note}}), *HEAD) == request


def test_nothing_is_noted_of_a_request_without_limits_of_its_own() -> None:
    request = build_request(ASKED, None, calling(), *HEAD)

    assert request_diff(request.stored(), request) == {}


@pytest.mark.parametrize("note", [5, [1], "x", {"deadline": "soon"}, {"king": 1}, {"path": 5}])
def test_a_note_that_is_damaged_is_named(note: object) -> None:
    with pytest.raises(UnreadableRecord, match="DelegationRequest"):
        request_as_sent(ASKED, None, calling(**{REQUESTS_KEY: {"1": note}}), *HEAD)


def test_only_what_has_a_thread_was_sent() -> None:
    parts = [{**ASKED.arguments, "group": n} for n in (1, 2)]
    kept = {PARTS_KEY: {"1": {"join": "all", "requests": parts}}, THREADS_KEY: {"1/2": "t"}}

    assert [*load_sent_requests(calling(**kept), *HEAD)] == ["1/2"]
    assert load_sent_requests(calling(), *HEAD) == {}
