"""`PlacedMonitor`: a monitor at its place in a tree, with the model that it judges by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from echelons.agent import Agent, bind_state
from echelons.delegation.policy import DelegationPolicy
from echelons.errors import invalid_field, model_cannot_call
from echelons.features.monitors.settings import Monitor
from echelons.models import resolve_model
from echelons.nodes.model_call.model_input import supports_tool_calls
from echelons.tree.members import walk_tree
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class PlacedMonitor:
    """A monitor at its place in a tree."""

    monitor: Monitor
    path: str
    superior: str
    # It watches this agent and all below it.
    watched: str
    model: Any
    # What its superior does about its alerts, see `DelegationPolicy`.
    on_alert: Any = "tell"


def place_monitors(
    root: Agent, models: Mapping[str, Any], policies: Mapping[str, DelegationPolicy]
) -> tuple[PlacedMonitor, ...]:
    """Return the monitors of a tree with their models.

    Raises:
        ConfigurationError: A monitor has no model that could judge: it gives none, and its superior
            has the offline planner, or a function that chooses.
        ModelError: A named model is unknown, or lacks a key, its package or what else it needs; the
            model of a monitor has no tool calls.
    """
    paths = {place.member.name: place.path_text for place in walk_tree(root)}
    placed: list[PlacedMonitor] = []
    # Those that have a model, their own or an inherited one.
    with_model: set[str] = set()
    for place in walk_tree(root):
        agent = place.member
        if not isinstance(agent, Agent):
            continue
        if agent.model is not None or (len(place.path) > 1 and place.path[-2] in with_model):
            with_model.add(agent.name)
        for monitor in agent.monitors:
            model = monitor.model
            if model is None and (agent.name not in with_model or bind_state(models[agent.name])):
                why = "a chat model; the superior has none that could judge"
                raise invalid_field(monitor.name, "model", None, why)
            if model is None:
                model = models[agent.name]
            elif isinstance(model, str):
                model = resolve_model(model)
            if not supports_tool_calls(model):
                raise model_cannot_call(monitor.name, type(model).__name__)
            watched = monitor.watches.rpartition(PATH_SEPARATOR)[2] or agent.name
            path = PATH_SEPARATOR.join((*place.path, monitor.name))
            rule = policies[agent.name].on_alert
            placed.append(
                PlacedMonitor(monitor, path, place.path_text, paths[watched], model, rule)
            )
    return tuple(placed)
