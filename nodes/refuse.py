"""`refuse`: answers a request that no subordinate may take, so that no call stays open."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

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
