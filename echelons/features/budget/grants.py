"""`RequestGrants`: what a request may spend, by its budget and its agent's permissions. Pure.

A request has a grant of its own if its superior asks for one, and its agent has one within it if
its permissions cap what it may spend. All candidates of a request share the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import uuid5

from langchain_core.runnables import RunnableConfig

from echelons.delegation.request import DelegationResponse
from echelons.errors import UnreadableRecord
from echelons.guards.budget import (
    NO_ALLOWANCE,
    Allowance,
    Budget,
    GrantRequest,
    Unit,
    get_allowance,
)
from echelons.identity.lineage import ECHELONS_NS, require_identity
from echelons.identity.thread_history import Head
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY
from echelons.nodes.delegating.queued_request import QueuedRequest
from echelons.run_context import get_context, with_context


class RequestGrants(NamedTuple):
    """The grants of an attempt of a request."""

    allowance: Allowance
    # Shared by all candidates; `None` unless the superior asks for one.
    request: GrantRequest | None = None
    # Of this attempt alone; `None` unless the agent's permissions cap it.
    agent: GrantRequest | None = None

    @classmethod
    def plan(
        cls,
        order: QueuedRequest,
        budget: Budget | None,
        head: Head | None,
        config: Mapping[str, Any],
    ) -> RequestGrants | None:
        """Return the grants of an attempt, `None` if it needs none of its own.

        Raises:
            UnreadableRecord: The request's budget, or what its thread knows of it, is damaged.
        """
        request = order.request
        amounts = request.granted if request.budget else {}
        earlier = _read_earlier(head, require_identity(config).turn)
        if not (amounts or budget or earlier):
            return None
        allowance = get_allowance(config) or NO_ALLOWANCE
        after = (config["configurable"].get(CHECKPOINT_MAP_KEY) or {}).get("", "")
        shared = capped = None
        before, units = earlier.get("request", ("", ()))
        if amounts or units:
            part = order.race_entry
            shared = GrantRequest(
                _derive_id(part.race if part else request.id, after),
                _select(allowance, {*amounts, *units}),
                asked=amounts,
                continues="" if part else before,
                fan_out=require_identity(config).superior_thread_id if part else "",
                warn_at=allowance.warn_at,
            )
            allowance = allowance.extend(shared.id, {*amounts, *units})
        before, units = earlier.get("agent", ("", ()))
        if budget:
            capped = GrantRequest(
                _derive_id(f"{request.id}/{request.attempts}", after),
                _select(allowance, budget.amounts),
                cap=budget.amounts,
                continues=before,
                warn_at=budget.warn_at,
            )
            allowance = allowance.extend(capped.id, budget.amounts, budget)
        return cls(allowance, shared, capped)

    @property
    def requests(self) -> tuple[GrantRequest, ...]:
        """The grants, in the order in which they are opened."""
        return tuple(grant for grant in (self.request, self.agent) if grant)

    def with_allowance(self, config: RunnableConfig) -> RunnableConfig:
        """Return the config of the agent with what it may spend."""
        return with_context(config, get_context(config)._replace(allowance=self.allowance))

    def list_ended(self, has_next: bool) -> list[str]:
        """Return the ids of the grants that end with the attempt.

        `has_next` says whether another candidate is asked. A shared grant ends when
        their superior goes on.
        """
        ended = [self.agent.id] if self.agent else []
        if self.request and not (has_next or self.request.fan_out):
            ended.append(self.request.id)
        return ended

    def store(self, turn: str) -> dict[str, Any]:
        """Return what the head of a thread keeps of them, whose agent has asked a question."""
        kept: dict[str, Any] = {"turn": turn}
        for name, grant in (("request", self.request), ("agent", self.agent)):
            if grant and not grant.fan_out:
                units = {*grant.asked, *grant.cap, *grant.above}
                kept[name] = [grant.id, *sorted(units)]
        return kept


def list_timed(requests: Iterable[GrantRequest]) -> tuple[str, ...]:
    """Return the ids of the grants whose seconds pass while the agent is at work."""
    return tuple(
        request.id
        for request in requests
        if "seconds" in request.above or "seconds" in {**request.asked, **request.cap}
    )


def is_asking(answer: DelegationResponse) -> bool:
    """Return whether the agent of a response waits for an answer to go on with its request."""
    return bool(answer.questions)


def _derive_id(what: str, after: str) -> str:
    # A fork of the past has another checkpoint, and so grants of its own.
    return uuid5(ECHELONS_NS, f"grant/{what}/{after}").hex


def _select(allowance: Allowance, units: Iterable[Unit]) -> dict[Unit, str]:
    return {unit: allowance.grants[unit] for unit in units if unit in allowance.grants}


def _read_earlier(head: Head | None, turn: str) -> dict[str, tuple[str, tuple[Unit, ...]]]:
    """Return the id and the units of the grants that an answer to a question goes on with."""
    kept: Any = (head or {}).get("grants")
    if not kept or not isinstance(kept, Mapping) or kept.get("turn") != turn:
        return {}
    grants: dict[str, tuple[str, tuple[Unit, ...]]] = {}
    for name in ("request", "agent"):
        match kept.get(name):
            case None:
                pass
            case [str(id_), *units] if all(isinstance(unit, str) for unit in units):
                grants[name] = id_, tuple(units)
            case _:
                raise UnreadableRecord("grants", f"the head of a thread has {name!r} damaged")
    return grants
