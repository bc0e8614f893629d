"""The delegation graph of one superior: the entry, a node for each subordinate, and `refuse`.

Processes the queue of requests of one thread. Each node writes its response and returns the
next node in a `Command`; edges between all siblings would cost the square of their number.
"""

from __future__ import annotations

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
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import START, StateGraph

from echelons.agent import Agent
from echelons.checkpoints.inherited_config import get_saver, is_resuming
from echelons.checkpoints.queries import OneCheckpoint, ReadPlan, Saver, arun_plan, run_plan
from echelons.checkpoints.threads.pending_work import list_triggered_nodes
from echelons.features.feature import AttemptHooks
from echelons.graphs.edges import DelegationEntry
from echelons.graphs.pregel.direct_entry import DirectGraph
from echelons.graphs.pregel.inline_writes import InlineGraph
from echelons.graphs.queue_channels import WAITING, store_whole
from echelons.graphs.spawned_levels import BuildLevel, SpawnedLevels
from echelons.graphs.state import DelegationInput, DelegationOutput, DelegationState
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY
from echelons.nodes.base_node import Node
from echelons.nodes.delegating.request_queue import DISPATCH, REFUSE, RequestQueue
from echelons.nodes.dispatch import BuildSpawned, Dispatch
from echelons.nodes.refuse import Refuse
from echelons.nodes.subordinate import Subordinate
from echelons.tree.members import Member

if TYPE_CHECKING:
    from echelons.features.middleware.delegation import DelegationCalls

MAX_RESUMED_GRAPHS = 8
"""Number of graphs with nodes of earlier runs that a crowd keeps; the others are made again."""


def build_delegation_graph(
    superior: Agent,
    levels: Mapping[str, Runnable[Any, Any]],
    queue: RequestQueue,
    bind: Callable[[Member], Sequence[AttemptHooks]],
    wraps: DelegationCalls | None = None,
    build_spawned_level: BuildLevel | None = None,
) -> DirectGraph:
    """Compile the delegation graph over a superior's subordinates.

    Args:
        superior: The agent.
        levels: The level of each subordinate, by its name.
        queue: The rules for its requests.
        bind: Returns what features do at the requests to a subordinate.
        wraps: What the superior's middleware does around each request, if it does.
        build_spawned_level: Returns the level of an agent that the superior makes at run time; all
            these share the node `dispatch`. `None` if it may make none.
    """
    members = {each.name: each for each in superior.subordinates}
    subordinates = {
        name: Subordinate(member, levels[name], queue, bind(member), wraps)
        for name, member in members.items()
    }
    route = DelegationEntry(queue)
    build_spawned: BuildSpawned | None = None
    if build_spawned_level:

        def build_subordinate(agent: Agent, level: Runnable[Any, Any], profile: str) -> Subordinate:
            return Subordinate(agent, level, queue, bind(agent), wraps, profile or DISPATCH)

        spawned = SpawnedLevels(superior, build_spawned_level, build_subordinate)
        build_spawned = spawned.get_subordinate

    def compile_nodes(own: Collection[str]) -> dict[str, Any]:
        nodes: dict[str, Node] = {name: subordinates[name] for name in own}
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
    own = [name for name, node in queue.nodes.items() if node == name]
    if len(own) == len(members):
        return DelegationGraph(entry=first, **compile_nodes(own))
    with_nodes = lru_cache(MAX_RESUMED_GRAPHS)(
        lambda own: DelegationGraph(entry=first, **compile_nodes(own))
    )
    return CrowdGraph(entry=first, members=members, with_nodes=with_nodes, **compile_nodes(()))


class DelegationGraph(DirectGraph):
    """A delegation graph, whose runs store their state whole unless they have a queue."""

    @cached_property
    def single_runner(self) -> InlineGraph:
        """The copy that runs one request."""
        return InlineGraph(**store_whole(self.run_fields))

    def _prepare_run(self, given: Any, config: RunnableConfig | None) -> tuple[InlineGraph, Any]:
        # The task of a run has the same input again when it is resumed.
        if type(given) is not dict or WAITING in given:
            return super()._prepare_run(given, config)
        return self.single_runner, self._start(given, config)


class CrowdGraph(DelegationGraph):
    """The delegation graph of subordinates that share a node.

    A run that began when there were fewer waits in the node of a subordinate itself. It is
    resumed by a graph that has this node, too.
    """

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
        own = run_plan(resumed, self._find_own_nodes(config)) if resumed else ()
        if own:
            return self._with_nodes(own).stream(input, config, **kwargs)
        return super().stream(input, config, **kwargs)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Async version of `stream`."""
        resumed = _find_resumed_saver(config)
        own = await arun_plan(resumed, self._find_own_nodes(config)) if resumed else ()
        run = self._with_nodes(own).astream if own else super().astream
        # LangGraph's is a generator, and ends its tasks when it is closed.
        async with aclosing(cast("AsyncGenerator[Any]", run(input, config, **kwargs))) as parts:
            async for part in parts:
                yield part

    def _find_own_nodes(self, config: RunnableConfig | None) -> ReadPlan[tuple[str, ...]]:
        given = (config or {}).get("configurable") or {}
        namespace = str(given.get("checkpoint_ns") or "")
        forked = (given.get(CHECKPOINT_MAP_KEY) or {}).get(namespace)
        saved = yield OneCheckpoint(str(given["thread_id"]), namespace, forked)
        waiting = list_triggered_nodes(saved.checkpoint["channel_values"]) if saved else ()
        return tuple(name for name in dict.fromkeys(waiting) if name in self._members)


def _find_resumed_saver(config: RunnableConfig | None) -> Saver | None:
    given = (config or {}).get("configurable") or {}
    return get_saver(given) if is_resuming(given) else None
