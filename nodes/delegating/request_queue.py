"""The desk of a superior: who may take the first order of a queue, and the step to the next.

Used by every node of a delegation graph and by its entry, so that a request is admitted by
the same rule wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from langgraph.types import Command

from echelons.delegation.policy import TIMEOUT
from echelons.delegation.request import DelegationRequest, DelegationResponse
from echelons.errors import DelegationCycle, DelegationError, TooDeep, TooManyHops
from echelons.guards.deadlines import due
from echelons.guards.limits import MAX_DEPTH
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import Head, History
from echelons.nodes.delegating.queued_request import Order, part_entry, tool_message

REFUSE = "refuse"


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
            check(order.request, len(require_identity(config).path))
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
            superior = require_identity(config).thread_id
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
