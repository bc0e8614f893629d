"""Join policies: when several requests of one call are enough, and what they come to. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from echelons.aggregation import best
from echelons.delegation import DelegationResponse, Status
from echelons.errors import InvalidJoin

JOINS = ("all", "first", "quorum", "best")
"""The names of the policies, as a model gives them."""


class Join(ABC):
    """How several requests of one call are joined."""

    name: str

    @abstractmethod
    def is_enough(self, responses: Sequence[DelegationResponse]) -> bool:
        """Return whether those still running may be stopped."""

    @abstractmethod
    def counted(self, responses: Sequence[DelegationResponse]) -> list[DelegationResponse]:
        """Return the responses that the call's answer is made of, in order."""


class All(Join):
    """Every request is waited for, and every response counts."""

    name = "all"

    def is_enough(self, responses: Sequence[DelegationResponse]) -> bool:
        """Return ``False``: each one is wanted."""
        return False

    def counted(self, responses: Sequence[DelegationResponse]) -> list[DelegationResponse]:
        """Return all of them."""
        return list(responses)


class Quorum(Join):
    """So many fulfilled responses are enough.

    Args:
        count: How many, 1 or more.
    """

    name = "quorum"

    def __init__(self, count: int) -> None:
        self.count = count

    def is_enough(self, responses: Sequence[DelegationResponse]) -> bool:
        """Return whether that many are fulfilled."""
        return len(_fulfilled(responses)) >= self.count

    def counted(self, responses: Sequence[DelegationResponse]) -> list[DelegationResponse]:
        """Return the first so many that are fulfilled; all, if there are not enough."""
        fulfilled = _fulfilled(responses)
        return fulfilled[: self.count] if len(fulfilled) >= self.count else list(responses)


class First(Quorum):
    """The first fulfilled response is enough."""

    name = "first"

    def __init__(self) -> None:
        super().__init__(1)


class Best(All):
    """Every request is waited for, and of those that are fulfilled the best one counts."""

    name = "best"

    def counted(self, responses: Sequence[DelegationResponse]) -> list[DelegationResponse]:
        """Return the best, by the conflict rule; all, if none is fulfilled."""
        fulfilled = _fulfilled(responses)
        return [best(fulfilled)] if fulfilled else list(responses)


def join_of(name: Any, count: Any, requests: int) -> Join:
    """Return the policy that a model asks for.

    Args:
        name: One of ``JOINS``.
        count: How many responses a quorum needs.
        requests: How many requests there are.

    Raises:
        InvalidJoin: There is no such policy, or it can never be met.
    """
    if name == "quorum":
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= requests:
            raise InvalidJoin(name, count, f"n must be a whole number from 1 to {requests}")
        return Quorum(count)
    plain: dict[Any, Join] = {"all": All(), "first": First(), "best": Best()}
    if not isinstance(name, str) or name not in plain:
        raise InvalidJoin(name, count, f"join must be one of {', '.join(JOINS)}")
    return plain[name]


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


def _fulfilled(responses: Sequence[DelegationResponse]) -> list[DelegationResponse]:
    return [each for each in responses if each.status is Status.FULFILLED]
