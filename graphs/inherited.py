"""What agents inherit from their superiors: models, policies, guidance, middleware and budgets.

Also checks that what the models use can be known where there is a budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableBinding, RunnableLambda

from echelons.agent import Agent, check_middleware_tools
from echelons.delegation.policy import DEFAULT_POLICY, DelegationPolicy
from echelons.errors import ConfigurationError, InvalidSetting, model_cannot_call
from echelons.guards.budget import Budget
from echelons.guards.prices import Prices
from echelons.models import is_offline_planner, resolve_model
from echelons.models.usage import get_model_name
from echelons.nodes.model_call import supports_tool_calls
from echelons.tree.members import walk_tree
from echelons.tree.permission_rules import get_permissions


def resolve_models(root: Agent, inherited: Any = None) -> dict[str, Any]:
    """Return the model of every agent, or the function that chooses it, by the agent's name."""
    # All are resolved when the tree is compiled, so that a missing key does not show in the middle
    # of a run.
    named: dict[str, BaseChatModel] = {}
    models: dict[str, Any] = {}
    for place in walk_tree(root):
        agent = place.member
        if not isinstance(agent, Agent):
            continue
        if isinstance(agent.model, str):
            if agent.model not in named:
                named[agent.model] = resolve_model(agent.model)
            models[agent.name] = named[agent.model]
        elif agent.model is not None:
            models[agent.name] = agent.model
        else:
            default = models[place.path[-2]] if len(place.path) > 1 else inherited
            models[agent.name] = resolve_model(None) if default is None else default
        if (agent.tools or agent.subordinates) and not supports_tool_calls(models[agent.name]):
            raise model_cannot_call(agent.name, type(models[agent.name]).__name__)
    return models


def resolve_policies(
    root: Agent, inherited: DelegationPolicy = DEFAULT_POLICY
) -> dict[str, DelegationPolicy]:
    """Return the delegation policy of every agent: its own, or its superior's.

    No agent allows more hops than those above it.
    """
    rules: dict[str, DelegationPolicy] = {}
    for place in walk_tree(root):
        if isinstance(place.member, Agent):
            default = rules[place.path[-2]] if len(place.path) > 1 else inherited
            policy = place.member.delegation or default
            limits = [limit for limit in (policy.max_hops, default.max_hops) if limit]
            if limits and policy.max_hops != min(limits):
                policy = policy.model_copy(update={"max_hops": min(limits)})
            rules[place.member.name] = policy
    return rules


def resolve_guidance(
    root: Agent, inherited: str | Mapping[str, str] | None = None
) -> dict[str, str | Mapping[str, str] | None]:
    """Return the guidance of every agent: its own, or its superior's."""
    guidance: dict[str, str | Mapping[str, str] | None] = {}
    for place in walk_tree(root):
        if isinstance(place.member, Agent):
            default = guidance[place.path[-2]] if len(place.path) > 1 else inherited
            text = place.member.guidance
            guidance[place.member.name] = default if text is None else text
    return guidance


def resolve_middleware(root: Agent, inherited: tuple[Any, ...] = ()) -> dict[str, tuple[Any, ...]]:
    """Return the middleware of every agent: what it inherits from its superior, then its own."""
    # Of two with one name, the agent's own takes the place of the inherited one.
    middleware: dict[str, tuple[Any, ...]] = {}
    for place in walk_tree(root):
        if isinstance(place.member, Agent):
            agent = place.member
            default = middleware[place.path[-2]] if len(place.path) > 1 else inherited
            names = {layer.name for layer in agent.middleware}
            kept = default if agent.inherit_middleware else ()
            left = (layer for layer in kept if layer.name not in names)
            middleware[agent.name] = (*left, *agent.middleware)
            check_middleware_tools(agent, middleware[agent.name])
    return middleware


def find_budgeted(root: Agent, inherited: bool = False) -> frozenset[str]:
    """Return the names of the agents that have a budget, or are below one that has."""
    names: set[str] = set()
    for place in walk_tree(root):
        is_below = place.path[-2] in names if len(place.path) > 1 else inherited
        if is_below or get_permissions(place.member).budget:
            names.add(place.member.name)
    return frozenset(names)


def check_budgets(
    root: Agent,
    models: Mapping[str, Any],
    turn_budget: Budget | None = None,
    prices: Prices | None = None,
    needs_prices: bool = False,
) -> None:
    """Check that what the agents of a tree spend can be known, where they have a budget."""
    budgets: dict[str, tuple[Budget, ...]] = {}
    for place in walk_tree(root):
        inherited = (
            budgets[place.path[-2]]
            if len(place.path) > 1
            else ((turn_budget,) if turn_budget else ())
        )
        declared = get_permissions(place.member).budget
        held = budgets[place.member.name] = (*inherited, declared) if declared else inherited
        model = models.get(place.member.name)
        if not held or model is None:
            continue
        limiting = [budget for budget in held if budget.tokens or budget.money]
        bare = _unwrap(model)
        reports_nothing = is_offline_planner(bare) or isinstance(bare, RunnableLambda)
        if limiting and reports_nothing and not any(budget.estimator for budget in held):
            kind = type(bare).__name__
            why = (
                f"the model of {place.path_text!r}, {kind}, reports no tokens; give "
                "Budget(estimator=...), or limit calls or seconds instead"
            )
            raise InvalidSetting("Budget", "tokens", limiting[0].tokens or limiting[0].money, why)
        if priced := [budget for budget in held if budget.money]:
            _check_price(model, priced[0], place.path_text, prices, needs_prices)


def _check_price(
    model: Any, budget: Budget, path: str, prices: Prices | None, needs_prices: bool
) -> None:
    if prices is None and needs_prices:
        why = "nothing says what models cost; give Session(prices=...)"
        raise InvalidSetting("Budget", "money", budget.money, why)
    bare = _unwrap(model)
    if prices is None or not isinstance(bare, BaseChatModel):
        return
    try:
        prices.estimate_cost(get_model_name(bare), 1, 1)
    except ConfigurationError as error:
        raise InvalidSetting("Budget", "money", budget.money, f"of {path!r}: {error}") from error


def _unwrap(model: Any) -> Any:
    while isinstance(model, RunnableBinding):
        model = model.bound
    return model
