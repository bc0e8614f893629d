"""Which model each agent of a tree thinks with: its own, its superior's, or the planner."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel

from echelons.agent import Agent
from echelons.errors import ModelCannotCall
from echelons.models import resolve
from echelons.tree.walk import walk


def models_of(root: Agent) -> dict[str, BaseChatModel]:
    """Return the model of every agent by the agent's name.

    All at once, so that a missing key is known when the tree is compiled and not in the
    middle of a run. A model that several agents name is made once.

    Raises:
        ModelKeyMissing: A named model has no key.
        UnknownModel: A model's name is not understood.
        ModelCannotCall: A model without tool calls belongs to an agent that has to make some.
    """
    named: dict[str, BaseChatModel] = {}
    models: dict[str, BaseChatModel] = {}
    for place in walk(root):
        agent = place.member
        if not isinstance(agent, Agent):
            continue
        if isinstance(agent.model, str):
            if agent.model not in named:
                named[agent.model] = resolve(agent.model)
            models[agent.name] = named[agent.model]
        elif agent.model is not None:
            models[agent.name] = agent.model
        else:
            models[agent.name] = models[place.path[-2]] if len(place.path) > 1 else resolve(None)
        if (agent.tools or agent.subordinates) and not can_call(models[agent.name]):
            raise ModelCannotCall(agent.name, type(models[agent.name]).__name__)
    return models


def can_call(model: Any) -> bool:
    """Return whether a model can be shown tools; LangChain's base class only says it can."""
    return getattr(type(model), "bind_tools", None) is not BaseChatModel.bind_tools
