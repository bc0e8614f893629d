"""The rules of a superior's request queue: which node takes a request, and what follows it.

Used by every node of a delegation graph and by its entry, so that the same rule admits a
request wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from langgraph.types import Command

from echelons.delegation.policy import DEFAULT_POLICY, DelegationPolicy
from echelons.delegation.request import DelegationRequest, DelegationResponse
from echelons.delegation.spawned_agents import count_levels, get_spawnable
from echelons.errors import DelegationError
from echelons.guards.deadlines import compute_deadline
from echelons.guards.limits import MAX_DEPTH
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import Head, ThreadHistory
from echelons.nodes.delegating.queued_request import (
    QueuedRequest,
    build_part_entry,
    build_tool_message,
)
from echelons.nodes.planning.refused_calls import mark_refused

REFUSE = "refuse"
DISPATCH = "dispatch"


@dataclass(frozen=True, slots=True)
class RequestQueue:
    """Assigns a superior's queued requests to nodes and advances the queue.

    Attributes:
        nodes: The node that takes the requests for each subordinate, by its name.
        history: Reads the threads.
        timeouts: Seconds for each declared subordinate, by its name; `None` for no limit.
        max_depth: Most levels of the tree.
        policy: The superior's delegation policy.
        models: The model of each agent of the tree, by its name.
    """

    nodes: Mapping[str, str]
    history: ThreadHistory
    timeouts: Mapping[str, float | None] = field(default_factory=dict)
    max_depth: int = MAX_DEPTH
    policy: DelegationPolicy = DEFAULT_POLICY
    models: Mapping[str, Any] = field(default_factory=dict)

    def get_timeout(self, order: QueuedRequest, config: Mapping[str, Any]) -> float | None:
        """Return the seconds of the subordinate of a queued request; `None` for no limit."""
        name = order.request.current
        if name in order.spawned:
            levels = count_levels(order.spawned[name], get_spawnable(config))
            return self.policy.compute_timeout(levels)
        return self.timeouts.get(name)

    def find_refusal(self, order: QueuedRequest, config: Mapping[str, Any]) -> str | None:
        """Return why a queued request is refused, or `None` if its subordinate may take it."""
        name = order.request.current
        if name not in self.nodes and name not in order.spawned:
            return f"unknown_subordinate: no subordinate is called {name!r}"
        if order.continues and not self.history.is_durable(config):
            return "no_checkpointer: nothing was kept of the earlier conversation; use reset=true"
        try:
            check_request_path(order.request, len(require_identity(config).path))
        except DelegationError as error:
            return error.reason
        return None

    def choose_node(self, stored: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Return the node that takes a stored queued request."""
        order = QueuedRequest.load(stored)
        if self.find_refusal(order, config):
            return REFUSE
        return self.nodes.get(order.request.current, DISPATCH)

    def decide_next_step(
        self,
        order: QueuedRequest,
        answer: DelegationResponse,
        config: Mapping[str, Any],
        spent: float = 0.0,
        may_retry: bool = True,
    ) -> NextStep:
        """Return the step after an attempt of `spent` seconds; `config` is the superior's."""
        if waiting := order.pass_answer(answer):
            return NextStep(order, config, waiting)
        if answer.end in ("filtered", "refused"):
            order = self._leave_out_model(order, answer.agent, config)
        request = order.request.with_time_spent(spent)
        if may_retry and order.candidates.remaining and request.seconds != 0:
            superior = require_identity(config).thread_id
            timed = self._with_deadline(replace(order, request=request), config)
            following = timed.build_next_attempt(answer, superior)
            if following:
                return NextStep(order, config, following)
        attempts = order.collect_responses(answer)
        return NextStep(order, config, answer=order.settle_attempts(answer), attempts=attempts)

    def advance(self, state: Mapping[str, Any], step: NextStep, head: Head | None) -> Command[Any]:
        """Return the command that applies a step; `head` is that of the thread that has run."""
        order, queue = step.order, list(state["queue"][1:])
        update: dict[str, Any] = {}
        if head:
            update["heads"] = {order.thread_id: head}
        if step.next_attempt:
            queue.insert(0, step.next_attempt.stored())
        elif step.answer and order.race_entry:
            entry = build_part_entry(step.answer, step.place, step.attempts)
            update["parts"] = {order.request.id: entry}
        elif step.answer:
            segment = ""
            if order.spawned:
                identity = require_identity(step.config)
                segment = identity.request_id or identity.turn
            warning = self._warn(step.config) if order.is_new and order.spawned else ""
            message = build_tool_message(order, step.answer, warning=warning, segment=segment)
            # Earlier attempts may have said something.
            is_notice = not order.earlier_responses
            update["messages"] = [
                mark_refused(message, is_notice=is_notice) if step.refused else message
            ]
        if not queue and (waiting := state.get("waiting")):
            queue, update["waiting"] = [waiting[0]], 1
        if queue and not step.next_attempt:
            waited = QueuedRequest.load(queue[0])
            queue[0] = self._with_deadline(waited, step.config).stored()
        update["queue"] = queue
        return Command(update=update, goto=self.choose_node(queue[0], step.config) if queue else ())

    def _leave_out_model(
        self, order: QueuedRequest, agent: str, config: Mapping[str, Any]
    ) -> QueuedRequest:
        """Return a queued request without the candidates that have the model of an agent.

        A model that has refused a task, or its provider's filter, would do so again.
        """
        if (model := self._get_model(agent, order, config)) is None:
            return order
        remaining = tuple(
            way
            for way in order.candidates.remaining
            if not _is_same_model(self._get_model(way[-1], order, config), model)
        )
        return replace(order, candidates=replace(order.candidates, remaining=remaining))

    def _get_model(self, name: str, order: QueuedRequest, config: Mapping[str, Any]) -> Any:
        """Return the model of an agent, also of one that was made at run time."""
        if (spec := order.spawned.get(name)) is None:
            return self.models.get(name)
        known = get_spawnable(config)
        profile = known.get(str(spec.get("profile"))) if isinstance(spec, Mapping) else None
        model = getattr(profile.member, "model", None) if profile else None
        # It inherits that of its superior.
        return self.models.get(require_identity(config).agent) if model is None else model

    def _warn(self, config: Mapping[str, Any]) -> str:
        """Return the warning to a superior if its spawned agent is near the tree's last level."""
        level = len(require_identity(config).path) + 1
        if level < self.max_depth - 1:
            return ""
        left = "it can make none" if level == self.max_depth else "what it makes can make none"
        return f"it is at level {level} of {self.max_depth}: {left}"

    def _with_deadline(self, order: QueuedRequest, config: Mapping[str, Any]) -> QueuedRequest:
        """Return a queued request that is sent now, with its deadline."""
        timeout = self.get_timeout(order, config)
        deadline = compute_deadline(config, (timeout, order.request.seconds))
        return replace(order, request=order.request.model_copy(update={"deadline": deadline}))


