"""The delegation graph of one superior: the entry, a node for each subordinate, and `refuse`.

Processes the queue of requests of one thread. Each node writes its response and returns the
next node in a `Command`; edges between all siblings would cost the square of their number. The
levels of spawned agents are built from their specifications and what this process declares.
"""

from __future__ import annotations

import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import START, StateGraph

from echelons.agent import Agent
from echelons.checkpoints.queries import OneCheckpoint, ReadPlan, Saver, arun_plan, run_plan
from echelons.checkpoints.run_config import get_saver, is_resuming
from echelons.checkpoints.threads.pending_work import list_triggered_nodes
from echelons.delegation.spawned_agents import AgentSpecification, SpawnableAgent, get_spawnable
from echelons.errors import missing_profile, missing_tool
from echelons.features.feature import AttemptHooks
from echelons.graphs.edges import DelegationEntry
from echelons.graphs.inline_writes import InlineGraph
from echelons.graphs.nested_graphs import DirectGraph
from echelons.graphs.state import (
    WAITING,
    DelegationInput,
    DelegationOutput,
    DelegationState,
    store_whole,
)
from echelons.guards.limits import Limits
from echelons.guards.permissions import (
    ALL_GRANTED,
    NO_PERMISSIONS,
    Grant,
    Permissions,
    Spawn,
)
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY
from echelons.nodes.base_node import Node
from echelons.nodes.request_queue import DISPATCH, REFUSE, RequestQueue
from echelons.nodes.subordinate import BuildSpawned, Dispatch, Refuse, Subordinate
from echelons.run_context import get_context
from echelons.tree.members import Member
from echelons.tree.names import get_shown_tool_name
from echelons.tree.permission_rules import fit_permissions

LOG = logging.getLogger(__name__)

BuildLevel: TypeAlias = Callable[[Agent], Runnable[Any, Any]]
"""Returns the level of an agent that was made at run time."""
MAX_KEPT = 256
"""Number of spawned agents of one superior whose graphs are kept; the others are made again."""


class SpawnedLevels:
    """The spawned subordinates of one agent."""

    def __init__(
        self,
        superior: Agent,
        build_level: BuildLevel,
        build_subordinate: Callable[[Agent, Runnable[Any, Any], str], Subordinate],
    ) -> None:
        self._superior = superior
        self._build_level = build_level
        self._build_subordinate = build_subordinate
        self._build = lru_cache(MAX_KEPT)(self._build_new)

    def get_subordinate(self, spec: AgentSpecification, config: Mapping[str, Any]) -> Subordinate:
        """Return a spawned agent as a subordinate."""
        grant = get_context(config).grant or ALL_GRANTED
        profile = get_spawnable(config).get(spec.profile)
        return self._build(spec, profile, grant)

    def _build_new(
        self, spec: AgentSpecification, profile: SpawnableAgent | None, grant: Grant
    ) -> Subordinate:
        agent = build_spawned_agent(spec, self._superior, profile, grant)
        # An agent that the user has given has no digest.
        if profile and spec.profile_hash not in ("", profile.digest):
            LOG.warning(
                "%s goes on with the profile %r as it is now, which has changed since",
                spec.name,
                spec.profile,
            )
        return self._build_subordinate(agent, self._build_level(agent), spec.profile)


def build_spawned_agent(
    spec: AgentSpecification, superior: Agent, profile: SpawnableAgent | None, grant: Grant
) -> Agent:
    """Return the agent of a specification, with what its superior may use now and no more."""
    allowed = superior.permissions.spawn
    if spec.profile:
        if profile is None:
            raise missing_profile(spec.name, spec.profile)
        base: Agent = profile.member
        tools = list(base.tools)
    else:
        base = Agent(spec.name, spec.role)
        tools_by_name = {get_shown_tool_name(tool): tool for tool in superior.tools}
        if missing := [name for name in spec.tools if name not in tools_by_name]:
            raise missing_tool(spec.name, missing)
        # Those that its superior may not give any more are left out.
        allowed_tools = allowed.tools if allowed else ()
        tools = [tools_by_name[name] for name in spec.tools if name in allowed_tools]
    tools = [tool for tool in tools if grant.allows_tool(get_shown_tool_name(tool))]
    names = {get_shown_tool_name(tool) for tool in tools}
    may_contact = superior.permissions.contact_user
    contact_user = spec.contact_user and may_contact
    spawn = _narrow(spec, allowed, base.permissions.spawn, names)
    below = () if spec.kind == "drone" else base.subordinates
    cut: Agent = replace(
        base,
        name=spec.name,
        description=spec.role,
        tools=tools,
        subordinates=tuple(_narrow_member(member, spawn, may_contact) for member in below),
        permissions=NO_PERMISSIONS,
        limits=Limits(),
        response_format=None,
    )
    rules: Permissions = base.permissions.model_copy(
        update={"contact_user": contact_user, "spawn": spawn}
    )
    return replace(cut, permissions=fit_permissions(cut, rules), response_format=None)


def _narrow(
    spec: AgentSpecification, allowed: Spawn | None, grant_within: Spawn | None, tools: set[str]
) -> Spawn | None:
    """Return what a spawned agent may spawn itself."""
    if allowed is None or spec.kind == "drone" or spec.levels == 0:
        return None
    rules = allowed.narrow(grant_within)
    return rules and rules.model_copy(
        update={
            "levels": min(rules.levels, spec.levels),
            "tools": tuple(name for name in rules.tools if name in tools),
        }
    )


