"""Join policies: when several requests of one call are enough, and what they come to. Pure.

``delegation_graph`` asks how many are enough, ``reason`` what the answer is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from echelons.delegation.aggregation import best, name_of, settle, told
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status, Usage
from echelons.errors import InvalidJoin

JOINS = ("all", "first", "quorum", "best")
"""The names of the policies, as a model gives them."""


class Join(ABC):
    """How several requests of one call are joined.

    Attributes:
        name: What a model calls it.
        enough: Fulfilled tasks that stop the others; 0 if every task is waited for.
    """

    name: str
    enough: int = 0

    @abstractmethod
    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return what the answers come to.

        Args:
            request: The call, as a request of its superior to itself.
            answers: One a task, in order; of those that are fulfilled the earlier ones first, if
                they stop the others.
        """

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"join": self.name}


class All(Join):
    """Every request is waited for, and every response counts."""

    name = "all"

    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return all of them under one status; the only one as it is."""
        if len(answers) == 1:
            return answers[0]
        return _side_by_side(request, answers, status_of(answers))


class Quorum(Join):
    """So many fulfilled responses are enough.

    Args:
        count: How many, 1 or more.
    """

    name = "quorum"

    def __init__(self, count: int) -> None:
        self.enough = count

    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return the first so many that are fulfilled; what there is, if there are not enough."""
        fulfilled = _fulfilled(answers)
        if len(fulfilled) >= self.enough:
            return _side_by_side(request, fulfilled[: self.enough], Status.FULFILLED)
        if not fulfilled:
            return settle(request, answers)
        # If somebody asks, an answer may yet make the quorum.
        short = _side_by_side(request, answers, status_of(answers))
        missing = f"quorum: {len(fulfilled)} of {self.enough} are fulfilled"
        return short.model_copy(update={"reason": f"{missing}; {short.reason}"})

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"join": self.name, "n": self.enough}


class First(Join):
    """The first fulfilled response is enough."""

    name = "first"
    enough = 1

    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return that response; what all come to, if none is fulfilled."""
        fulfilled = _fulfilled(answers)
        return fulfilled[0] if fulfilled else settle(request, answers)


class Best(Join):
    """Every request is waited for, and of those that are fulfilled the best one counts."""

    name = "best"

    def settled(
        self, request: DelegationRequest, answers: Sequence[DelegationResponse]
    ) -> DelegationResponse:
        """Return the best, by the conflict rule; what all come to, if none is fulfilled."""
        fulfilled = _fulfilled(answers)
        return best(fulfilled) if fulfilled else settle(request, answers)


def join_of(name: Any, count: Any, requests: int) -> Join:
    """Return the policy that a model asks for.

    Args:
        name: One of ``JOINS``.
        count: How many responses a quorum needs.
        requests: How many requests there are.

    Raises:
        InvalidJoin: There is no such policy, or it can never be met.
    """
    if name == "quorum" and (
        isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= requests
    ):
        raise InvalidJoin(name, count, f"n must be a whole number from 1 to {requests}")
    if not isinstance(name, str) or name not in JOINS:
        raise InvalidJoin(name, count, f"join must be one of {', '.join(JOINS)}")
    return join_called(name, count)


def join_called(name: str, count: int | None = None) -> Join:
    """Return the policy of a name, as it was stored."""
    if name == Quorum.name and count:
        return Quorum(count)
    return {"first": First, "best": Best}.get(name, All)()


def joined(
    request: DelegationRequest,
    join: Join,
    answers: Sequence[DelegationResponse],
    responses: Sequence[DelegationResponse],
) -> DelegationResponse:
    """Return the one response of a call that made several requests.

    Args:
        request: The call, as a request of its superior to itself.
        join: How they are joined.
        answers: One a task, see ``Join.settled``.
        responses: Those of all who were asked, in the order of the requests.
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
    """Return how a call ended whose responses all count: as all did, or in part.

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