class NextStep(NamedTuple):
    """The step after an attempt: another attempt, or the answer.

    Attributes:
        order: The attempt.
        config: The superior's config.
        next_attempt: The next attempt, if there is one.
        answer: The combined response of all attempts, if there is no next one.
        place: The place of the answer in its race, from 1; 0 without a race.
        attempts: The responses of the attempts, if there were several.
        refused: Whether the call is answered without anything having been run for it.
    """

    order: QueuedRequest
    config: Mapping[str, Any]
    next_attempt: QueuedRequest | None = None
    answer: DelegationResponse | None = None
    place: int = 0
    attempts: Sequence[DelegationResponse] = ()
    refused: bool = False


def check_request_path(request: DelegationRequest, level: int) -> None:
    """Check the path and the route of a request of an agent at a depth; 1 is a root.

    Raises:
        DelegationError: An agent is on the path twice; the path is longer than the request allows;
            the path is deeper than any tree may be, with the trees around.
    """
    path = (*request.path, *request.route)
    for place, name in enumerate(path):
        if name in path[:place]:
            raise DelegationError(
                "it has been with {agent!r} already: {path: > }",
                code="cycle",
                path=path[: place + 1],
                agent=name,
            )
    if len(path) - 1 > request.max_hops:
        raise DelegationError(
            "it would pass {hops} agents, and may pass {limit}; ask a nearer agent, or raise "
            "max_hops in the DelegationPolicy of the agent that sends it",
            code="hops",
            hops=len(path) - 1,
            limit=request.max_hops,
        )
    if (deepest := level + 1 + len(request.route)) > MAX_DEPTH:
        raise DelegationError(
            "it would go down to level {depth}, trees within trees counted, and no request goes "
            "below {limit}; flatten them, and see that none runs itself again",
            code="depth",
            depth=deepest,
            limit=MAX_DEPTH,
        )


def _is_same_model(first: Any, second: Any) -> bool:
    """Return whether two clients call one model of a provider, as far as their settings tell."""
    if first is second:
        return True
    if type(first) is not type(second) or not getattr(first, "lc_secrets", None):
        return False
    names = [
        getattr(client, "model_name", None) or getattr(client, "model", None)
        for client in (first, second)
    ]
    return isinstance(names[0], str) and names[0] == names[1]
