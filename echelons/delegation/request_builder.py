"""Builds the requests of a message's calls, both to send them and to read them back later.

Most fields can be derived from the superior's message; the others, such as the deadline, are
stored in that message's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from echelons.delegation.calls import FanOutCall, SubordinateCall, iterate_requests
from echelons.delegation.candidates import NO_CANDIDATES, Candidates
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import MAX_HOPS, DelegationRequest
from echelons.errors import UnreadableRecord
from echelons.guards.deadlines import compute_deadline
from echelons.identity.lineage import REQUESTS_KEY, ROUTES_KEY, THREADS_KEY, derive_request_id

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage


class RequestLimits(NamedTuple):
    """How far a request may go, and by when it must be answered.

    Attributes:
        hops: Agents that it may pass.
        seconds: Its own time, for all candidates one after the other; `None` for no end.
        deadline: When the first of them must have answered, in seconds since 1970 (UTC).
    """

    hops: int = MAX_HOPS
    seconds: float | None = None
    deadline: float | None = None

    @classmethod
    def begin(
        cls, depth: int, rules: DelegationPolicy, timeout: float | None, config: Mapping[str, Any]
    ) -> RequestLimits:
        """Return the limits of a request that is sent now by the agent with `config`.

        It may pass as many agents as the policy says; if that says nothing, as the tree has levels,
        its `depth`, or ten. `timeout` is the time of the first candidate, `None` for no limit.
        """
        seconds = rules.request_timeout
        deadline = compute_deadline(config, (timeout, seconds))
        return cls(rules.max_hops or max(MAX_HOPS, depth), seconds, deadline)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the request that differ from their defaults."""
        fields: dict[str, Any] = {}
        if self.hops != MAX_HOPS:
            fields["max_hops"] = self.hops
        if self.seconds is not None:
            fields["budget"] = {"seconds": self.seconds}
        if self.deadline is not None:
            fields["deadline"] = self.deadline
        return fields


def build_request(
    call: SubordinateCall,
    fan_out: FanOutCall | None,
    message: AIMessage,
    agent: str,
    thread_id: str,
    **more: Any,
) -> DelegationRequest:
    """Return the request of a call, as far as it can be derived from the message.

    Args:
        call: The request.
        fan_out: The call of several requests that it is part of, if any.
        message: The message with the call.
        agent: The agent that wrote the message.
        thread_id: That agent's thread.
        **more: Other fields of the request.
    """
    candidates = load_candidates(message, call.call_id)
    first, *route = way = candidates.remaining[0] if candidates.remaining else (call.subordinate,)
    calls = (each for each in message.tool_calls if fan_out and each["id"] == fan_out.call_id)
    whole = next((each["args"].get("message") for each in calls), None)
    is_part = isinstance(whole, str) and whole != call.message
    current = more.get("current") or first
    fields: dict[str, Any] = {
        "id": derive_request_id(thread_id, message.id or "", call.call_id),
        "origin": agent,
        "current": current,
        "task": call.message,
        "context": {**call.context, **({"part of": whole} if is_part else {})},
        "path": (agent, current),
        "route": tuple(route),
        "why": candidates.reasons.get(way[-1], ""),
    }
    if call.input is not None:
        fields["input"] = dict(call.input)
    return DelegationRequest.model_validate({**fields, **more})


def load_candidates(message: AIMessage, call_id: str) -> Candidates:
    """Return the candidates for the request of a call; none if it names its subordinate."""
    routes: Mapping[str, Any] = message.response_metadata.get(ROUTES_KEY) or {}
    return Candidates.load(routes[call_id]) if call_id in routes else NO_CANDIDATES


def request_diff(sent: Mapping[str, Any], known: DelegationRequest) -> dict[str, Any]:
    """Return the fields of a stored request that differ from the one derived from the message."""
    fields = known.stored()
    return {key: value for key, value in sent.items() if fields.get(key) != value}


def request_as_sent(
    call: SubordinateCall,
    fan_out: FanOutCall | None,
    message: AIMessage,
    agent: str,
    thread_id: str,
) -> DelegationRequest:
    """Return the request of a call as it was sent to the first candidate.

    Raises:
        UnreadableRecord: The message's metadata about the call is damaged.
    """
    notes: Any = message.response_metadata.get(REQUESTS_KEY) or {}
    try:
        note = dict(notes.get(call.call_id, {}))
        return build_request(call, fan_out, message, agent, thread_id, **note)
    except (AttributeError, TypeError, ValueError) as error:
        raise UnreadableRecord("DelegationRequest", f"{type(error).__name__}: {error}") from error


def load_sent_requests(
    message: AIMessage, agent: str, thread_id: str
) -> dict[str, DelegationRequest]:
    """Return the requests that were sent for a message, by call id, without refused ones."""
    threads: Mapping[str, str] = message.response_metadata.get(THREADS_KEY) or {}
    if not threads:
        return {}
    return {
        call.call_id: request_as_sent(call, fan_out, message, agent, thread_id)
        for call, fan_out in iterate_requests(message, message.tool_calls)
        if call.call_id in threads
    }
