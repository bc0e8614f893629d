"""The delegation graph of one superior: the entry, a node for each subordinate, and `refuse`.

Processes the queue of requests of one thread. Each node writes its response and returns the
next node in a `Command`; edges between all siblings would cost the square of their number.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import START, StateGraph

from echelons.checkpoints.inherited_config import get_saver, is_resuming
from echelons.checkpoints.queries import OneCheckpoint, ReadPlan, Saver, arun_plan, run_plan
from echelons.checkpoints.threads.pending_work import list_triggered_nodes
from echelons.graphs.edges import DelegationEntry
from echelons.graphs.pregel.direct_entry import DirectGraph
from echelons.graphs.state import DelegationInput, DelegationOutput, DelegationState
from echelons.identity.thread_history import ThreadHistory
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY
from echelons.nodes.base_node import Node
from echelons.nodes.delegating.request_approval import RequestApprovals
from echelons.nodes.delegating.request_queue import REFUSE, RequestQueue
from echelons.nodes.dispatch import DISPATCH, Dispatch, assign_nodes
from echelons.nodes.refuse import Refuse
from echelons.nodes.subordinate import Subordinate
from echelons.tree.members import Member

if TYPE_CHECKING:
    from echelons.nodes.middleware.delegation_calls import DelegationCalls

MAX_RESUMED_GRAPHS = 8
"""Number of graphs with nodes of earlier runs that a crowd keeps; the others are made again."""


def build_delegation_graph(
    members: Mapping[str, Member],
    levels: Mapping[str, Runnable[Any, Any]],
    history: ThreadHistory,
    timeouts: Mapping[str, float | None],
    approvals: RequestApprovals,
    wraps: DelegationCalls | None = None,
) -> DirectGraph:
    """Compile the delegation graph over a superior's subordinates.

    Each has its own timeout, and the approval of its requests where a rule holds them; the
    superior's middleware may be around each request.
    """
    queue = RequestQueue(assign_nodes(members), history, timeouts)
    subordinates = {
        name: Subordinate(member, levels[name], queue, approvals, wraps)
        for name, member in members.items()
    }
    route = DelegationEntry(queue)

    def compile_nodes(own: Collection[str]) -> dict[str, Any]:
        nodes: dict[str, Node] = {name: subordinates[name] for name in own}
        if DISPATCH in queue.nodes.values():
            nodes[DISPATCH] = Dispatch(subordinates)
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
        return DirectGraph(entry=first, **compile_nodes(own))
    with_nodes = lru_cache(MAX_RESUMED_GRAPHS)(
        lambda own: DirectGraph(entry=first, **compile_nodes(own))
    )
    return CrowdGraph(entry=first, members=members, with_nodes=with_nodes, **compile_nodes(()))


class CrowdGraph(DirectGraph):
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
