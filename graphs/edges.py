"""The conditional edges: where a level goes after thinking, where a delegation begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Send

from echelons.delegation.policy import Delegating
from echelons.delegation.request import MAX_HOPS
from echelons.guards.deadlines import due
from echelons.identity.lineage import Identity, require_identity
from echelons.nodes.base_node import Shell
from echelons.nodes.delegating.request_queue import Desk
from echelons.nodes.planning.sends import Allowed, dispatch


class AfterReason(Shell):
    """Sends each open call to who does it, or ends the segment.

    Args:
        depth: Levels of the tree; a request may pass that many agents, or ten.
        rules: How the agent delegates.
    """

    def __init__(self, depth: int, rules: Delegating) -> None:
        super().__init__("after_reason")
        self._max_hops = max(MAX_HOPS, depth)
        self._rules = rules

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the sends, or the node to go to."""
        return self.foreseen(input, require_identity(config or {}), config or {})

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the sends, or the node to go to."""
        return self.foreseen(input, require_identity(config or {}), config or {})

    def foreseen(
        self, update: Mapping[str, Any], identity: Identity, config: Mapping[str, Any]
    ) -> list[Send] | str:
        """Return the same before the update of a whole reply is a part of the state.

        What came before the reply has no say in it, and the heads of its threads are with it.
        """
        return dispatch(update, identity, self._allowed(config))

    def _allowed(self, config: Mapping[str, Any]) -> Allowed:
        seconds = self._rules.request_timeout
        return Allowed(self._max_hops, seconds, due(config, (self._rules.timeout, seconds)))


class Route(Shell):
    """Chooses the node for the first order of a delegation."""

    def __init__(self, desk: Desk) -> None:
        super().__init__("route")
        self._desk = desk

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the candidate's node, or ``refuse``."""
        return self.first(input, config or {})

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the candidate's node, or ``refuse``."""
        return self.first(input, config or {})

    def first(self, state: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Return the node that takes the first order of a queue."""
        return self._desk.node(state["queue"][0], config)
