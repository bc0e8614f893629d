"""The delegation graph of one superior: the entry, a node for each subordinate, and `refuse`.

Processes the queue of requests of one thread. Each node writes its response and returns the
next node in a `Command`; edges between all siblings would cost the square of their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import Runnable
from langgraph.graph import START, StateGraph

from echelons.graphs.edges import Route
from echelons.graphs.pregel.direct_entry import Direct
from echelons.graphs.state import Delegation, Sent, Settled
from echelons.identity.thread_history import History
from echelons.nodes.base_node import Shell
from echelons.nodes.delegating.request_queue import REFUSE, Desk
from echelons.nodes.dispatch import DISPATCH, Dispatch, nodes_of
from echelons.nodes.refuse import Refuse
from echelons.nodes.subordinate import Subordinate
from echelons.tree.members import Member


def delegation_graph(
    members: Mapping[str, Member],
    levels: Mapping[str, Runnable[Any, Any]],
    history: History,
    timeout: float | None,
) -> Direct:
    """Compile the delegation graph over a superior's subordinates.

    Args:
        members: The subordinates by name.
        levels: The level graph of each, by name.
        history: Reads their threads.
        timeout: Seconds for each subordinate; `None` for no limit.
    """
    desk = Desk(nodes_of(members), history, timeout)
    # A plain answer counts with the best declared confidence, or fully.
    seats = {
        name: Subordinate(name, levels[name], max(member.capabilities.values(), default=1.0), desk)
        for name, member in members.items()
    }
    shared = DISPATCH in desk.nodes.values()
    nodes: dict[str, Shell] = {DISPATCH: Dispatch(seats)} if shared else dict(seats)
    nodes[REFUSE] = Refuse(desk)
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(
        Delegation, input_schema=Sent, output_schema=Settled
    )
    for name, node in nodes.items():
        builder.add_node(name, node)
    route = Route(desk)
    builder.add_conditional_edges(START, route, list(nodes))
    compiled = builder.compile(name="delegate")
    return Direct(entry=route.first, **compiled.__dict__)
