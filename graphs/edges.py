"""The conditional edges: where a level goes after thinking, where a delegation begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END
from langgraph.types import Send

from echelons.delegation import MAX_HOPS, DelegationRequest
from echelons.forwarding import Forward
from echelons.history import Head
from echelons.lineage import (
    ROUTES_KEY,
    THREADS_KEY,
    Identity,
    request_id,
    subordinate_thread_id,
)
from echelons.names import CALL_SUBORDINATE
from echelons.nodes.calls import unanswered
from echelons.nodes.identity import identity_of
from echelons.nodes.orders import Desk, Order
from echelons.nodes.shell import Shell


class AfterReason(Shell):
    """Sends each open call to who does it, or ends the segment.

    Args:
        depth: Levels of the tree; a request may pass that many agents, or ten.
    """

    def __init__(self, depth: int) -> None:
        super().__init__("after_reason")
        self._max_hops = max(MAX_HOPS, depth)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the sends, or the node to go to."""
        return dispatch(input, identity_of(config), self._max_hops)

    async def ainvoke(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the sends, or the node to go to."""
        return dispatch(input, identity_of(config), self._max_hops)

    def foreseen(self, update: Mapping[str, Any], identity: Identity) -> list[Send] | str:
        """Return the same before the update of a whole reply is a part of the state.

        What came before the reply has no say in it, and the heads of its threads are with it.
        """
        return dispatch(update, identity, self._max_hops)


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


def dispatch(state: Mapping[str, Any], identity: Identity, max_hops: int) -> list[Send] | str:
    """Return what a level does next: one send a tool call, one a thread, or where to go."""
    message, calls = unanswered(state["messages"])
    if message is None:
        return END
    if not calls:
        # Only answers to mistakes follow the reply: the model has another go.
        ended = state.get("response") or state["messages"][-1] is message
        return END if ended else "reason"
    acts = [Send("act", [_plain(call)]) for call in calls if call["name"] != CALL_SUBORDINATE]
    return acts + _delegations(state, identity, message, calls, max_hops)


def _delegations(
    state: Mapping[str, Any],
    identity: Identity,
    message: AIMessage,
    calls: Sequence[ToolCall],
    max_hops: int,
) -> list[Send]:
    threads: Mapping[str, str] = message.response_metadata.get(THREADS_KEY) or {}
    heads: Mapping[str, Head] = state.get("heads") or {}
    routes: Mapping[str, list[list[str]]] = message.response_metadata.get(ROUTES_KEY) or {}
    forward = Forward.load(state["forward"]) if state.get("forward") else None
    queues: dict[str, list[dict[str, Any]]] = {}
    for call in calls:
        call_id = call["id"] or ""
        if call["name"] != CALL_SUBORDINATE:
            continue
        own = subordinate_thread_id(identity.thread_id, message.id or "", call_id)
        # A call that a person wrote into the state has no thread yet: it starts its own.
        thread = threads.get(call_id, own)
        order = _order(call, heads.get(thread), identity, message.id or "", thread, max_hops)
        if forward:
            order = replace(order, request=forward.passed_on(order.request.id), reset=forward.reset)
        elif call_id in routes:
            order = _routed(order, routes[call_id], call)
        # Two requests on one thread in parallel would start from one head, and one be lost.
        queues.setdefault(thread, []).append(order.stored())
    return [
        Send("delegate", {"queue": queue, "head": dict(heads.get(thread) or {})})
        for thread, queue in queues.items()
    ]


def _order(
    call: ToolCall, head: Head | None, identity: Identity, message: str, thread: str, max_hops: int
) -> Order:
    call_id = call["id"] or ""
    # A call that a person wrote into the state may be anything; nobody is found for it then.
    task, named = str(call["args"].get("message", "")), str(call["args"].get("subordinate") or "")
    current = head["agent"] if head else named
    request = DelegationRequest(
        id=request_id(identity.thread_id, message, call_id),
        origin=identity.agent,
        current=current,
        task=task,
        path=(identity.agent, current),
        max_hops=max_hops,
    )
    started_here = thread == subordinate_thread_id(identity.thread_id, message, call_id)
    return Order(request, call_id, thread, continues=not started_here, message_id=message)


def _routed(order: Order, ways: Sequence[Sequence[str]], call: ToolCall) -> Order:
    """Return the order of a call that names nobody, with all whom it may go to."""
    (_, *route), *ahead = ways
    return replace(
        order,
        request=order.request.model_copy(update={"route": tuple(route)}),
        ahead=tuple(tuple(way) for way in ahead),
        reset=bool(call["args"].get("reset", False)),
    )


def _plain(call: ToolCall) -> dict[str, Any]:
    return {"name": call["name"], "args": call["args"], "id": call["id"], "type": "tool_call"}
