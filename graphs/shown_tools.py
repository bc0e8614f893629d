"""Decides which of the built-in tools an agent's model is shown: those that its place needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool

from echelons.agent import Agent
from echelons.delegation.contract import DelegationTool, get_contract
from echelons.delegation.policy import DelegationPolicy
from echelons.errors import invalid_field
from echelons.features.feature import AgentHooks, BuiltIn, Place
from echelons.nodes.model_call.long_results import LongResults
from echelons.nodes.planning.core_tools import build_subordinate_tool, list_core_tools
from echelons.tree.members import walk_tree
from echelons.tree.names import REPORT, SEND_MESSAGE, SHOWN_TOOLS, get_provider_tool_name
from echelons.tree.permission_rules import get_permissions
from echelons.tree.roster import describe_subordinates

MAX_DESCRIPTION = 1_024
"""Most characters of a tool's description that all providers take."""


def resolve_upward_tools(
    root: Agent, policies: Mapping[str, DelegationPolicy], superior: str = ""
) -> dict[str, frozenset[str]]:
    """Return which of `report` and `send_message` the place of each agent needs.

    A task that names no subordinate goes to the best agent below, and to the next if that reports
    that it is unable: whoever it can reach needs `report`, also for tasks that name it, since tools
    must not change within a conversation. An agent that can have others beside it can tell them.

    Args:
        root: The agent.
        policies: The delegation policies, by agent.
        superior: Name of the agent that has made the root at run time; empty if none has.
    """
    needed: dict[str, frozenset[str]] = {
        root.name: frozenset((REPORT, SEND_MESSAGE) if superior else ())
    }
    reached = {root.name: bool(superior)}
    for member in (place.member for place in walk_tree(root)):
        below, spawn = member.subordinates, get_permissions(member).spawn
        routes = bool(spawn) or len(below) > 1 or any(each.subordinates for each in below)
        routes = routes or reached[member.name]
        agents = [each for each in below if isinstance(each, Agent)]
        tools = {REPORT} if routes else set[str]()
        if below and (len(agents) > 1 or spawn or policies[member.name].progress):
            tools.add(SEND_MESSAGE)
        for each in below:
            reached[each.name] = routes
            needed[each.name] = frozenset(tools | ({REPORT} if get_contract(each) else set()))
    return needed


def list_built_in_tools(
    place: Place, hooks: Sequence[AgentHooks], own_tools: Collection[str], results: LongResults
) -> list[BuiltIn]:
    """Return the built-in tools that an agent may call, in the order in which models read them.

    A tool of its own keeps its name: many have one called `ask`.
    """
    tools = [*list_core_tools(place, results), *(tool for each in hooks for tool in each.tools)]
    tools = [tool for tool in tools if tool.name not in own_tools]
    order = {name: place for place, name in enumerate(SHOWN_TOOLS)}
    return sorted(tools, key=lambda tool: order.get(tool.name, len(order)))


def choose_shown_tools(agent: Agent, tools: Sequence[BuiltIn]) -> list[BuiltIn]:
    """Return those of an agent's built-in tools that its model is shown.

    Raises:
        ConfigurationError: The agent names one that its place makes impossible.
    """
    offered = [tool for tool in tools if tool.is_offered]
    if agent.builtin_tools is None:
        return [tool for tool in offered if tool.is_needed]
    names = [tool.name for tool in offered]
    for name in agent.builtin_tools:
        if name not in names:
            listed = ", ".join(names) or "none"
            raise invalid_field(agent.name, "builtin_tools", name, f"some of: {listed}")
    return [tool for tool in offered if tool.name in agent.builtin_tools]


def list_shown_tools(
    agent: Agent, tools: Sequence[BaseTool], built_in: Sequence[BuiltIn], *, needs_roster: bool
) -> list[Any]:
    """Return the tools that an agent's model is shown, in their order.

    With `needs_roster`, no system message names the subordinates: the schema does, if it has room.
    """
    contracts = ((member, get_contract(member)) for member in agent.subordinates)
    typed = [
        build_subordinate_tool(member, contract.input_schema)
        for member, contract in contracts
        if contract and contract.input_schema
    ]
    provided = filter(get_provider_tool_name, agent.tools)
    schemas = [tool.build_schema() for tool in built_in]
    if needs_roster:
        roster = describe_subordinates(agent.subordinates)
        for schema in schemas:
            if isinstance(schema, DelegationTool):
                _add_roster(schema, roster)
    return [*tools, *provided, *typed, *schemas]


def _add_roster(schema: DelegationTool, roster: str) -> None:
    function = schema["function"]
    description = "\n\n".join(filter(None, (function["description"], roster)))
    if len(description) <= MAX_DESCRIPTION:
        function["description"] = description
