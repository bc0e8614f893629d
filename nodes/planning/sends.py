"""Builds the `Send` of each call that a reply leaves open: to `act`, or to the delegation graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, ToolCall
from langgraph.graph import END
from langgraph.types import Send

from echelons.delegation.calls import requests_of
from echelons.delegation.race import Entrant
from echelons.delegation.request_builder import RequestLimits, plain, sent, ways_of
from echelons.identity.lineage import (
    REQUESTS_KEY,
    THREADS_KEY,
    Identity,
    request_id,
    subordinate_thread_id,
)
from echelons.identity.thread_history import Head
from echelons.nodes.delegating.queued_request import Order
from echelons.nodes.planning.tool_calls import unanswered
from echelons.tree.names import DELEGATING_TOOLS


def dispatch(
    state: Mapping[str, Any], identity: Identity, limits: Callable[[], RequestLimits]
) -> list[Send] | str:
    """Return a level's next step: a `Send` for each tool call and each thread, or a node's name."""
    message, calls = unanswered(state["messages"])
    if message is None:
        return END
    if not calls:
        # Only error messages follow the reply: the model tries again.
        ended = state.get("response") or state["messages"][-1] is message
        return END if ended else "reason"
    acts = [Send("act", [_plain(call)]) for call in calls if call["name"] not in DELEGATING_TOOLS]
    sends = acts + _delegations(state, identity, message, calls, limits)
    # A fan-out call that a person wrote into the state was never planned, so it sends nothing.
    return sends or "reason"


def _delegations(
    state: Mapping[str, Any],
    identity: Identity,
    message: AIMessage,
    calls: Sequence[ToolCall],
    limits: Callable[[], RequestLimits],
) -> list[Send]:
    threads: Mapping[str, str] = message.response_metadata.get(THREADS_KEY) or {}
    heads: Mapping[str, Head] = state.get("heads") or {}
    notes: Mapping[str, Any] = message.response_metadata.get(REQUESTS_KEY) or {}
    forward: Mapping[str, Any] | None = state.get("forward")
    ended: Mapping[str, Any] = state.get("parts") or {}
    queues: dict[str, list[dict[str, Any]]] = {}
    for asked, parted in requests_of(message, calls):
        call_id = asked.call_id
        own = subordinate_thread_id(identity.thread_id, message.id or "", call_id)
        # A call that a person wrote into the state has no thread yet: it starts one.
        thread = threads.get(call_id, own)
        if call_id in notes:
            request = sent(asked, parted, message, identity.agent, identity.thread_id)
        else:
            given = limits().fields
            if thread in heads:
                given["current"] = heads[thread]["agent"]
            request = plain(asked, parted, message, identity.agent, identity.thread_id, **given)
        if request.id in ended:
            continue
        order = Order(request, call_id, thread, thread != own, message.id or "")
        if forward:
            order = replace(order, reset=bool(forward["reset"]))
        elif ways := ways_of(message, call_id):
            order = replace(order, ways=ways.after(), reset=asked.reset, routed=True)
        if parted:
            race = request_id(identity.thread_id, message.id or "", parted.call_id)
            order = replace(order, part=Entrant(race, asked.group, parted.join.enough))
        # Two parallel requests on one thread would start from one head, and one would be lost.
        queue = queues.setdefault(thread, [])
        queue.append((order if not queue else order.waiting()).stored())
    return [
        Send("delegate", {"queue": queue, "head": dict(heads.get(thread) or {})})
        for thread, queue in queues.items()
    ]


def _plain(call: ToolCall) -> dict[str, Any]:
    return {"name": call["name"], "args": call["args"], "id": call["id"], "type": "tool_call"}
