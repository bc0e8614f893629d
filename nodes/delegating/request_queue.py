"""The rules of a superior's request queue: which node takes a request, and what follows it.

Used by every node of a delegation graph and by its entry, so that the same rule admits a
request wherever it comes from.
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
    """Assigns a superior's queued requests to nodes and advances the queue.

    Attributes:
        nodes: The node that takes the requests for each subordinate, by its name.
        history: Reads the threads.
        timeout: Seconds for each subordinate; `None` for no limit.
    """

    nodes: Mapping[str, str]
    history: History
    timeout: float | None = TIMEOUT

    def refusal(self, order: Order, config: Mapping[str, Any]) -> str | None:
        """Return why a queued request is refused, or `None` if its subordinate may take it."""
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
        """Return the node that takes a stored queued request."""
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
        """Return the step after an attempt.

        Args:
            order: The attempt.
            answer: Its response.
            config: The superior's config.
            spent: Seconds that it took.
            tries_on: Whether another candidate may be tried.
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
        """Return the command that applies a step to a delegation.

        Args:
            state: The delegation's state.
            step: The step.
            head: The head of the thread that has run, if one has.
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
        """Return a request that is sent now, with its deadline."""
        deadline = due(config, (self.timeout, request.seconds))
        return request.model_copy(update={"deadline": deadline})


class Onward(NamedTuple):
    """The step after an attempt: another attempt, or the answer.

    Attributes:
        config: The superior's config.
        following: The next attempt, if there is one.
        answer: The combined response of all attempts, if there is no next one.
        place: The place of the answer in its race, from 1; 0 without a race.
        attempts: The responses of the attempts, if there were several.
    """

    config: Mapping[str, Any]
    following: Order | None = None
    answer: DelegationResponse | None = None
    place: int = 0
    attempts: Sequence[DelegationResponse] = ()


def check(request: DelegationRequest, level: int) -> None:
    """Check the path and the route of a request.

    Args:
        request: The request.
        level: Depth of the agent that delegates, including the trees around; 1 for a root.

    Raises:
        DelegationCycle: An agent is on the path twice.
        TooManyHops: The path is longer than the request allows.
        TooDeep: The path is deeper than any tree may be.
    """
    path = (*request.path, *request.route)
    for place, name in enumerate(path):
        if name in path[:place]:
            raise DelegationCycle(path[: place + 1])
    if len(path) - 1 > request.max_hops:
        raise TooManyHops(len(path) - 1, request.max_hops)
    if (deepest := level + 1 + len(request.route)) > MAX_DEPTH:
        raise TooDeep(deepest, MAX_DEPTH)
