"""Checks, when a tree is made, what providers of models would refuse at the first call."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.tools import BaseTool

from echelons.agent import Agent
from echelons.delegation.contract import get_inputs
from echelons.errors import invalid_tool
from echelons.models import is_offline_planner
from echelons.prompts import load_tool_texts
from echelons.tree.members import walk_tree
from echelons.tree.names import MAX_TOOLS, PATH_SEPARATOR, get_provider_tool_name

LOG = logging.getLogger(__name__)
TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that all providers take."""
MAX_DESCRIPTION: Final = 1_024
"""Characters of a tool's description that OpenAI and Azure take."""
_STRICT_CLIENTS: Final = frozenset({"ChatOpenAI", "AzureChatOpenAI"})


class ToolLimits(NamedTuple):
    """What is known of a tree whose tools are checked.

    Attributes:
        models: The model of each agent, by its name.
        tools: The tools of all agents, by the ids of what was given.
        middleware: The middleware of each agent, by its name, what it inherits included.
        list_built_in: Returns the names of the built-in tools that an agent is shown, given the
            names of its others.
        above: The path of the superior of the root.
    """

    models: Mapping[str, Any]
    tools: Mapping[int, BaseTool]
    middleware: Mapping[str, Sequence[Any]]
    list_built_in: Callable[[Agent, frozenset[str]], Sequence[str]]
    above: tuple[str, ...] = ()

    def check(self, root: Agent) -> None:
        """Check the tools of all agents of a tree by the limits of their models' providers.

        Raises:
            ConfigurationError: An agent names a built-in tool that its place makes impossible.
            ConfigurationError: No provider takes the name of a tool, or the provider of an agent's
                model not the description of one, or not so many.
        """
        for place in walk_tree(root):
            agent = place.member
            if not isinstance(agent, Agent):
                continue
            path = PATH_SEPARATOR.join((*self.above, *place.path))
            described = [*_iterate_tools(agent, self.tools, self.middleware[agent.name])]
            _check_names(path, described)
            names = frozenset(name for name, _ in described)
            built_in = self.list_built_in(agent, names)
            model = self.models[agent.name]
            if is_offline_planner(model):
                continue
            provided = sum(1 for each in agent.tools if get_provider_tool_name(each))
            is_strict = any(each.__name__ in _STRICT_CLIENTS for each in type(model).__mro__)
            for name, why in _iterate_faults(described, provided, built_in):
                if is_strict:
                    raise invalid_tool(path, name, why)
                LOG.warning("the tool %r of %s: %s", name, path, why)


def check_tool_names(root: Agent, tools: Mapping[int, BaseTool]) -> None:
    """Check the names of the tools of a tree whose models are not known yet.

    Raises:
        ConfigurationError: No provider takes one.
    """
    for place in walk_tree(root):
        if isinstance(place.member, Agent):
            described = [*_iterate_tools(place.member, tools, place.member.middleware)]
            _check_names(place.path_text, described)


def _check_names(path: str, described: Sequence[tuple[str, str]]) -> None:
    for name, _ in described:
        if not TOOL_NAME.fullmatch(name):
            why = "a name of a tool has letters, digits, '_' and '-', and at most 64; rename it"
            raise invalid_tool(path, name, why)


def _iterate_tools(
    agent: Agent, tools: Mapping[int, BaseTool], middleware: Sequence[Any]
) -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each tool of an agent, but for the built-in ones."""
    for given in agent.tools:
        if not get_provider_tool_name(given):
            made = tools[id(given)]
            yield made.name, made.description
    for each in middleware:
        for own in getattr(each, "tools", ()):
            yield own.name, own.description
    typed = get_inputs({each.name: each for each in agent.subordinates})
    text = load_tool_texts("subordinate")["description"]
    for member in agent.subordinates:
        if member.name in typed:
            yield member.name, f"{member.description}\n{text}"


def _iterate_faults(
    described: Sequence[tuple[str, str]], provided: int, built_in: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the tools that some providers refuse, and why."""
    for name, description in described:
        if len(description) > MAX_DESCRIPTION:
            length = len(description)
            yield (
                name,
                f"its description has {length} characters, and OpenAI takes {MAX_DESCRIPTION}",
            )
    if (number := len(described) + provided + len(built_in)) > MAX_TOOLS:
        last = described[-1][0] if described else ""
        own = f", {len(built_in)} built-in ones included" if built_in else ""
        yield last, f"it is one of {number} tools of the agent{own}, and OpenAI takes {MAX_TOOLS}"
