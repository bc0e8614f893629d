"""Requests wait in a queue; one set of rules decides the next node and what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import time
from typing import Any

import pytest

from echelons import DelegationRequest, DelegationResponse, Status
from echelons.delegation.calls import Candidates
from echelons.identity.lineage import Identity
from echelons.identity.thread_history import Head, Past
from echelons.nodes.request_queue import REFUSE, QueuedRequest, RequestQueue
from echelons.tree.agent_path import AgentPath

CONFIG: Any = {"metadata": Identity("head", ("head",), "root", "t").to_metadata()}


class Kept:
    """A history that is durable or not, and holds nothing."""

    def __init__(self, durable: bool) -> None:
        self._durable = durable

    def is_durable(self, config: Mapping[str, Any]) -> bool:
        return self._durable

    def load_head(self, config: Mapping[str, Any]) -> Head:
        return Head()

    async def aload_head(self, config: Mapping[str, Any]) -> Head:
        return Head()

    def load_past(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        return Past()

    async def aload_past(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        return Past()


def desk(durable: bool = True) -> RequestQueue:
    timeouts = {"eat": 30.0, "sleep": 30.0}
    return RequestQueue({"eat": "eat", "sleep": "dispatch"}, Kept(durable), timeouts)


def order(current: str = "eat", number: int = 1, continues: bool = False) -> QueuedRequest:
    request = DelegationRequest(id=f"r{number}", origin="head", current=current, task="dinner")
    return QueuedRequest(request, f"call-{number}", "thread", continues)


def response(status: Status = Status.FULFILLED, **more: Any) -> DelegationResponse:
    return DelegationResponse(request_id="r1", agent="eat", status=status, **more)


def advanced(*queue: QueuedRequest, head: Head | None = None, **more: Any) -> Any:
    state = {"queue": [each.stored() for each in queue], **more}
    step = desk().decide_next_step(queue[0], response(result="pizza"), CONFIG)
    return desk().advance(state, step, head)


# Who may take it


def test_a_subordinate_may_take_an_order_of_its_own() -> None:
    assert desk().find_refusal(order(), CONFIG) is None
    assert desk().choose_node(order().stored(), CONFIG) == "eat"


def test_many_subordinates_share_a_node() -> None:
    assert desk().choose_node(order("sleep").stored(), CONFIG) == "dispatch"


def test_order_for_missing_agent_is_refused() -> None:
    reason = desk().find_refusal(order("fly"), CONFIG)

    assert reason is not None
    assert reason.startswith("unknown_subordinate")
    assert "'fly'" in reason
    assert desk().choose_node(order("fly").stored(), CONFIG) == REFUSE


@pytest.mark.parametrize(
    ("durable", "continues", "taken"),
    [(True, True, True), (True, False, True), (False, False, True), (False, True, False)],
)
def test_a_conversation_goes_on_only_where_it_was_kept(
    durable: bool, continues: bool, taken: bool
) -> None:
    wanted = order(continues=continues)

    reason = desk(durable).find_refusal(wanted, CONFIG)

    assert (reason is None) is taken
    assert (desk(durable).choose_node(wanted.stored(), CONFIG) == "eat") is taken
    if reason is not None:
        assert reason.startswith("no_checkpointer")
        assert "reset=true" in reason


# What follows


def test_after_the_last_order_a_delegation_ends() -> None:
    command = advanced(order())

    assert command.goto == ()
    assert command.update["queue"] == []
    assert [each.text for each in command.update["messages"]] == ["pizza"]


def test_after_an_order_comes_the_first_that_waits() -> None:
    waiting = [order("sleep", 2).stored(), order("fly", 3).stored()]

    command = advanced(order(), waiting=waiting)

    assert command.goto == "dispatch"
    assert command.update["waiting"] == 1
    [following] = command.update["queue"]
    assert following["request"].pop("deadline") > 0, "its time is told when it begins"
    assert following == waiting[0]


def test_what_an_earlier_version_has_queued_comes_before_what_waits() -> None:
    first, second, third = order(number=1), order("sleep", 2), order("fly", 3)

    update = advanced(first, second, waiting=[third.stored()]).update

    assert [each["call_id"] for each in update["queue"]] == ["call-2"]
    assert "waiting" not in update


def test_after_an_order_comes_the_next_of_its_queue() -> None:
    first, second, third = order(number=1), order("sleep", 2), order("fly", 3)

    assert advanced(first, second, third).goto == "dispatch"
    assert advanced(first, third).goto == REFUSE
    following, last = advanced(first, second, third).update["queue"]
    assert last == third.stored()
    assert following["request"].pop("deadline") > 0, "its time is told when it begins"
    assert following == second.stored()


def test_the_end_of_a_segment_is_kept_for_the_queue_and_for_the_superior() -> None:
    head = Head(agent="eat", checkpoint_ns="ns", checkpoint_id="c")

    update = advanced(order(), head=head).update

    assert update["heads"] == {"thread": head}


@pytest.mark.parametrize("head", [None, Head()])
def test_a_segment_without_an_end_changes_no_head(head: Head | None) -> None:
    assert set(advanced(order(), head=head).update) == {"queue", "messages"}


# The next attempt


def routed(seconds: float | None) -> QueuedRequest:
    """Return an order that may go to one more, with so much time of its own."""
    budget = {} if seconds is None else {"seconds": seconds}
    first = order()
    return replace(
        first,
        request=first.request.model_copy(update={"path": AgentPath("head/eat"), "budget": budget}),
        candidates=Candidates((("sleep",),)),
    )


def test_the_next_attempt_has_what_is_left_of_the_time() -> None:
    before = time()
    step = desk().decide_next_step(routed(10), response(Status.UNABLE), CONFIG, spent=4)

    assert step.next_attempt is not None
    request = step.next_attempt.request
    assert (request.current, request.attempts, request.seconds) == ("sleep", 2, 6)
    assert request.deadline is not None
    assert before + 6 <= request.deadline <= time() + 6


def test_no_other_agent_is_asked_when_time_is_over() -> None:
    step = desk().decide_next_step(
        routed(10), response(Status.UNABLE, reason="late"), CONFIG, spent=10.5
    )

    assert step.next_attempt is None
    assert step.answer is not None
    assert step.answer.reason == "late"


def test_a_request_without_an_end_is_passed_on_however_long_it_took() -> None:
    step = desk().decide_next_step(routed(None), response(Status.UNABLE), CONFIG, spent=10**6)

    assert step.next_attempt is not None
    assert step.next_attempt.request.budget == {}
