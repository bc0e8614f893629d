"""The conditional edges: after `reason`, and into a delegation graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig

from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request_builder import RequestLimits
from echelons.identity.lineage import require_identity
from echelons.nodes.base_node import Node
from echelons.nodes.delegating.request_queue import RequestQueue
from echelons.nodes.planning.sends import build_sends


class AfterReason(Node):
    """The edge after `reason`: sends each open call to its node, or ends the segment.

    Args:
        depth: Levels of the tree; a request may pass that many agents, but at least ten.
        policy: The agent's delegation policy.
    """

    def __init__(self, depth: int, policy: DelegationPolicy) -> None:
        super().__init__("after_reason")
        self._depth = depth
        self._policy = policy

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the sends, or the name of the next node."""
        config = config or {}
        # Only a call that a person wrote into the state has no limits noted in its message.
        limits = partial(RequestLimits.begin, self._depth, self._policy, config)
        return build_sends(input, require_identity(config), limits)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        return self.invoke(input, config)


class DelegationEntry(Node):
    """The entry of a delegation graph: chooses the node for the first queued request."""

    def __init__(self, queue: RequestQueue) -> None:
        super().__init__("route")
        self._queue = queue

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the subordinate's node, or `refuse`."""
        return self.choose_first_node(input, config or {})

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        return self.choose_first_node(input, config or {})

    def choose_first_node(self, state: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Return the node that takes the first request of a queue."""
        return self._queue.choose_node(state["queue"][0], config)
