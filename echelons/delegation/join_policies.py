"""Join policies: how many requests of one call must be fulfilled, and how they are joined. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from echelons.delegation.aggregation import best, name_of, settle, told
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage
from echelons.errors import InvalidJoin

JOINS = ("all", "first", "quorum", "best")
"""The names of the policies, as a model writes them."""


class Join(ABC):
    """A policy by which the several requests of one call are joined.

    Attributes:
        name: The name that a model uses.
        enough: Number of fulfilled tasks that stops the others; 0 to wait for every task.
    """

    name: str
    enough: int = 0

    @abstractmethod
    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return the responses joined into one.

        Args:
            request: The call, as a request of its superior to itself.
            answers: One response per task, in order; under a policy that stops the others, the
                fulfilled ones in the order of their arrival.
        """

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"join": self.name}


class All(Join):
    """Wait for every request, and join all responses."""

    name = "all"

    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return all responses under one status; a single one as it is."""
        if len(answers) == 1:
            return answers[0]
        return _side_by_side(request, answers, status_of(answers))


class Quorum(Join):
    """Wait for a number of fulfilled responses.

    Args:
        count: The number, 1 or more.
    """

    name = "quorum"

    def __init__(self, count: int) -> None:
        self.enough = count

    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return the first `count` fulfilled responses; all there are, if those are too few."""
        fulfilled = _fulfilled(answers)
        if len(fulfilled) >= self.enough:
            return _side_by_side(request, fulfilled[: self.enough], Status.FULFILLED)
        if not fulfilled:
            return settle(request, answers)
        # After a question, an answer may still complete the quorum.
        short = _side_by_side(request, answers, status_of(answers))
        missing = f"quorum: {len(fulfilled)} of {self.enough} are fulfilled"
        return short.model_copy(update={"reason": f"{missing}; {short.reason}"})

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"join": self.name, "n": self.enough}


class First(Join):
    """Wait for the first fulfilled response."""

    name = "first"
    enough = 1

    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return the first fulfilled response; the aggregate of all, if there is none."""
        fulfilled = _fulfilled(answers)
        return fulfilled[0] if fulfilled else settle(request, answers)


class Best(Join):
    """Wait for every request, and take the best fulfilled response."""

    name = "best"

    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return the response of the highest preference; the aggregate, if none is fulfilled."""
        fulfilled = _fulfilled(answers)
        return best(fulfilled) if fulfilled else settle(request, answers)


def join_of(name: Any, count: Any, requests: int) -> Join:
    """Return the policy that a model asks for, validated.

    Args:
        name: One of `JOINS`.
        count: Number of fulfilled responses that a quorum needs.
        requests: Number of requests.

    Raises:
        InvalidJoin: There is no such policy, or its quorum cannot be reached.
    """
    if name == "quorum" and (
        isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= requests
    ):
        raise InvalidJoin(name, count, f"n must be a whole number from 1 to {requests}")
    if not isinstance(name, str) or name not in JOINS:
        raise InvalidJoin(name, count, f"join must be one of {', '.join(JOINS)}")
    return join_called(name, count)


def join_called(name: str, count: int | None = None) -> Join:
    """Return the policy with a stored name and count."""
    if name == Quorum.name and count:
        return Quorum(count)
    return {"first": First, "best": Best}.get(name, All)()


def joined(
    request: DelegationRequest,
    join: Join,
    answers: Sequence[DelegationResponse],
    responses: Sequence[DelegationResponse],
) -> DelegationResponse:
    """Return the response to a call that made several requests.

    Args:
        request: The call, as a request of its superior to itself.
        join: The policy.
        answers: One response per task, see `Join.settled`.
        responses: The responses to all requests, in their order.
    """
    return join.settled(request, answers).model_copy(
        update={
            "request_id": request.id,
            "thread_id": "",
            "usage": sum((each.usage for each in responses), Usage()),
            "subordinate_responses": told(responses),
        }
    )


def status_of(responses: Sequence[DelegationResponse]) -> Status:
    """Return the common status of several responses, or the status of a mixture.

    Examples:
        >>> status_of([])
        <Status.UNABLE: 'unable'>
    """
    statuses = {each.status for each in responses}
    if len(statuses) == 1:
        return statuses.pop()
    if Status.NEEDS_INPUT in statuses:
        return Status.NEEDS_INPUT
    return Status.PARTIAL if statuses else Status.UNABLE


def _fulfilled(responses: Iterable[DelegationResponse]) -> list[DelegationResponse]:
    return [each for each in responses if each.status is Status.FULFILLED]


def _side_by_side(
    request: DelegationRequest, answers: Sequence[DelegationResponse], status: Status
) -> DelegationResponse:
    done = [each for each in answers if each.status in _DONE]
    open_ = [f"{name_of(each)}: {each.reason or each.status}" for each in answers if _is_open(each)]
    return DelegationResponse(
        request_id=request.id,
        agent=request.current,
        status=status,
        result="\n\n".join(f"{n}. {_section(each)}" for n, each in enumerate(answers, start=1)),
        confidence=min((each.confidence for each in done), default=0.0),
        path=request.path,
        reason="" if status is Status.FULFILLED else "; ".join(open_),
        partial_results=tuple(
            each.result for each in answers if each.status is Status.PARTIAL and each.result
        ),
        failed=bool(answers) and all(each.failed for each in answers),
    )


_DONE = (Status.FULFILLED, Status.PARTIAL)


def _is_open(response: DelegationResponse) -> bool:
    return response.status is not Status.FULFILLED


def _section(response: DelegationResponse) -> str:
    note = f"[{response.status}] {response.reason}".strip() if _is_open(response) else ""
    said = "\n".join(part for part in (note, response.result) if part)
    return f"{name_of(response)}: {said}"
