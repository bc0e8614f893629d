"""The queue of a delegation: orders, who may take the first, and the step to the next.

Used by every node of a delegation graph and by its entry, so that a request is admitted by
the same rule wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from echelons.delegation import DelegationRequest, DelegationResponse, Status
from echelons.history import Head, History
from echelons.lineage import message_id
from echelons.names import CALL_SUBORDINATE

REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Order:
    """One request of a delegation's queue, as it is stored.

    Attributes:
        request: What is wanted.
        call_id: The call of the superior's message that it answers.
        thread_id: The subordinate's thread.
        continues: Whether it goes on with a conversation that was there before it.
    """

    request: DelegationRequest
    call_id: str
    thread_id: str
    continues: bool

    def stored(self) -> dict[str, Any]:
        """Return the order as JSON."""
        return {
            "request": self.request.stored(),
            "call_id": self.call_id,
            "thread_id": self.thread_id,
            "continues": self.continues,
        }

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Order:
        """Return the order in ``stored``.

        Raises:
            UnreadableRecord: Its request is damaged.
        """
        request = DelegationRequest.load(stored["request"])
        return cls(request, stored["call_id"], stored["thread_id"], stored["continues"])


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a superior's requests are handed out.

    Attributes:
        nodes: The node that takes the requests for each subordinate, by its name.
        history: Reads the threads.
    """

    nodes: Mapping[str, str]
    history: History

    def refusal(self, order: Order, config: Mapping[str, Any]) -> str | None:
        """Return why nobody may take an order, or ``None`` if its candidate may."""
        name = order.request.current
        if name not in self.nodes:
            return f"unknown_subordinate: nobody here is called {name!r}"
        if order.continues and not self.history.durable(config):
            return "no_checkpointer: nothing was kept of the earlier conversation; use reset=true"
        return None

    def node(self, stored: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Return the node that takes a stored order."""
        order = Order.load(stored)
        return REFUSE if self.refusal(order, config) else self.nodes[order.request.current]

    def advance(
        self,
        state: Mapping[str, Any],
        answer: DelegationResponse,
        head: Head | None,
        config: Mapping[str, Any],
    ) -> Command[Any]:
        """Return the step after a response: its message up, then the next order or the end."""
        order = Order.load(state["queue"][0])
        rest = list(state["queue"][1:])
        update: dict[str, Any] = {"queue": rest, "messages": [tool_message(order, answer)]}
        if head:
            update["head"] = head
            update["heads"] = {order.thread_id: head}
        return Command(update=update, goto=self.node(rest[0], config) if rest else ())


def tool_message(order: Order, answer: DelegationResponse) -> ToolMessage:
    """Return the one message that answers a call, with the response as its artifact."""
    unable = answer.status is Status.UNABLE
    plain = answer.status is Status.FULFILLED
    note = f"[{answer.status}] {answer.reason}".strip()
    content = answer.result if plain else "\n".join(part for part in (note, answer.result) if part)
    return ToolMessage(
        content,
        id=message_id(order.thread_id, f"answer/{order.request.id}"),
        tool_call_id=order.call_id,
        name=CALL_SUBORDINATE,
        artifact=answer.stored(),
        status="error" if unable else "success",
        additional_kwargs={"unavailable": True} if unable else {},
    )
