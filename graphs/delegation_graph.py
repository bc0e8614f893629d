"""The delegation graph of one superior: the entry, a node for each subordinate, and `refuse`.

Processes the queue of requests of one thread. Each node writes its response and returns the
next node in a `Command`; edges between all siblings would cost the square of their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import Runnable
from langgraph.graph import START, StateGraph

from echelons.graphs.edges import DelegationEntry
from echelons.graphs.pregel.direct_entry import DirectGraph
from echelons.graphs.state import DelegationInput, DelegationOutput, DelegationState
from echelons.identity.thread_history import ThreadHistory
from echelons.nodes.base_node import Node
from echelons.nodes.delegating.request_queue import REFUSE, RequestQueue
from echelons.nodes.dispatch import DISPATCH, Dispatch, assign_nodes
from echelons.nodes.refuse import Refuse
from echelons.nodes.subordinate import Subordinate
from echelons.tree.members import Member


def build_delegation_graph(
    members: Mapping[str, Member],
    levels: Mapping[str, Runnable[Any, Any]],
    history: ThreadHistory,
    timeout: float | None,
) -> DirectGraph:
    """Compile the delegation graph over a superior's subordinates, each with `timeout` seconds."""
    queue = RequestQueue(assign_nodes(members), history, timeout)
    # A plain answer counts with the best declared confidence, or fully.
    subordinates = {
        name: Subordinate(name, levels[name], max(member.capabilities.values(), default=1.0), queue)
        for name, member in members.items()
    }
    shared = DISPATCH in queue.nodes.values()
    nodes: dict[str, Node] = {DISPATCH: Dispatch(subordinates)} if shared else dict(subordinates)
    nodes[REFUSE] = Refuse(queue)
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(
        DelegationState, input_schema=DelegationInput, output_schema=DelegationOutput
    )
    for name, node in nodes.items():
        builder.add_node(name, node)
    route = DelegationEntry(queue)
    builder.add_conditional_edges(START, route, list(nodes))
    compiled = builder.compile(name="delegate")
    return DirectGraph(entry=route.choose_first_node, **compiled.__dict__)
