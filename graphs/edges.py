"""The conditional edges: after `reason`, and into a delegation graph.

After `reason`, each call that the reply leaves open is sent to `act` or to the delegation graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END
from langgraph.types import Send

from echelons.delegation.calls import (
    RelayedRequest,
    RequestLimits,
    build_request,
    is_typed_call,
    iterate_requests,
    load_candidates,
    load_specifications,
    request_as_sent,
)
from echelons.delegation.join import RaceEntry
from echelons.delegation.policy import DelegationPolicy
from echelons.identity.lineage import (
    CONTINUED_KEY,
    REQUESTS_KEY,
    SIDE_BY_SIDE_KEY,
    THREADS_KEY,
    Identity,
    derive_request_id,
    derive_subordinate_thread_id,
    require_identity,
)
from echelons.identity.thread_history import Head
from echelons.nodes.base_node import Node
from echelons.nodes.planning.tool_calls import find_unanswered
from echelons.nodes.request_queue import QueuedRequest, RequestQueue
from echelons.tree.names import DELEGATING_TOOLS


class LoopNodes(NamedTuple):
    """The first node of a level's loop, and the first after it, with its middleware's nodes."""

    entry: str = "reason"
    exit: str = END


class AfterReason(Node):
    """The edge after `reason`: sends each open call to its node, or ends the segment."""

    def __init__(
        self,
        depth: int,
        policy: DelegationPolicy,
        timeouts: Mapping[str, float | None],
        nodes: LoopNodes | None = None,
    ) -> None:
        super().__init__("after_reason")
        self._nodes = nodes
        self._depth = depth
        self._policy = policy
        self._timeouts = timeouts

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the sends, or the name of the next node."""
        config = config or {}
        # The model has to be called after all, and the hooks before it were skipped.
        if self._nodes and input.get("unhooked") and input.get("jump_to") == "model":
            return self._nodes.entry

        # Only a call that a person wrote into the state has no limits noted in its message.
        def limits(subordinate: str) -> RequestLimits:
            timeout = self._timeouts.get(subordinate)
            return RequestLimits.begin(self._depth, self._policy, timeout, config)

        following = build_sends(input, require_identity(config), limits)
        # What is passed on to another agent is none of a middleware's.
        if self._nodes is None or input.get("forward") or isinstance(following, list):
            return following
        return self._nodes.exit if following == END else self._nodes.entry


class AfterReply(Node):
    """The edge after `reason` where hooks run after a reply: to the first, if it has replied."""

    def __init__(self, first: str, otherwise: AfterReason) -> None:
        super().__init__("after_reply")
        self._first = first
        self._otherwise = otherwise

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the first hook's node, or what comes without a reply."""
        return self._first if input.get("replied") else self._otherwise.invoke(input, config)


class BeforeReason(Node):
    """The edge back to the loop, past the hooks of a level that only passes a request on."""

    def __init__(self, entry: str) -> None:
        super().__init__("before_reason")
        self._entry = entry

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the name of the next node."""
        return "reason" if input.get("forward") else self._entry


class DelegationEntry(Node):
    """The entry of a delegation graph: chooses the node for the first queued request."""

    def __init__(self, queue: RequestQueue) -> None:
        super().__init__("route")
        self._queue = queue

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the subordinate's node, or `refuse`."""
        return self.choose_first_node(input, config or {})

    def choose_first_node(self, state: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Return the node that takes the first request of a queue."""
        return self._queue.choose_node(state["queue"][0], config)


def build_sends(
    state: Mapping[str, Any], identity: Identity, limits: Callable[[str], RequestLimits]
) -> list[Send] | str:
    """Return a level's next step: a `Send` for each tool call and each thread, or a node's name."""
    message, calls = find_unanswered(state["messages"])
    if message is None:
        return END
    if not calls:
        # Only error messages follow the reply: the model tries again.
        is_last = state["messages"][-1] is message
        if is_last and CONTINUED_KEY in message.response_metadata and not state.get("response"):
            return "reason"
        return END if state.get("response") or is_last else "reason"
    # By its id: the call itself is stored with its message. Only a person's calls may have none,
    # or share one.
    is_named = len({call["id"] for call in message.tool_calls}) == len(message.tool_calls)
    acts = [
        Send("act", call["id"] if is_named and call["id"] else [call])
        for call in calls
        if not (call["name"] in DELEGATING_TOOLS or is_typed_call(message, call))
    ]
    sends = acts + _build_delegation_sends(state, identity, message, calls, limits)
    # A fan-out call that a person wrote into the state was never planned, so it sends nothing.
    return sends or "reason"


def _build_delegation_sends(
    state: Mapping[str, Any],
    identity: Identity,
    message: AIMessage,
    calls: Sequence[ToolCall],
    limits: Callable[[str], RequestLimits],
) -> list[Send]:
    threads: Mapping[str, str] = message.response_metadata.get(THREADS_KEY) or {}
    heads: Mapping[str, Head] = state.get("heads") or {}
    sent: Mapping[str, Any] = message.response_metadata.get(REQUESTS_KEY) or {}
    forward: Mapping[str, Any] | None = state.get("forward")
    ended: Mapping[str, Any] = state.get("parts") or {}
    beside: Sequence[str] = message.response_metadata.get(SIDE_BY_SIDE_KEY) or ()
    queues: dict[str, list[dict[str, Any]]] = {}
    for part, parted in iterate_requests(message, calls):
        call_id = part.call_id
        new_thread = derive_subordinate_thread_id(identity.thread_id, message.id or "", call_id)
        # A call that a person wrote into the state has no thread yet: it starts one.
        thread = threads.get(call_id, new_thread)
        if call_id in sent:
            request = request_as_sent(part, parted, message, identity.agent, identity.thread_id)
        elif forward:
            request_id = derive_request_id(identity.thread_id, message.id or "", call_id)
            request = RelayedRequest.load(forward).build_next_request(request_id)
        else:
            subordinate = heads[thread]["agent"] if thread in heads else part.subordinate
            fields = limits(subordinate).fields
            if thread in heads:
                fields["current"] = subordinate
            request = build_request(
                part, parted, message, identity.agent, identity.thread_id, **fields
            )
        if request.id in ended:
            continue
        order = QueuedRequest(
            request,
            call_id,
            thread,
            thread != new_thread,
            message.id or "",
            tool=part.tool,
            is_new=part.is_new,
            beside=call_id in beside,
            added=load_specifications(message, call_id),
        )
        if forward:
            order = replace(order, reset=bool(forward["reset"]))
        elif candidates := load_candidates(message, call_id):
            order = replace(
                order, candidates=candidates.without_first(), reset=part.reset, routed=True
            )
        if parted:
            race = derive_request_id(identity.thread_id, message.id or "", parted.call_id)
            order = replace(order, race_entry=RaceEntry(race, part.group, parted.join.enough))
        # Two parallel requests on one thread would start from one head, and one would be lost.
        queue = queues.setdefault(thread, [])
        queue.append((order if not queue else order.without_deadline()).stored())
    return [
        Send(
            "delegate",
            {
                "queue": queue[:1],
                "head": dict(heads.get(thread) or {}),
                **({"waiting": queue[1:]} if queue[1:] else {}),
            },
        )
        for thread, queue in queues.items()
    ]
