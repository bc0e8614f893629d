"""A queued request reads back as it was stored; one message reports its outcome."""

from __future__ import annotations

from typing import Any

import pytest

from echelons import DelegationRequest, DelegationResponse, Status
from echelons.delegation.join import aggregate_responses
from echelons.errors import UnreadableRecord
from echelons.nodes.request_queue import QueuedRequest, build_tool_message


def order(current: str = "eat", number: int = 1, continues: bool = False) -> QueuedRequest:
    request = DelegationRequest(id=f"r{number}", origin="head", current=current, task="dinner")
    return QueuedRequest(request, f"call-{number}", "thread", continues)


def response(status: Status = Status.FULFILLED, **more: Any) -> DelegationResponse:
    return DelegationResponse(request_id="r1", agent="eat", status=status, **more)


def test_an_order_reads_back_as_it_was_stored() -> None:
    assert QueuedRequest.load(order(continues=True).stored()) == order(continues=True)


def test_a_damaged_order_is_refused_by_name() -> None:
    with pytest.raises(UnreadableRecord) as refused:
        QueuedRequest.load({**order().stored(), "request": {"model": "DelegationRequest"}})

    assert refused.value.model == "DelegationRequest"


@pytest.mark.parametrize(
    ("answer", "text", "status", "unavailable"),
    [
        (response(result="pizza"), "pizza", "success", False),
        (response(result=""), "", "success", False),
        (response(Status.PARTIAL, result="half"), "[partial]\nhalf", "success", False),
        (response(Status.UNABLE, reason="closed"), "[unable] closed", "error", True),
        (response(Status.UNABLE), "[unable]", "error", True),
        (
            response(Status.NEEDS_INPUT, result="For how many?", reason="no number"),
            "[needs_input] no number\nFor how many?",
            "success",
            False,
        ),
        (
            response(Status.NEEDS_INPUT, result="For how many?", reason="For how many?"),
            "[needs_input] For how many?",
            "success",
            False,
        ),
        (
            aggregate_responses(
                order().request, [response(Status.PARTIAL, result="half", reason="x")]
            ),
            "[needs_input] more information is needed from you: eat did a part only: x\nhalf",
            "success",
            False,
        ),
    ],
)
def test_answer_shows_its_status_unless_plain(
    answer: DelegationResponse, text: str, status: str, unavailable: bool
) -> None:
    message = build_tool_message(order(), answer)

    assert (message.text, message.status) == (text, status)
    assert message.additional_kwargs == ({"unavailable": True} if unavailable else {})


def test_an_answer_names_its_call_and_carries_the_response() -> None:
    message = build_tool_message(order(), response(result="pizza", confidence=0.5))

    assert (message.tool_call_id, message.name) == ("call-1", "call_subordinate")
    assert DelegationResponse.load(message.artifact) == response(result="pizza", confidence=0.5)


def test_one_answer_has_one_id_and_two_have_two() -> None:
    first = build_tool_message(order(number=1), response())

    assert first.id == build_tool_message(order(number=1), response()).id
    assert first.id != build_tool_message(order(number=2), response()).id
