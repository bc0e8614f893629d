"""`dispatch`: one node for very many subordinates, each looked up by name when needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig

from echelons.errors import UnreadableRecord
from echelons.nodes.base_node import Node
from echelons.nodes.delegating.queued_request import QueuedRequest
from echelons.nodes.subordinate import Subordinate

DISPATCH = "dispatch"

MAX_NODES = 256
"""Most subordinates with a node each; 2,000 flat nodes tripled the cost of a run."""


def assign_nodes(names: Collection[str]) -> dict[str, str]:
    """Return the name of the node that runs each subordinate, by the subordinate's name."""
    shared = len(names) > MAX_NODES
    return {name: DISPATCH if shared else name for name in names}


class Dispatch(Node):
    """The node `dispatch` of a delegation graph.

    The subordinates' graphs are not listed as its subgraphs: LangGraph would take the first
    for all of them. Studio therefore shows one node; sessions and thread stores, which read
    the checkpoints, show each agent.
    """

    def __init__(self, subordinates: Mapping[str, Subordinate]) -> None:
        super().__init__(DISPATCH)
        self._subordinates = subordinates

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the first request of the queue with the subordinate that it names."""
        return self._find_subordinate(input).invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`."""
        return await self._find_subordinate(input).ainvoke(input, config, **kwargs)

    def _find_subordinate(self, state: Mapping[str, Any]) -> Subordinate:
        name = QueuedRequest.load(state["queue"][0]).request.current
        if name not in self._subordinates:
            raise UnreadableRecord(QueuedRequest.__name__, f"no subordinate is called {name!r}")
        return self._subordinates[name]
