"""`BudgetFeature`: the grants of requests to subordinates, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from langchain_core.runnables import RunnableConfig

from echelons.checkpoints.coordination.task_changes import get_task_changes
from echelons.checkpoints.inherited_config import get_saver
from echelons.checkpoints.tree_control.budget_records import CHARGE, GRANT
from echelons.checkpoints.tree_control.turn_grants import ROOT_GRANT
from echelons.delegation.request import DelegationResponse
from echelons.features.budget.grants import RequestGrants, is_asking, list_timed
from echelons.features.budget.guard import TreeBudgets
from echelons.features.budget.hooks import BudgetHooks
from echelons.features.feature import (
    AgentHooks,
    AttemptHooks,
    AttemptStep,
    Feature,
    GateScope,
    Place,
    RequestPlace,
)
from echelons.guards.budget import NO_ALLOWANCE, Allowance, Budget, get_budgets
from echelons.guards.gate import StepGuard, get_gate
from echelons.identity.lineage import require_identity
from echelons.langgraph_internals import NS_END, NS_SEP, TASK_ID_KEY
from echelons.nodes.delegating.attempt import Attempt, AttemptResult
from echelons.nodes.delegating.request_queue import NextStep
from echelons.plans import Plan, build_step
from echelons.tree.names import PATH_SEPARATOR
from echelons.tree.permission_rules import get_permissions


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
    if granted and ROOT_GRANT in granted.grants.values():
        return replace(granted, estimator=granted.estimator or budget.estimator)
    budgets.root_budget = budget
    return (granted or NO_ALLOWANCE).extend(budgets.root_grant, budget.amounts, budget)


FEATURE = BudgetFeature()
