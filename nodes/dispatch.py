"""Nodes of a delegation graph beside its subordinates: `dispatch` and `refuse`.

`dispatch` is one node for many subordinates, each looked up by name when needed; `refuse` answers a
request that no subordinate may take, so that no call stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig

from echelons.delegation.request import DelegationResponse, Status
from echelons.delegation.spawned_agents import AgentSpecification
from echelons.errors import UnreadableRecord
from echelons.nodes.base_node import Node
from echelons.nodes.delegating.queued_request import QueuedRequest
from echelons.nodes.delegating.request_queue import DISPATCH, REFUSE, RequestQueue
from echelons.nodes.subordinate import Subordinate


class Refuse(Node):
    """The node `refuse` of a delegation graph."""

    def __init__(self, queue: RequestQueue) -> None:
        super().__init__(REFUSE)
        self._queue = queue

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Answer the first request of the queue with `unable`."""
        config = config or {}
        order = QueuedRequest.load(input["queue"][0])
        answer = DelegationResponse(
            request_id=order.request.id,
            agent=order.request.current,
            status=Status.UNABLE,
            path=order.request.path,
            # The same rule sent the request here, so a reason is found again.
            reason=self._queue.find_refusal(order, config) or "refused",
            failed=True,
        )
        step = self._queue.decide_next_step(order, answer, config)
        step = step._replace(refused=not order.earlier_responses)
        return self._queue.advance(input, step, order.get_head(input))


MAX_NODES = 256
"""Most subordinates with a node each; 2,000 flat nodes tripled the cost of a run."""

BuildSpawned: TypeAlias = Callable[[AgentSpecification, Mapping[str, Any]], Subordinate]
"""Returns a spawned agent as a subordinate, from its specification and the config of the node."""


def assign_nodes(names: Collection[str]) -> dict[str, str]:
    """Return the name of the node that runs each subordinate, by the subordinate's name."""
    shared = len(names) > MAX_NODES
    return {name: DISPATCH if shared else name for name in names}


class Dispatch(Node):
    """The node `dispatch` of a delegation graph: for very many subordinates, and for spawned ones.

    The subordinates' graphs are not listed as its subgraphs: LangGraph would take the first
    for all of them. Studio therefore shows one node; sessions and thread stores, which read
    the checkpoints, show each agent.
    """

    def __init__(
        self,
        subordinates: Mapping[str, Subordinate],
        build_spawned: BuildSpawned | None = None,
    ) -> None:
        super().__init__(DISPATCH)
        self._subordinates = subordinates
        self._build_spawned = build_spawned

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the first request of the queue with the subordinate that it names."""
        return self._find_subordinate(input, config).invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        return await self._find_subordinate(input, config).ainvoke(input, config, **kwargs)

    def _find_subordinate(
        self, state: Mapping[str, Any], config: RunnableConfig | None
    ) -> Subordinate:
        order = QueuedRequest.load(state["queue"][0])
        name = order.request.current
        if name in self._subordinates:
            return self._subordinates[name]
        if self._build_spawned is None or name not in order.spawned:
            raise UnreadableRecord(QueuedRequest.__name__, f"no subordinate is called {name!r}")
        spec = AgentSpecification.load(order.spawned[name])
        return self._build_spawned(spec, {**(config or {})})
