"""The conditional edges: after `reason`, and into a delegation graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from langchain_core.runnables import RunnableConfig

from echelons.delegation.policy import Delegating
from echelons.delegation.request_builder import RequestLimits
from echelons.identity.lineage import require_identity
from echelons.nodes.base_node import Shell
from echelons.nodes.delegating.request_queue import Desk
from echelons.nodes.planning.sends import dispatch


class AfterReason(Shell):
    """The edge after `reason`: sends each open call to its node, or ends the segment.

    Args:
        depth: Levels of the tree; a request may pass that many agents, but at least ten.
        rules: The agent's delegation policy.
    """

    def __init__(self, depth: int, rules: Delegating) -> None:
        super().__init__("after_reason")
        self._depth = depth
        self._rules = rules

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the sends, or the name of the next node."""
        config = config or {}
        # Only a call that a person wrote into the state has no limits noted in its message.
        limits = partial(RequestLimits.begin, self._depth, self._rules, config)
        return dispatch(input, require_identity(config), limits)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        return self.invoke(input, config)


class Route(Shell):
    """The entry of a delegation graph: chooses the node for the first queued request."""

    def __init__(self, desk: Desk) -> None:
        super().__init__("route")
        self._desk = desk

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the subordinate's node, or `refuse`."""
        return self.first(input, config or {})

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        return self.first(input, config or {})

    def first(self, state: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Return the node that takes the first request of a queue."""
        return self._desk.node(state["queue"][0], config)
