"""Resolves the chat model of each agent: its own, its superior's, or the default."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel

from echelons.agent import Agent
from echelons.errors import ModelCannotCall
from echelons.models import resolve_model
from echelons.nodes.planning.bound_model import supports_tool_calls
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
