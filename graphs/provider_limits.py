"""Checks, when a tree is made, what providers of models would refuse at the first call."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_core.tools import BaseTool

from echelons.agent import Agent
from echelons.delegation.contract import get_inputs
from echelons.errors import InvalidTool
from echelons.models import is_offline_planner
from echelons.prompts import load_tool_texts
from echelons.tree.names import get_provider_tool_name
from echelons.tree.traversal import walk_tree

LOG = logging.getLogger(__name__)
TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that all providers take."""
MAX_DESCRIPTION: Final = 1_024
"""Characters of a tool's description that OpenAI and Azure take."""
MAX_TOOLS: Final = 128
"""Tools of a request that OpenAI and Azure take."""
_STRICT_CLIENTS: Final = frozenset({"ChatOpenAI", "AzureChatOpenAI"})


def check_tool_limits(
    root: Agent, models: Mapping[str, Any], tools: Mapping[int, BaseTool]
) -> None:
    """Check the tools of all agents of a tree by the limits of their models' providers.

    Args:
        root: The root of the tree.
        models: The model of each agent, by its name.
        tools: The tools of all agents, by the ids of what was given.

    Raises:
        InvalidTool: No provider takes the name of a tool, or the provider of an agent's model not
            the description of one, or not so many.
    """
    for place in walk_tree(root):
        agent = place.member
        if not isinstance(agent, Agent):
            continue
        described = [*_iterate_tools(agent, tools)]
        for name, _ in described:
            if not TOOL_NAME.fullmatch(name):
                why = "a name of a tool has letters, digits, '_' and '-', and at most 64; rename it"
                raise InvalidTool(place.path_text, name, why)
        model = models[agent.name]
        if is_offline_planner(model):
            continue
        is_strict = any(each.__name__ in _STRICT_CLIENTS for each in type(model).__mro__)
        for name, why in _iterate_faults(described, len(agent.tools)):
            if is_strict:
                raise InvalidTool(place.path_text, name, why)
            LOG.warning("the tool %r of %s: %s", name, place.path_text, why)


def _iterate_tools(agent: Agent, tools: Mapping[int, BaseTool]) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each tool that an agent's model is shown."""
    for given in agent.tools:
        if not get_provider_tool_name(given):
            made = tools[id(given)]
            yield made.name, made.description
    for each in agent.middleware:
        for own in getattr(each, "tools", ()):
            yield own.name, own.description
    typed = get_inputs({each.name: each for each in agent.subordinates})
    text = load_tool_texts("subordinate")["description"]
    for member in agent.subordinates:
        if member.name in typed:
            yield member.name, f"{member.description}\n{text}"


def _iterate_faults(described: list[tuple[str, str]], count: int) -> Iterator[tuple[str, str]]:
    """Yield the tools that some providers refuse, and why."""
    for name, description in described:
        if len(description) > MAX_DESCRIPTION:
            length = len(description)
            yield (
                name,
                f"its description has {length} characters, and OpenAI takes {MAX_DESCRIPTION}",
            )
    if (number := max(len(described), count)) > MAX_TOOLS:
        last = described[-1][0] if described else ""
        yield last, f"it is one of {number} tools of the agent, and OpenAI takes {MAX_TOOLS}"
