"""`refuse`: answers a request that no subordinate may take, so that no call stays open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from echelons.delegation.request import DelegationResponse, Status
from echelons.nodes.base_node import Node
from echelons.nodes.delegating.queued_request import QueuedRequest
from echelons.nodes.delegating.request_queue import REFUSE, RequestQueue


class Refuse(Node):
    """The node `refuse` of a delegation graph."""

    def __init__(self, queue: RequestQueue) -> None:
        super().__init__(REFUSE)
        self._queue = queue

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Answer the first request of the queue with `unable`."""
        return refuse_first_request(self._queue, input, config or {})

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Async version of `invoke`."""
        return refuse_first_request(self._queue, input, config or {})


def refuse_first_request(
    queue: RequestQueue, state: Mapping[str, Any], config: Mapping[str, Any]
) -> Command[Any]:
    """Return the command that answers the first request of the queue."""
    order = QueuedRequest.load(state["queue"][0])
    answer = DelegationResponse(
        request_id=order.request.id,
        agent=order.request.current,
        status=Status.UNABLE,
        path=order.request.path,
        # The same rule sent the request here, so a reason is found again.
        reason=queue.find_refusal(order, config) or "refused",
        failed=True,
    )
    return queue.advance(
        state, queue.decide_next_step(order, answer, config), order.get_head(state)
    )