def _narrow_member(member: Member, allowed: Spawn | None, contact_user: bool) -> Member:
    """Return a member below a spawned agent, with no more rights than that has."""
    if not isinstance(member, Agent):
        return member
    below = tuple(
        _narrow_member(subordinate, allowed, contact_user) for subordinate in member.subordinates
    )
    permissions, had = member.permissions, member.permissions.spawn
    spawn = allowed.intersect(had) if allowed and had else None
    may_contact = permissions.contact_user and contact_user
    if (spawn, may_contact) == (had, permissions.contact_user) and below == member.subordinates:
        return member
    narrowed = permissions.model_copy(update={"contact_user": may_contact, "spawn": spawn})
    cut = replace(member, subordinates=below, permissions=NO_PERMISSIONS, response_format=None)
    return replace(cut, permissions=fit_permissions(cut, narrowed), response_format=None)


MAX_RESUMED_GRAPHS = 8
"""Number of graphs with nodes of earlier runs that a crowd keeps; the others are made again."""


def build_delegation_graph(
    superior: Agent,
    levels: Mapping[str, Runnable[Any, Any]],
    queue: RequestQueue,
    bind: Callable[[Member], Sequence[AttemptHooks]],
    build_spawned_level: BuildLevel | None = None,
) -> DirectGraph:
    """Compile the delegation graph over a superior's subordinates."""
    members = {subordinate.name: subordinate for subordinate in superior.subordinates}
    subordinates = {
        name: Subordinate(member, levels[name], queue, bind(member))
        for name, member in members.items()
    }
    route = DelegationEntry(queue)
    build_spawned: BuildSpawned | None = None
    if build_spawned_level:

        def build_subordinate(agent: Agent, level: Runnable[Any, Any], profile: str) -> Subordinate:
            return Subordinate(agent, level, queue, bind(agent), profile or DISPATCH)

        spawned = SpawnedLevels(superior, build_spawned_level, build_subordinate)
        build_spawned = spawned.get_subordinate

    def compile_nodes(names: Collection[str]) -> dict[str, Any]:
        nodes: dict[str, Node] = {name: subordinates[name] for name in names}
        if build_spawned or DISPATCH in queue.nodes.values():
            nodes[DISPATCH] = Dispatch(subordinates, build_spawned)
        nodes[REFUSE] = Refuse(queue)
        builder: StateGraph[Any, Any, Any, Any] = StateGraph(
            DelegationState, input_schema=DelegationInput, output_schema=DelegationOutput
        )
        for name, node in nodes.items():
            builder.add_node(name, node)
        builder.add_conditional_edges(START, route, list(nodes))
        return dict(builder.compile(name="delegate").__dict__)

    first = route.choose_first_node
    names = [name for name, node in queue.nodes.items() if node == name]
    if len(names) == len(members):
        return DelegationGraph(entry=first, **compile_nodes(names))
    with_nodes = lru_cache(MAX_RESUMED_GRAPHS)(
        lambda names: DelegationGraph(entry=first, **compile_nodes(names))
    )
    return CrowdGraph(entry=first, members=members, with_nodes=with_nodes, **compile_nodes(()))


class DelegationGraph(DirectGraph):
    """A delegation graph, whose runs store their state whole unless they have a queue."""

    @cached_property
    def single_runner(self) -> InlineGraph:
        """The copy that runs one request."""
        return InlineGraph(**store_whole(self.run_fields))

    def prepare_run(self, input: Any, config: RunnableConfig | None) -> tuple[InlineGraph, Any]:
        """Return the copy that runs an input, and the input as it takes it."""
        # The task of a run has the same input again when it is resumed.
        if type(input) is not dict or WAITING in input:
            return super().prepare_run(input, config)
        return self.single_runner, self.add_trigger(input, config)


class CrowdGraph(DelegationGraph):
    """The delegation graph of subordinates that share a node."""

    # A run that began when there were fewer waits in the node of a subordinate itself. It is
    # resumed by a graph that has this node, too.

    def __init__(
        self,
        *,
        members: Collection[str],
        with_nodes: Callable[[tuple[str, ...]], DirectGraph],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._members = members
        self._with_nodes = with_nodes

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Run the graph, see `CompiledStateGraph.stream`."""
        resumed = _find_resumed_saver(config)
        node_names = run_plan(resumed, self._find_own_nodes(config)) if resumed else ()
        if node_names:
            return self._with_nodes(node_names).stream(input, config, **kwargs)
        return super().stream(input, config, **kwargs)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Async version of `stream`."""
        resumed = _find_resumed_saver(config)
        node_names = await arun_plan(resumed, self._find_own_nodes(config)) if resumed else ()
        run = self._with_nodes(node_names).astream if node_names else super().astream
        # LangGraph's is a generator, and ends its tasks when it is closed.
        async with aclosing(cast("AsyncGenerator[Any]", run(input, config, **kwargs))) as parts:
            async for part in parts:
                yield part

    def _find_own_nodes(self, config: RunnableConfig | None) -> ReadPlan[tuple[str, ...]]:
        configurable = (config or {}).get("configurable") or {}
        namespace = str(configurable.get("checkpoint_ns") or "")
        forked = (configurable.get(CHECKPOINT_MAP_KEY) or {}).get(namespace)
        saved = yield OneCheckpoint(str(configurable["thread_id"]), namespace, forked)
        waiting = list_triggered_nodes(saved.checkpoint["channel_values"]) if saved else ()
        return tuple(name for name in dict.fromkeys(waiting) if name in self._members)


def _find_resumed_saver(config: RunnableConfig | None) -> Saver | None:
    configurable = (config or {}).get("configurable") or {}
    return get_saver(configurable) if is_resuming(configurable) else None
