"""The queue of a delegation: orders, who may take the first, and the step to the next.

Used by every node of a delegation graph and by its entry, so that a request is admitted by
the same rule wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from langchain_core.messages import ToolMessage
from langgraph.types import Command

from echelons.aggregation import LIMIT, settle
from echelons.delegating import TIMEOUT
from echelons.delegation import DelegationRequest, DelegationResponse, Status
from echelons.errors import (
    DelegationCycle,
    DelegationError,
    TooDeep,
    TooManyHops,
    UnreadableRecord,
)
from echelons.history import Head, History
from echelons.limits import MAX_DEPTH
from echelons.lineage import message_id, subordinate_thread_id
from echelons.names import CALL_SUBORDINATE
from echelons.nodes.identity import identity_of
from echelons.racing import Entrant
from echelons.timing import due
from echelons.ways import NOBODY, Ways

REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Order:
    """One request of a delegation's queue, as it is stored.

    Attributes:
        request: What is wanted, and of whom this time.
        call_id: The call of the superior's message that it answers, or the part of one.
        thread_id: The subordinate's thread.
        continues: Whether it goes on with a conversation that was there before it.
        message_id: The superior's message; further attempts have their threads from it.
        ways: Who else may take it.
        tried: What came of those who were asked.
        reset: Whether a request that is passed on begins conversations anew on its way.
        part: Of which call it is a part; ``None`` if it is the whole.
        routed: Whether it names nobody, and the router has found who takes it.
    """

    request: DelegationRequest
    call_id: str
    thread_id: str
    continues: bool
    message_id: str = ""
    ways: Ways = NOBODY
    tried: tuple[DelegationResponse, ...] = ()
    reset: bool = False
    part: Entrant | None = None
    routed: bool = False

    def stored(self) -> dict[str, Any]:
        """Return the order as JSON."""
        kept: dict[str, Any] = {
            "request": self.request.stored(),
            "call_id": self.call_id,
            "thread_id": self.thread_id,
            "continues": self.continues,
        }
        if self.ways or self.tried or self.request.route:
            kept |= {
                "message_id": self.message_id,
                "ways": self.ways.stored(),
                "tried": [each.stored() for each in self.tried],
                "reset": self.reset,
            }
        if self.part:
            kept["part"] = self.part.stored()
        if self.routed:
            kept["routed"] = True
        return kept

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Order:
        """Return the order in ``stored``.

        Raises:
            UnreadableRecord: It is damaged, or its request is.
        """
        match stored:
            case {"request": given, "call_id": str(call), "thread_id": str(thread)}:
                request = DelegationRequest.load(given)
            case _:
                raise UnreadableRecord(cls.__name__, "it is not stored as one")
        return cls(
            request,
            call,
            thread,
            bool(stored.get("continues")),
            stored.get("message_id", ""),
            Ways.load(stored["ways"]) if "ways" in stored else NOBODY,
            tuple(DelegationResponse.load(each) for each in stored.get("tried", ())),
            stored.get("reset", False),
            Entrant.load(stored["part"]) if "part" in stored else None,
            stored.get("routed", False),
        )

    def waiting(self) -> Order:
        """Return the order as one that begins when another has ended; its time is told then."""
        return replace(self, request=self.request.model_copy(update={"deadline": None}))

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
        if not self.ways.ahead or answer.status not in (Status.UNABLE, Status.PARTIAL):
            return None
        # Nobody else has anything left either.
        if answer.reason.startswith(LIMIT):
            return None
        current, *route = self.ways.ahead[0]
        attempt = self.request.attempts + 1
        request = self.request.model_copy(
            update={
                "current": current,
                "route": tuple(route),
                "path": (*self.request.path[:-1], current),
                "attempts": attempt,
            }
        )
        thread = subordinate_thread_id(superior, self.message_id, self.call_id, attempt)
        return replace(
            self,
            request=request,
            thread_id=thread,
            continues=False,
            ways=self.ways.after(),
            tried=(*self.tried, self._kept(answer)),
        )

    def settled(self, answer: DelegationResponse) -> DelegationResponse:
        """Return what all attempts together come to."""
        if not self.tried:
            # What the parts of a call come to is decided when all have ended.
            if self.part:
                return self._kept(answer)
            if not self.routed:
                return answer
        asked = self.request.model_copy(
            update={"current": self.request.origin, "path": self.request.path[:1]}
        )
        return settle(asked, self.attempts(answer) or [answer], self.ways.needs, self.ways.able)

    def attempts(self, answer: DelegationResponse) -> tuple[DelegationResponse, ...]:
        """Return what came of all who were asked, if others were asked before."""
        return (*self.tried, self._kept(answer)) if self.tried else ()

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
            check(order.request, len(identity_of(config).path))
        except DelegationError as error:
            return error.reason
        return None

    def node(self, stored: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Return the node that takes a stored order."""
        order = Order.load(stored)
        return REFUSE if self.refusal(order, config) else self.nodes[order.request.current]

    def onward(
        self,
        order: Order,
        answer: DelegationResponse,
        config: Mapping[str, Any],
        spent: float = 0.0,
        tries_on: bool = True,
    ) -> Onward:
        """Return what follows an attempt.

        Args:
            order: The attempt.
            answer: What came of it.
            config: The superior's.
            spent: Seconds that it took.
            tries_on: Whether others may be asked if this one cannot.
        """
        request = order.request.after(spent)
        if tries_on and order.ways.ahead and request.seconds != 0:
            request = self._due(request, config)
            superior = identity_of(config).thread_id
            following = replace(order, request=request).following(answer, superior)
            if following:
                return Onward(config, following)
        return Onward(config, answer=order.settled(answer), attempts=order.attempts(answer))

    def advance(self, state: Mapping[str, Any], step: Onward, head: Head | None) -> Command[Any]:
        """Return the command that goes a step on in a delegation.

        Args:
            state: The delegation's state.
            step: The step.
            head: The end of the thread that has run, if one has.
        """
        order, rest = Order.load(state["queue"][0]), list(state["queue"][1:])
        update: dict[str, Any] = {}
        if head:
            update["heads"] = {order.thread_id: head}
        if step.following:
            rest = [step.following.stored(), *rest]
        elif step.answer and order.part:
            entry = part_entry(step.answer, step.place, step.attempts)
            update["parts"] = {order.request.id: entry}
        elif step.answer:
            update["messages"] = [tool_message(order, step.answer)]
        if rest and not step.following:
            waited = Order.load(rest[0])
            begun = replace(waited, request=self._due(waited.request, step.config))
            rest[0] = begun.stored()
        update["queue"] = rest
        return Command(update=update, goto=self.node(rest[0], step.config) if rest else ())

    def _due(self, request: DelegationRequest, config: Mapping[str, Any]) -> DelegationRequest:
        """Return a request that is sent now, with the time by when it must be answered."""
        deadline = due(config, (self.timeout, request.seconds))
        return request.model_copy(update={"deadline": deadline})


