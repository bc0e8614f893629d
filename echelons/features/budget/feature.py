"""`BudgetFeature`: grants for requests, closed with them, and warnings to agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, NamedTuple
from uuid import uuid5

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from pydantic import AfterValidator

from echelons.checkpoints.coordination.grants import CHARGE, GRANT, ROOT_GRANT
from echelons.checkpoints.coordination.task_changes import get_task_changes
from echelons.checkpoints.run_config import get_saver
from echelons.delegation.request import DelegationResponse, store_request_budget
from echelons.errors import InvalidSetting, UnreadableRecord
from echelons.features.budget.guard import TreeBudgets
from echelons.features.feature import (
    AgentHooks,
    AgentStep,
    AttemptHooks,
    AttemptStep,
    Feature,
    GateScope,
    Outcome,
    Place,
    RequestField,
    RequestPlace,
)
from echelons.guards.budget import (
    NO_ALLOWANCE,
    UNITS,
    Allowance,
    Budget,
    GrantRequest,
    Unit,
    get_allowance,
    get_budgets,
    store_amounts,
)
from echelons.guards.gate import StepGuard, get_gate
from echelons.identity.lineage import ECHELONS_NS, derive_message_id, require_identity
from echelons.identity.thread_history import Head
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY, NS_END, NS_SEP, TASK_ID_KEY
from echelons.models.notices import build_aside
from echelons.nodes.attempt import Attempt, AttemptResult
from echelons.nodes.request_queue import NextStep, QueuedRequest
from echelons.plans import Plan, build_step
from echelons.run_context import get_context, with_context
from echelons.tree.names import PATH_SEPARATOR
from echelons.tree.permission_rules import get_permissions

BUDGET_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "tokens": {"type": "integer", "minimum": 1},
        "money": {"type": "string"},
        "calls": {"type": "integer", "minimum": 1},
        "tool_calls": {"type": "integer", "minimum": 1},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
    },
}


class BudgetHooks(AgentHooks):
    """The budget of one agent."""

    def __init__(self, *, has_budget: bool) -> None:
        schema = BUDGET_SCHEMA if has_budget else None
        kind = Annotated[dict[str, Any] | None, AfterValidator(_check_budget)]
        shared = "budget: all requests of a call share one; give it beside them"
        budget = RequestField("budget", kind, store_request_budget, shared, schema)
        self.request_fields = (budget,)
        self.has_notices = has_budget

    def around_step(
        self, step: AgentStep, proceed: Callable[[AgentStep], Plan[Outcome]]
    ) -> Plan[Outcome]:
        """Add the warnings that are due to what the model reads."""
        allowance = get_allowance(step.config)
        if allowance is None or not get_budgets(step.gate).has_warnings(allowance):
            return proceed(step)
        return self._warn(allowance, step, proceed)

    def _warn(
        self,
        allowance: Allowance,
        step: AgentStep,
        proceed: Callable[[AgentStep], Plan[Outcome]],
    ) -> Plan[Outcome]:
        take = partial(get_budgets(step.gate).take_warnings, allowance, step.config)
        due: Iterable[tuple[str, str]] = yield build_step(take, step.gate.arun)
        identity = step.identity
        warnings: list[BaseMessage] = [
            build_aside(
                "budget",
                text,
                derive_message_id(identity.thread_id, f"budget/{identity.turn}/{place}"),
            )
            for place, text in due
        ]
        outcome = yield from proceed(step.add_messages(warnings))
        # They count as delivered, also if the model is not called after all.
        outcome.added[:0] = warnings
        return outcome


def _check_budget(budget: dict[str, Any] | None) -> dict[str, Any] | None:
    if not budget:
        return None
    try:
        if unknown := budget.keys() - set(UNITS):
            raise ValueError(f"there is no unit {min(unknown)!r}, but {', '.join(UNITS)}")
        return store_amounts(Budget(**budget).amounts)
    except InvalidSetting as error:
        raise ValueError(f"{error.setting}: {error.why}") from error


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
        return with_context(config, replace(get_context(config), allowance=self.allowance))

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


class RequestBudget(AttemptHooks):
    """Gives the requests to one subordinate their grants, within the most that it may spend."""

    head_keys = ("grants",)

    def __init__(self, budget: Budget | None) -> None:
        self._budget = budget

    def around_attempt(
        self, step: AttemptStep, proceed: Callable[[AttemptStep], Plan[Attempt]]
    ) -> Plan[Attempt]:
        """Let an attempt claim its grants, and give back what it has not spent."""
        grants = RequestGrants.plan(step.order, self._budget, step.head, step.config)
        if grants is None:
            return (yield from proceed(step))
        config = grants.with_allowance(step.config)
        done = yield from proceed(replace(step, config=config, claims=grants.requests))
        return done._replace(settles=(*done.settles, partial(_settle, grants)))

    def around_level(
        self, step: AttemptStep, proceed: Callable[[AttemptStep], Plan[AttemptResult]]
    ) -> Plan[AttemptResult]:
        """Let the seconds of the grants pass while the agent is at work."""
        timed = list_timed(step.claims)
        if not timed:
            return (yield from proceed(step))
        get_budgets(step.gate).begin_work(timed)
        try:
            return (yield from proceed(step))
        finally:
            get_budgets(step.gate).end_work(timed)


def _settle(
    grants: RequestGrants,
    answer: DelegationResponse,
    step: NextStep,
    state: Mapping[str, Any],
    config: RunnableConfig,
) -> Plan[Mapping[str, Any]]:
    """Give back what an attempt has not spent, unless its agent has asked and is to go on."""
    configurable = config["configurable"]
    if not (step.next_attempt or state["queue"][1:] or state.get("waiting")):
        # The end of a delegation graph is not stored: the answer is, with the task that runs it.
        task = configurable["checkpoint_ns"].split(NS_SEP)[-2].rpartition(NS_END)[2]
        configurable = {**configurable, TASK_ID_KEY: task}
    ended, gate = grants.list_ended(has_next=step.next_attempt is not None), get_gate(config)
    asks, config_of_task = is_asking(answer), {**config, "configurable": configurable}
    end = partial(
        get_budgets(gate).end, () if asks else ended, ended if asks else (), config_of_task
    )
    yield build_step(end, gate.arun)
    return {"grants": grants.store(require_identity(config).turn)} if asks else {}


class BudgetFeature(Feature):
    """The budgets of agents."""

    name: ClassVar[str] = "budget"
    records = (GRANT, CHARGE)

    def bind(self, place: Place) -> AgentHooks:
        """Return the budget of an agent: whether a turn has one is known when it runs."""
        return BudgetHooks(has_budget=place.has_budget)

    def bind_request(self, place: RequestPlace) -> AttemptHooks:
        """Return the grants of requests, as a turn may have a budget that no agent declares."""
        return RequestBudget(get_permissions(place.member).budget)

    def guard(self, run: GateScope) -> StepGuard:
        """Return the budgets of a run."""
        identity, fence = run.identity, run.turn.fence if run.turn else None
        root = PATH_SEPARATOR.join(identity.path)
        budgets = TreeBudgets(run.ledger, run.thread_id, identity.turn, root, fence, run.clock)
        budgets.prices = run.around.prices
        budgets.task_changes = get_task_changes(run.saver)
        budgets.allowance = _find_allowance(budgets, run)
        return budgets


def _find_allowance(budgets: TreeBudgets, run: GateScope) -> Allowance | None:
    """Return what a run may spend: what its turn was given, or what the root allows itself.

    A tree in a tree also spends the budget of that, as far as they have one ledger.
    """
    granted, budget = run.turn.root.allowance if run.turn else None, run.agent.permissions.budget
    if run.allowance:
        granted = run.allowance if get_saver(run.configurable) else None
    if budget is None:
        return granted
    if granted and not run.allowance and ROOT_GRANT in granted.grants.values():
        return replace(granted, estimator=granted.estimator or budget.estimator)
    budgets.root_budget = budget
    return (granted or NO_ALLOWANCE).extend(budgets.root_grant, budget.amounts, budget)


FEATURE = BudgetFeature()
