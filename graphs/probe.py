"""`probe_tree`: tries out each agent once, when its tree is compiled, without a model call.

What an agent, its subordinates and their contracts are made of is checked where they are made; here
comes what only shows when it is put together, and would else show in the middle of a run.
"""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from echelons.agent import Agent
from echelons.errors import invalid_tool
from echelons.tree.members import walk_tree
from echelons.tree.names import get_provider_tool_name


def probe_tree(root: Agent) -> dict[int, BaseTool]:
    """Return the tools of all agents that run here, by the ids of what was given.

    Raises:
        ConfigurationError: One cannot be shown to a model: it has arguments without a JSON Schema,
            or no description.
    """
    tools: dict[int, BaseTool] = {}
    for place in walk_tree(root):
        if isinstance(place.member, Agent):
            for each in place.member.tools:
                if id(each) not in tools and not get_provider_tool_name(each):
                    tools[id(each)] = _probe_tool(each, place.path_text)
    return tools


def _probe_tool(given: Any, path: str) -> BaseTool:
    name = getattr(given, "name", None) or getattr(given, "__name__", "")
    try:
        made = given if isinstance(given, BaseTool) else tool(given)
        convert_to_openai_tool(made)
    # It reads the caller's annotations and models.
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        remedy = "give its arguments types that JSON has, or mark those that are injected"
        raise invalid_tool(path, str(name), f"{why}; {remedy}") from error
    return made
