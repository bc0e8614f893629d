"""Decides which of the built-in tools an agent's model is shown: those that its place needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from langchain_core.tools import BaseTool

from echelons.agent import Agent
from echelons.delegation.contract import DelegationTool, get_contract
from echelons.delegation.policy import DelegationPolicy
from echelons.errors import invalid_field
from echelons.models import is_offline_planner
from echelons.nodes.planning.tool_schemas import (
    build_ask_schema,
    build_call_subordinate_schema,
    build_delegate_many_schema,
    build_dismiss_schema,
    build_pin_schema,
    build_recall_schema,
    build_report_schema,
    build_send_message_schema,
    build_spawn_schema,
    build_subordinate_tool,
)
from echelons.tree.members import walk_tree
from echelons.tree.names import (
    ASK,
    CALL_SUBORDINATE,
    DELEGATE_MANY,
    DISMISS_SUBORDINATE,
    MEMORY_TOOLS,
    PIN,
    RECALL,
    REPORT,
    SEND_MESSAGE,
    SHOWN_TOOLS,
    SPAWN_SUBORDINATE,
    get_provider_tool_name,
)
from echelons.tree.permission_rules import get_permissions
from echelons.tree.roster import describe_subordinates

if TYPE_CHECKING:
    from echelons.graphs.level_graph import LevelPosition

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


class AgentPlace(Protocol):
    """What decides which built-in tools an agent is shown, see `LevelPosition`."""

    @property
    def model(self) -> Any:
        """Its model, or the function that chooses it."""
        ...

    @property
    def reports(self) -> bool:
        """Whether it has a superior."""
        ...

    @property
    def policy(self) -> DelegationPolicy:
        """Its delegation policy."""
        ...

    @property
    def upward_tools(self) -> frozenset[str]:
        """Which of `report` and `send_message` its place needs."""
        ...


def list_built_in_tools(
    agent: Agent, position: AgentPlace, own_tools: Collection[str], can_call: bool
) -> tuple[str, ...]:
    """Return the names of the built-in tools that an agent's model is shown, in their order.

    Raises:
        ConfigurationError: The agent names one that its place makes impossible.
    """
    possible = _list_possible(agent, position) if can_call else _list_delegating(agent, None)
    if ASK in own_tools:
        possible = tuple(name for name in possible if name != ASK)
    if agent.builtin_tools is not None:
        for name in agent.builtin_tools:
            if name not in possible:
                listed = ", ".join(possible) or "none"
                raise invalid_field(agent.name, "builtin_tools", name, f"some of: {listed}")
        return tuple(name for name in possible if name in agent.builtin_tools)
    spawn = agent.permissions.spawn
    left_out = {DELEGATE_MANY} if not position.policy.joins else set[str]()
    # What the planner returns has a status, and it is charged for no tokens.
    if not is_offline_planner(position.model):
        left_out |= {REPORT} - position.upward_tools
    left_out |= {SEND_MESSAGE} - (position.upward_tools if position.reports else frozenset())
    is_alone = not (position.reports or agent.subordinates or spawn)
    if is_alone and not agent.permissions.contact_user:
        left_out.add(ASK)
    return tuple(name for name in possible if name not in left_out)


def list_shown_tools(
    agent: Agent, tools: Sequence[BaseTool], position: LevelPosition, built_in: Sequence[str]
) -> list[Any]:
    """Return the tools that an agent's model is shown, in their order."""
    contracts = ((each, get_contract(each)) for each in agent.subordinates)
    typed = [
        build_subordinate_tool(each, contract.input_schema)
        for each, contract in contracts
        if contract and contract.input_schema
    ]
    provided = filter(get_provider_tool_name, agent.tools)
    return [*tools, *provided, *typed, *_build_schemas(agent, position, built_in)]


def _build_schemas(
    agent: Agent, position: LevelPosition, built_in: Sequence[str]
) -> Iterator[dict[str, Any]]:
    below, permissions = agent.subordinates, agent.permissions
    spawn, has_budget = permissions.spawn, position.has_budget
    output = agent.contract.output_schema if agent.contract else None
    builders: dict[str, Callable[[], dict[str, Any]]] = {
        CALL_SUBORDINATE: lambda: _add_roster(
            build_call_subordinate_schema(below, spawn, has_budget=has_budget),
            describe_subordinates(below) if position.guidance == "" else "",
        ),
        DELEGATE_MANY: lambda: build_delegate_many_schema(has_budget=has_budget),
        DISMISS_SUBORDINATE: build_dismiss_schema,
        REPORT: lambda: build_report_schema(output),
        ASK: lambda: build_ask_schema(
            can_ask_user=permissions.contact_user or not position.reports,
            has_superior=position.reports,
        ),
        SEND_MESSAGE: lambda: build_send_message_schema(position.siblings),
        RECALL: build_recall_schema,
        PIN: build_pin_schema,
    }
    if spawn:
        builders[SPAWN_SUBORDINATE] = lambda: build_spawn_schema(
            spawn, permissions.contact_user, has_budget=has_budget
        )
    return (builders[name]() for name in built_in)


def _add_roster(schema: DelegationTool, roster: str) -> DelegationTool:
    """Return the schema with the roster, where no system message has it, if there is room."""
    function = schema["function"]
    description = "\n\n".join(filter(None, (function["description"], roster)))
    if len(description) <= MAX_DESCRIPTION:
        function["description"] = description
    return schema


def _list_possible(agent: Agent, position: AgentPlace) -> tuple[str, ...]:
    impossible = set[str]()
    spawn = agent.permissions.spawn
    impossible |= {*SHOWN_TOOLS[:4]} - {*_list_delegating(agent, spawn)}
    if not position.reports:
        impossible.add(REPORT)
    if not agent.memory:
        impossible |= MEMORY_TOOLS
    return tuple(name for name in SHOWN_TOOLS if name not in impossible)


def _list_delegating(agent: Agent, spawn: object) -> tuple[str, ...]:
    if spawn:
        return (CALL_SUBORDINATE, DELEGATE_MANY, SPAWN_SUBORDINATE, DISMISS_SUBORDINATE)
    return (CALL_SUBORDINATE, DELEGATE_MANY)[: len(agent.subordinates)]
