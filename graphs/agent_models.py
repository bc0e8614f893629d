"""Resolves the chat model of each agent and monitor: its own, its superior's, or the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel

from echelons.agent import Agent, bind_state
from echelons.delegation.policy import DelegationPolicy
from echelons.errors import InvalidField, ModelCannotCall
from echelons.models import resolve_model
from echelons.monitors.monitor import PlacedMonitor
from echelons.nodes.planning.bound_model import supports_tool_calls
from echelons.tree.names import PATH_SEPARATOR
from echelons.tree.traversal import walk_tree


def resolve_models(root: Agent, inherited: Any = None) -> dict[str, Any]:
    """Return the model of every agent, or the function that chooses it, by the agent's name.

    `inherited` is that of the superior of the root, if it has one.

    All are resolved when the tree is compiled, so that a missing key does not show in the
    middle of a run. A model that several agents name is created once.

    Raises:
        ModelError: A named model is unknown, or lacks a key, its package or what else it needs.
        ModelCannotCall: The model of an agent with tools or subordinates has no tool calls.
    """
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
            above = models[place.path[-2]] if len(place.path) > 1 else inherited
            models[agent.name] = resolve_model(None) if above is None else above
        if (agent.tools or agent.subordinates) and not supports_tool_calls(models[agent.name]):
            raise ModelCannotCall(agent.name, type(models[agent.name]).__name__)
    return models


def place_monitors(
    root: Agent, models: Mapping[str, Any], policies: Mapping[str, DelegationPolicy]
) -> tuple[PlacedMonitor, ...]:
    """Return the monitors of a tree with their models.

    Args:
        root: The root of the tree.
        models: The model of every agent, by its name.
        policies: The delegation policy of every agent.

    Raises:
        InvalidField: A monitor has no model that could judge: it gives none, and its superior has
            the offline planner, or a function that chooses.
        ModelError: A named model is unknown, or lacks a key, its package or what else it needs.
        ModelCannotCall: The model of a monitor has no tool calls.
    """
    if not root.is_monitored:
        return ()
    paths = {place.member.name: place.path_text for place in walk_tree(root)}
    placed: list[PlacedMonitor] = []
    # Those whose model, their own or an inherited one, somebody has given.
    given: set[str] = set()
    for place in walk_tree(root):
        agent = place.member
        if not isinstance(agent, Agent):
            continue
        if agent.model is not None or (len(place.path) > 1 and place.path[-2] in given):
            given.add(agent.name)
        for each in agent.monitors:
            model = each.model
            if model is None and (agent.name not in given or bind_state(models[agent.name])):
                why = "a chat model; the superior has none that could judge"
                raise InvalidField(each.name, "model", None, why)
            if model is None:
                model = models[agent.name]
            elif isinstance(model, str):
                model = resolve_model(model)
            if not supports_tool_calls(model):
                raise ModelCannotCall(each.name, type(model).__name__)
            watched = each.watches.rpartition(PATH_SEPARATOR)[2] or agent.name
            path = PATH_SEPARATOR.join((*place.path, each.name))
            rule = policies[agent.name].on_alert
            placed.append(PlacedMonitor(each, path, place.path_text, paths[watched], model, rule))
    return tuple(placed)