class Onward(NamedTuple):
    """What follows an attempt: another one, or the answer.

    Attributes:
        config: The superior's.
        following: The next attempt.
        answer: What all attempts came to, if there is no other.
        place: Its place among those that were asked at the same time; 0 if that is of no matter.
        attempts: What they came to one by one, if there were several.
    """

    config: Mapping[str, Any]
    following: Order | None = None
    answer: DelegationResponse | None = None
    place: int = 0
    attempts: Sequence[DelegationResponse] = ()


def part_entry(
    response: DelegationResponse, place: int = 0, attempts: Sequence[DelegationResponse] = ()
) -> dict[str, Any]:
    """Return the entry of a part that has ended, for the superior's state."""
    entry: dict[str, Any] = {"response": response.stored(), "place": place}
    if attempts:
        entry["attempts"] = [each.stored() for each in attempts]
    return entry


def check(request: DelegationRequest, level: int) -> None:
    """Check that a request may go where it goes.

    Args:
        request: The request.
        level: Of who asks, trees within trees counted; 1 for the first.

    Raises:
        DelegationCycle: It has been there.
        TooManyHops: It has passed as many agents as it may.
        TooDeep: No tree is as deep.
    """
    path = (*request.path, *request.route)
    for place, name in enumerate(path):
        if name in path[:place]:
            raise DelegationCycle(path[: place + 1])
    if len(path) - 1 > request.max_hops:
        raise TooManyHops(len(path) - 1, request.max_hops)
    if (deepest := level + 1 + len(request.route)) > MAX_DEPTH:
        raise TooDeep(deepest, MAX_DEPTH)


def tool_message(
    order: Order, answer: DelegationResponse, tool: str = CALL_SUBORDINATE
) -> ToolMessage:
    """Return the one message that answers a call, with the response as its artifact."""
    unable = answer.status is Status.UNABLE
    plain = answer.status is Status.FULFILLED
    note = f"[{answer.status}] {answer.reason}".strip()
    content = answer.result if plain else "\n".join(part for part in (note, answer.result) if part)
    return ToolMessage(
        content,
        id=message_id(order.thread_id, f"answer/{order.request.id}"),
        tool_call_id=order.call_id,
        name=tool,
        artifact=answer.stored(),
        status="error" if unable else "success",
        additional_kwargs={"unavailable": True} if unable else {},
    )
