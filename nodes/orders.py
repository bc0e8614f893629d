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

from echelons.aggregation import aggregate
from echelons.delegating import TIMEOUT
from echelons.delegation import DelegationRequest, DelegationResponse, Status
from echelons.errors import DelegationCycle, DelegationError, TooManyHops
from echelons.history import Head, History
from echelons.lineage import message_id, subordinate_thread_id
from echelons.names import CALL_SUBORDINATE
from echelons.nodes.identity import identity_of

REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Order:
    """One request of a delegation's queue, as it is stored.

    Attributes:
        request: What is wanted, and of whom this time.
        call_id: The call of the superior's message that it answers.
        thread_id: The subordinate's thread.
        continues: Whether it goes on with a conversation that was there before it.
        message_id: The superior's message; further attempts have their threads from it.
        ahead: Ways that are still to be tried, the best first: names from a subordinate down.
        tried: What came of those that were.
        reset: Whether a request that is passed on begins conversations anew on its way.
    """

    request: DelegationRequest
    call_id: str
    thread_id: str
    continues: bool
    message_id: str = ""
    ahead: tuple[tuple[str, ...], ...] = ()
    tried: tuple[DelegationResponse, ...] = ()
    reset: bool = False

    def stored(self) -> dict[str, Any]:
        """Return the order as JSON."""
        kept: dict[str, Any] = {
            "request": self.request.stored(),
            "call_id": self.call_id,
            "thread_id": self.thread_id,
            "continues": self.continues,
        }
        if self.ahead or self.tried or self.request.route:
            kept |= {
                "message_id": self.message_id,
                "ahead": [list(way) for way in self.ahead],
                "tried": [each.stored() for each in self.tried],
                "reset": self.reset,
            }
        return kept

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Order:
        """Return the order in ``stored``.

        Raises:
            UnreadableRecord: Its request is damaged.
        """
        request = DelegationRequest.load(stored["request"])
        return cls(
            request,
            stored["call_id"],
            stored["thread_id"],
            stored["continues"],
            stored.get("message_id", ""),
            tuple(tuple(way) for way in stored.get("ahead", ())),
            tuple(DelegationResponse.load(each) for each in stored.get("tried", ())),
            stored.get("reset", False),
        )

    @property
    def responses(self) -> int:
        """How many ways there were."""
        return len(self.tried) + 1 + len(self.ahead)

    def end(self, state: Mapping[str, Any]) -> Head | None:
        """Return where its thread ended, as far as the delegation's state knows."""
        known: Mapping[str, Head] = state.get("heads") or {}
        if self.thread_id in known:
            return known[self.thread_id]
        return None if self.tried else state.get("head")

    def following(self, answer: DelegationResponse, superior: str) -> Order | None:
        """Return the next attempt, or ``None`` if the answer will do or nobody is left.

        Args:
            answer: What came of this one.
            superior: Thread of the agent that asks.
        """
        if not self.ahead or answer.status not in (Status.UNABLE, Status.PARTIAL):
            return None
        (current, *route), *ahead = self.ahead
        attempt = self.request.attempts + 1
        request = self.request.model_copy(
            update={
                "current": current,
                "route": tuple(route),
                "path": (*self.request.path[:-1], current),
                "attempts": attempt,
            }
        )
        return Order(
            request,
            self.call_id,
            subordinate_thread_id(superior, self.message_id, self.call_id, attempt),
            continues=False,
            message_id=self.message_id,
            ahead=tuple(ahead),
            tried=(*self.tried, self._kept(answer)),
            reset=self.reset,
        )

    def settled(self, answer: DelegationResponse) -> DelegationResponse:
        """Return what all attempts together come to."""
        if not self.tried:
            return answer
        asked = self.request.model_copy(update={"current": self.request.origin})
        return aggregate(asked, [*self.tried, self._kept(answer)])

    def _kept(self, answer: DelegationResponse) -> DelegationResponse:
        return answer.model_copy(update={"thread_id": self.thread_id})


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a superior's requests are handed out.

    Attributes:
        nodes: The node that takes the requests for each subordinate, by its name.
        history: Reads the threads.
        timeout: Seconds that a subordinate has; ``None`` for no end.
    """

    nodes: Mapping[str, str]
    history: History
    timeout: float | None = TIMEOUT

    def refusal(self, order: Order, config: Mapping[str, Any]) -> str | None:
        """Return why nobody may take an order, or ``None`` if its candidate may."""
        name = order.request.current
        if name not in self.nodes:
            return f"unknown_subordinate: nobody here is called {name!r}"
        if order.continues and not self.history.durable(config):
            return "no_checkpointer: nothing was kept of the earlier conversation; use reset=true"
        try:
            check(order.request)
        except DelegationError as error:
            return error.reason
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
        tries_on: bool = True,
    ) -> Command[Any]:
        """Return the step after a response: the next attempt, the next order, or the end.

        Args:
            state: The delegation's state.
            answer: What came of the first order.
            head: The end of its thread, if it has run.
            config: The superior's.
            tries_on: Whether others may be asked if this one cannot.
        """
        order = Order.load(state["queue"][0])
        rest = list(state["queue"][1:])
        update: dict[str, Any] = {}
        if head:
            update["heads"] = {order.thread_id: head}
        following = None
        if tries_on and order.ahead:
            following = order.following(answer, identity_of(config).thread_id)
        if following:
            rest = [following.stored(), *rest]
        else:
            update["messages"] = [tool_message(order, order.settled(answer))]
        update["queue"] = rest
        return Command(update=update, goto=self.node(rest[0], config) if rest else ())


def check(request: DelegationRequest) -> None:
    """Check that a request may go where it goes.

    Raises:
        DelegationCycle: It has been there.
        TooManyHops: It has passed as many agents as it may.
    """
    path = (*request.path, *request.route)
    for place, name in enumerate(path):
        if name in path[:place]:
            raise DelegationCycle(path[: place + 1])
    if len(path) - 1 > request.max_hops:
        raise TooManyHops(len(path) - 1, request.max_hops)


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
