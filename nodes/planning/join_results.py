"""Joins the responses of a call with several requests into its answer. Pure.

`reason` calls it before the model, so that it costs no superstep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from echelons.delegation.aggregation import settle
from echelons.delegation.calls import Parted, parted_of
from echelons.delegation.join_policies import joined
from echelons.delegation.request import DelegationRequest, DelegationResponse
from echelons.delegation.request_builder import ways_of
from echelons.identity.lineage import Identity, request_id
from echelons.nodes.delegating.queued_request import Order, tool_message
from echelons.nodes.planning.tool_calls import unanswered


@dataclass(frozen=True, slots=True)
class Joined:
    """A level's state after the finished calls with several requests have been answered.

    Attributes:
        state: The state.
        answers: The new answers in it.
        over: The ids of the requests that they are made of, to be deleted from `parts`.
    """

    state: Mapping[str, Any]
    answers: Sequence[ToolMessage] = ()
    over: Mapping[str, None] = field(default_factory=dict)

    def within(self, update: dict[str, Any]) -> dict[str, Any]:
        """Return an update of the joined state as an update of the original state."""
        if not self.answers:
            return update
        return {
            **update,
            "messages": [*self.answers, *update.get("messages", ())],
            "parts": {**self.over, **update.get("parts", {})},
        }


def join_parts(state: Mapping[str, Any], identity: Identity) -> Joined:
    """Return a level's state with an answer to each call whose requests have all ended."""
    parts: Mapping[str, Any] = state.get("parts") or {}
    if not parts:
        return Joined(state)
    message, calls = unanswered(state["messages"])
    if message is None:
        return Joined(state)
    answers = [
        answer
        for call in calls
        if (parted := parted_of(message, call["id"] or ""))
        and (answer := answer_of(parted, message, parts, identity))
    ]
    whole = {**state, "messages": [*state["messages"], *answers], "parts": {}}
    return Joined(whole, answers, dict.fromkeys(parts))


def answer_of(
    parted: Parted, message: AIMessage, parts: Mapping[str, Any], identity: Identity
) -> ToolMessage | None:
    """Return the answer to a call with several requests, `None` while one is still open.

    Raises:
        UnreadableRecord: A stored response is damaged.
    """
    thread, head = identity.thread_id, message.id or ""
    ended = [parts.get(request_id(thread, head, each.call_id)) for each in parted.parts]
    if not all(ended):
        return None
    responses = [DelegationResponse.load(each["response"]) for each in ended if each]
    places = [each["place"] or len(ended) + 1 for each in ended if each]
    request = DelegationRequest(
        id=request_id(thread, head, parted.call_id),
        origin=identity.agent,
        current=identity.agent,
        task="",
        path=(identity.agent,),
    )
    answers: list[tuple[int, int, DelegationResponse]] = []
    for group in parted.tasks:
        own = [n for n, each in enumerate(parted.parts) if each.group == group]
        ways = ways_of(message, parted.parts[own[0]].call_id)
        # A request that names a subordinate has one response only.
        answer = responses[own[0]]
        if ways:
            # For want of width some candidates were tried in sequence: they count like the others.
            every = [each for n in own for each in _attempts(ended[n], responses[n])]
            answer = settle(request, every, ways.needs, ways.able)
        answers.append((min(places[n] for n in own), group, answer))
    # The winner of a race comes first; without a race the order of the requests stays.
    in_order = [answer for *_, answer in sorted(answers, key=lambda each: each[:2])]
    tool = next(call["name"] for call in message.tool_calls if call["id"] == parted.call_id)
    order = Order(request, parted.call_id, thread, continues=False)
    return tool_message(order, joined(request, parted.join, in_order, responses), tool)


def _attempts(
    entry: Mapping[str, Any] | None, response: DelegationResponse
) -> list[DelegationResponse]:
    return [DelegationResponse.load(each) for each in (entry or {}).get("attempts", ())] or [
        response
    ]
