"""The delegation graph of one superior: the entry, a node for each subordinate, and `refuse`.

Processes the queue of requests of one thread. Each node writes its response and returns the
next node in a `Command`; edges between all siblings would cost the square of their number.
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
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import START, StateGraph

from echelons.agent import Agent
from echelons.checkpoints.queries import OneCheckpoint, ReadPlan, Saver, arun_plan, run_plan
from echelons.checkpoints.run_config import get_saver, is_resuming
from echelons.checkpoints.threads.pending_work import list_triggered_nodes
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
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY
from echelons.nodes.base_node import Node
from echelons.nodes.request_queue import DISPATCH, REFUSE, RequestQueue
from echelons.nodes.subordinate import BuildAdded, Dispatch, Refuse, Subordinate
from echelons.tree.members import Member

LOG = logging.getLogger(__name__)

BuildLevel: TypeAlias = Callable[[Agent], Runnable[Any, Any]]
"""Returns the level of an added subordinate."""
MAX_KEPT = 256
"""Number of added subordinates of one superior whose graphs are kept."""


MAX_RESUMED_GRAPHS = 8
"""Number of graphs with nodes of earlier runs that a crowd keeps; the others are made again."""


def build_delegation_graph(
    superior: Agent,
    levels: Mapping[str, Runnable[Any, Any]],
    queue: RequestQueue,
    bind: Callable[[Member], Sequence[AttemptHooks]],
    build_level: BuildLevel,
) -> DirectGraph:
    """Compile the delegation graph over a superior's subordinates."""
    members = {subordinate.name: subordinate for subordinate in superior.subordinates}
    subordinates = {
        name: Subordinate(member, levels[name], queue, bind(member))
        for name, member in members.items()
    }
    route = DelegationEntry(queue)
    build_added: BuildAdded | None = None
    if source := queue.source:

        @lru_cache(MAX_KEPT)
        def build_subordinate(agent: Agent, circuit: str) -> Subordinate:
            return Subordinate(agent, build_level(agent), queue, bind(agent), circuit or DISPATCH)

        def build(facts: Any, config: Mapping[str, Any]) -> Subordinate:
            return build_subordinate(*source.build(facts, config))

        build_added = build

    def compile_nodes(names: Collection[str]) -> dict[str, Any]:
        nodes: dict[str, Node] = {name: subordinates[name] for name in names}
        if build_added or DISPATCH in queue.nodes.values():
            nodes[DISPATCH] = Dispatch(subordinates, build_added)
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
