"""Join policies: how many requests of one call must be fulfilled, and how they are joined. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from echelons.delegation.aggregation import (
    Responses,
    choose_best,
    collect_questions,
    collect_user_answers,
    format_responder,
    list_partial_results,
    settle_responses,
    without_results,
)
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage
from echelons.errors import DelegationError

JOIN_NAMES = ("all", "first", "quorum", "best")
"""The names of the policies, as a model writes them."""


class JoinPolicy(ABC):
    """A policy by which the several requests of one call are joined.

    Attributes:
        name: The name that a model uses.
        enough: Number of fulfilled tasks that stops the others; 0 to wait for every task.
    """

    name: str
    enough: int = 0

    @abstractmethod
    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return the responses joined into one.

        Args:
            request: The call, as a request of its superior to itself.
            answers: One response per task, in order; under a policy that stops the others, the
                fulfilled ones in the order of their arrival.
        """

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"join": self.name}


class JoinAll(JoinPolicy):
    """Wait for every request, and join all responses."""

    name = "all"

    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return all responses under one status; a single one as it is."""
        if len(answers) == 1:
            return answers[0]
        return _build_joint_response(request, answers, combine_statuses(answers))


class JoinQuorum(JoinPolicy):
    """Wait for a number of fulfilled responses, 1 or more."""

    name = "quorum"

    def __init__(self, count: int) -> None:
        self.enough = count

    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return the first `count` fulfilled responses; all there are, if those are too few."""
        fulfilled = _select_fulfilled(answers)
        if len(fulfilled) >= self.enough:
            return _build_joint_response(request, fulfilled[: self.enough], Status.FULFILLED)
        if not fulfilled:
            return settle_responses(request, answers)
        # After a question, an answer may still complete the quorum.
        short = _build_joint_response(request, answers, combine_statuses(answers))
        missing = f"quorum: {len(fulfilled)} of {self.enough} are fulfilled"
        return short.model_copy(update={"reason": f"{missing}; {short.reason}"})

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"join": self.name, "n": self.enough}


class JoinFirst(JoinPolicy):
    """Wait for the first fulfilled response."""

    name = "first"
    enough = 1

    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return the first fulfilled response; the aggregate of all, if there is none."""
        fulfilled = _select_fulfilled(answers)
        return fulfilled[0] if fulfilled else settle_responses(request, answers)


class JoinBest(JoinPolicy):
    """Wait for every request, and take the best fulfilled response."""

    name = "best"

    def join_responses(self, request: DelegationRequest, answers: Responses) -> DelegationResponse:
        """Return the response of the highest preference; the aggregate, if none is fulfilled."""
        fulfilled = _select_fulfilled(answers)
        return choose_best(fulfilled) if fulfilled else settle_responses(request, answers)


def parse_join(name: Any, count: Any, requests: int) -> JoinPolicy:
    """Return the policy that a model asks for, given the number of requests.

    `count` is the number of fulfilled responses that a quorum needs.

    Raises:
        DelegationError: There is no such policy, or its quorum cannot be reached.
    """
    if name == "quorum" and (
        isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= requests
    ):
        raise _invalid_join(name, count, f"n must be a whole number from 1 to {requests}")
    if not isinstance(name, str) or name not in JOIN_NAMES:
        raise _invalid_join(name, count, f"join must be one of {', '.join(JOIN_NAMES)}")
    return load_join(name, count)


def load_join(name: str, count: int | None = None) -> JoinPolicy:
    """Return the policy with a stored name and count."""
    if name == JoinQuorum.name and count:
        return JoinQuorum(count)
    return {"first": JoinFirst, "best": JoinBest}.get(name, JoinAll)()


def join_call_responses(
    request: DelegationRequest,
    join: JoinPolicy,
    answers: Responses,
    responses: Responses,
) -> DelegationResponse:
    """Return the response to a call that made several requests, given all `responses`.

    `request` and `answers` are those of `JoinPolicy.join_responses`.
    """
    return join.join_responses(request, answers).model_copy(
        update={
            "request_id": request.id,
            "thread_id": "",
            "usage": sum((each.usage for each in responses), Usage()),
            "subordinate_responses": without_results(responses),
            "user_answers": collect_user_answers(responses),
        }
    )


def combine_statuses(responses: Responses) -> Status:
    """Return the common status of several responses, or that of a mixture; `UNABLE` for none."""
    statuses = {each.status for each in responses}
    if len(statuses) == 1:
        return statuses.pop()
    if Status.NEEDS_INPUT in statuses:
        return Status.NEEDS_INPUT
    return Status.PARTIAL if statuses else Status.UNABLE


def _select_fulfilled(responses: Iterable[DelegationResponse]) -> list[DelegationResponse]:
    return [each for each in responses if each.status is Status.FULFILLED]


def _build_joint_response(
    request: DelegationRequest, answers: Responses, status: Status
) -> DelegationResponse:
    sections, unfulfilled = [], []
    for number, each in enumerate(answers, start=1):
        note = ""
        if each.status is not Status.FULFILLED:
            note = f"[{each.status}] {each.reason}".strip()
            unfulfilled.append(f"{format_responder(each)}: {each.reason or each.status}")
        text = "\n".join(part for part in (note, each.result) if part)
        sections.append(f"{number}. {format_responder(each)}: {text}")
    done = (each for each in answers if each.status in (Status.FULFILLED, Status.PARTIAL))
    return DelegationResponse(
        request_id=request.id,
        agent=request.current,
        status=status,
        result="\n\n".join(sections),
        confidence=min((each.confidence for each in done), default=0.0),
        path=request.path,
        reason="" if status is Status.FULFILLED else "; ".join(unfulfilled),
        partial_results=list_partial_results(answers),
        failed=bool(answers) and all(each.failed for each in answers),
        questions=collect_questions(answers),
    )


def _invalid_join(join: Any, count: Any, why: str) -> DelegationError:
    return DelegationError(
        "{join:short} with n={count:short} is no way to join: {why}",
        code="join",
        join=join,
        count=count,
        why=why,
    )
