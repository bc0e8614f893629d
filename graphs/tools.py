"""The tools of a tree: each is tried out when the tree is made, and the built-in ones are chosen.

What an agent, its subordinates and their contracts are made of is checked where they are made; here
comes what only shows when it is put together, would else show in the middle of a run, or what a
model's provider would refuse at the first call.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from echelons.agent import Agent
from echelons.delegation.contract import DelegationTool, get_contract, get_inputs
from echelons.delegation.policy import DelegationPolicy
from echelons.errors import invalid_field, invalid_tool
from echelons.features.feature import AgentHooks, BuiltIn, Place, Reach, SubordinateSource
from echelons.models import is_offline_planner
from echelons.nodes.long_results import LongResults
from echelons.nodes.planning.call_arguments import DelegatingTool
from echelons.nodes.planning.core_tools import build_subordinate_tool, list_core_tools
from echelons.prompts import load_tool_texts
from echelons.tree.members import describe_subordinates, walk_tree
from echelons.tree.names import (
    MAX_TOOLS,
    PATH_SEPARATOR,
    SHOWN_TOOLS,
    get_provider_tool_name,
)
from echelons.tree.permission_rules import may_add_subordinates


def probe_tree(root: Agent) -> dict[int, BaseTool]:
    """Return the tools of all agents that run here, by the ids of what was given."""
    tools: dict[int, BaseTool] = {}
    for place in walk_tree(root):
        if isinstance(place.member, Agent):
            for tool_or_function in place.member.tools:
                if id(tool_or_function) not in tools and not get_provider_tool_name(
                    tool_or_function
                ):
                    tools[id(tool_or_function)] = _probe_tool(tool_or_function, place.path_text)
    return tools


def _probe_tool(tool_or_function: Any, path: str) -> BaseTool:
    name = getattr(tool_or_function, "name", None) or getattr(tool_or_function, "__name__", "")
    try:
        made = (
            tool_or_function if isinstance(tool_or_function, BaseTool) else tool(tool_or_function)
        )
        convert_to_openai_tool(made)
    # It reads the caller's annotations and models.
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        remedy = "give its arguments types that JSON has, or mark those that are injected"
        raise invalid_tool(path, str(name), f"{why}; {remedy}") from error
    return made


LOG = logging.getLogger(__name__)
TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that all providers take."""
MAX_DESCRIPTION: Final = 1_024
"""Characters of a tool's description that OpenAI and Azure take."""
_STRICT_CLIENTS: Final = frozenset({"ChatOpenAI", "AzureChatOpenAI"})


class ToolLimits(NamedTuple):
    """The parts of a tree whose tools are checked."""

    models: Mapping[str, Any]
    # By the ids of what the agents have.
    tools: Mapping[int, BaseTool]
    middleware: Mapping[str, Sequence[Any]]
    # Returns what an agent is shown beside tools with these names.
    list_built_in: Callable[[Agent, frozenset[str]], Sequence[str]]
    # The path of the superior of the root.
    above: tuple[str, ...] = ()

    def check(self, root: Agent) -> None:
        """Check the tools of all agents of a tree by the limits of their models' providers."""
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
            provided = sum(
                1 for provided_tool in agent.tools if get_provider_tool_name(provided_tool)
            )
            is_strict = any(base.__name__ in _STRICT_CLIENTS for base in type(model).__mro__)
            for name, why in _iterate_faults(described, provided, built_in):
                if is_strict:
                    raise invalid_tool(path, name, why)
                LOG.warning("the tool %r of %s: %s", name, path, why)


def check_tool_names(root: Agent, tools: Mapping[int, BaseTool]) -> None:
    """Check the names of the tools of a tree whose models are not known yet."""
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
    for declared in agent.tools:
        if not get_provider_tool_name(declared):
            made = tools[id(declared)]
            yield made.name, made.description
    for layer in middleware:
        for layer_tool in getattr(layer, "tools", ()):
            yield layer_tool.name, layer_tool.description
    typed = get_inputs({subordinate.name: subordinate for subordinate in agent.subordinates})
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
        included = f", {len(built_in)} built-in ones included" if built_in else ""
        yield (
            last,
            f"it is one of {number} tools of the agent{included}, and OpenAI takes {MAX_TOOLS}",
        )


def resolve_reach(
    root: Agent, policies: Mapping[str, DelegationPolicy], superior: str = ""
) -> dict[str, Reach]:
    """Return how the place of each agent connects it with others."""
    # A task that names no subordinate goes to the best agent below, and to the next if that reports
    # that it is unable: an agent that it can reach needs `report`, also for tasks that name it,
    # since tools must not change within a conversation. An agent that can have others beside it can
    # tell them.
    reach = {root.name: Reach(bool(superior), bool(superior))}
    routed = {root.name: bool(superior)}
    for member in (place.member for place in walk_tree(root)):
        below, may_add = member.subordinates, may_add_subordinates(member)
        routes = may_add or len(below) > 1 or any(subordinate.subordinates for subordinate in below)
        routes = routes or routed[member.name]
        agents = [subordinate for subordinate in below if isinstance(subordinate, Agent)]
        has_listeners = bool(
            below and (len(agents) > 1 or may_add or policies[member.name].progress)
        )
        for subordinate in below:
            routed[subordinate.name] = routes
            can_report = routes or get_contract(subordinate) is not None
            reach[subordinate.name] = Reach(can_report, has_listeners)
    return reach


def find_source(hooks: Sequence[AgentHooks]) -> SubordinateSource | None:
    """Return what adds subordinates to an agent; `None` for nothing."""
    return next((hook.source for hook in hooks if hook.source), None)


def list_built_in_tools(
    place: Place, hooks: Sequence[AgentHooks], own_tools: Collection[str], results: LongResults
) -> list[BuiltIn]:
    """Return the built-in tools that an agent may call, in the order in which models read them."""
    # A tool of the agent's own keeps its name: many have one called `ask`.
    tools = [
        *list_core_tools(place, results, find_source(hooks)),
        *(tool for hook in hooks for tool in hook.tools),
    ]
    tools = [tool for tool in tools if tool.name not in own_tools]
    fields = [field for hook in hooks for field in hook.request_fields]
    for delegating in tools:
        if isinstance(delegating, DelegatingTool):
            delegating.add_fields(fields)
    order = {name: place for place, name in enumerate(SHOWN_TOOLS)}
    return sorted(tools, key=lambda tool: order.get(tool.name, len(order)))


def choose_shown_tools(agent: Agent, tools: Sequence[BuiltIn]) -> list[BuiltIn]:
    """Return those of an agent's built-in tools that its model is shown."""
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
    """Return the tools that an agent's model is shown, in their order."""
    # With `needs_roster`, no system message names the subordinates: the schema does, if it has
    # room.
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
                function = schema["function"]
                description = "\n\n".join(filter(None, (function["description"], roster)))
                if len(description) <= MAX_DESCRIPTION:
                    function["description"] = description
    return [*tools, *provided, *typed, *schemas]
