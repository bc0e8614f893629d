"""The requests of a model's calls: as they are read, sent, and read back later.

`SubordinateCall` is one request, `FanOutCall` a call with several: if a model calls
`delegate_many`, if its task is split among several agents, or if all candidates are asked at once.
Most fields of a request can be derived from the superior's message; the others, such as the
deadline, are stored in that message's metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from echelons.delegation.join import JoinPolicy, load_join
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import MAX_HOPS, DelegationRequest, render_input
from echelons.errors import UnreadableRecord
from echelons.guards.limits import compute_deadline
from echelons.identity.lineage import (
    ADDED_KEY,
    ASKED_KEY,
    DELEGATED_KEY,
    MENDED_KEY,
    PARTS_KEY,
    REQUESTS_KEY,
    ROUTES_KEY,
    THREADS_KEY,
    derive_request_id,
)
from echelons.run_context import get_context
from echelons.tree.names import (
    ASK,
    CALL_SUBORDINATE,
    DELEGATING_TOOLS,
    RESERVED_TOOLS,
    SPAWN_SUBORDINATE,
)

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, ToolCall, ToolMessage

NamesBelow = tuple[str, ...]
"""Names from a subordinate down to a candidate."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The ranked agents for a routed task, as messages and queued requests store them."""

    remaining: tuple[NamesBelow, ...] = ()  # not yet tried, best first
    required: tuple[str, ...] = ()  # capabilities; empty if unknown, or if the task needs only one
    abilities: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by agent
    reasons: Mapping[str, str] = field(default_factory=dict)  # why the best are asked, by agent

    def __bool__(self) -> bool:
        return bool(self.remaining or self.required)

    def without_first(self) -> Candidates:
        """Return the candidates without the first."""
        return replace(self, remaining=self.remaining[1:])

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        stored: dict[str, Any] = {"ahead": [list(path) for path in self.remaining]}
        agents = {path[-1] for path in self.remaining}
        if reasons := {agent: text for agent, text in self.reasons.items() if agent in agents}:
            stored["why"] = reasons
        if self.required:
            abilities = {agent: list(names) for agent, names in self.abilities.items()}
            stored |= {"needs": list(self.required), "able": abilities}
        return stored

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> Candidates:
        """Return the candidates from the JSON of `stored`."""
        try:
            return cls(
                tuple(tuple(path) for path in stored.get("ahead", ())),
                tuple(stored.get("needs", ())),
                {agent: tuple(names) for agent, names in stored.get("able", {}).items()},
                {agent: str(text) for agent, text in stored.get("why", {}).items()},
            )
        except (AttributeError, TypeError) as error:
            raise UnreadableRecord("Candidates", f"{type(error).__name__}: {error}") from error


NO_CANDIDATES = Candidates()
"""For a request that names its subordinate."""


@dataclass(frozen=True, slots=True)
class SubordinateCall:
    """A request made by a call."""

    call_id: str  # of the call, or of its part (see `build_part_id`)
    subordinate: str  # empty if the task is to be routed
    message: str
    reset: bool  # whether it starts a new conversation
    # Number of the call's task: several agents may be asked to do the same one.
    group: int = 1
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # If it answers a question: the thread that asked it, and the agents below the subordinate, down
    # to the one that asked.
    thread_id: str = ""
    route: tuple[str, ...] = ()
    # The fields of the contract's input; `None` for a task in words.
    input: Mapping[str, Any] | None = field(default=None, hash=False)
    tool: str = CALL_SUBORDINATE
    is_new: bool = False  # whether the call makes the subordinate
    # What features add to the request, as it is stored, by the names of its fields.
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of an equivalent `call_subordinate`."""
        arguments: dict[str, Any] = {
            "message": self.message,
            "subordinate": self.subordinate,
            "reset": self.reset,
        }
        if self.context:
            arguments["context"] = self.context
        if self.input is not None:
            arguments["input"] = self.input
        return arguments


@dataclass(frozen=True, slots=True)
class FanOutCall:
    """A call that makes several requests, in order, and the policy that joins the responses."""

    call_id: str
    join: JoinPolicy
    parts: tuple[SubordinateCall, ...]

    @property
    def tasks(self) -> dict[int, str]:
        """The tasks, by group."""
        return {part.group: part.message for part in self.parts}

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        requests = [{**part.arguments, "group": part.group} for part in self.parts]
        return {**self.join.stored(), "requests": requests}

    @classmethod
    def load(cls, call_id: str, stored: Mapping[str, Any]) -> FanOutCall:
        """Return the call from the JSON of `stored`."""
        try:
            parts = tuple(
                SubordinateCall(build_part_id(call_id, place), **fields)
                for place, fields in enumerate(stored["requests"], start=1)
            )
            return cls(call_id, load_join(stored["join"], stored.get("n")), parts)
        except (AttributeError, KeyError, TypeError) as error:
            raise UnreadableRecord("FanOutCall", f"{type(error).__name__}: {error}") from error


def build_part_id(call_id: str, place: int) -> str:
    """Return the id of a part of a call, from its place among the parts (1 for the first)."""
    return f"{call_id}/{place}"


def load_fan_out(message: AIMessage, call_id: str) -> FanOutCall | None:
    """Return a call with several requests, or `None` if it makes only one."""
    calls: Any = message.response_metadata.get(PARTS_KEY) or {}
    if not isinstance(calls, Mapping):
        raise UnreadableRecord("FanOutCall", "it is not stored as one")
    return FanOutCall.load(call_id, calls[call_id]) if call_id in calls else None


def iterate_requests(
    message: AIMessage, calls: Iterable[ToolCall]
) -> Iterator[tuple[SubordinateCall, FanOutCall | None]]:
    """Yield the requests of some of a message's calls, each with the call that it is part of."""
    for received in calls:
        call = find_meant_call(message, received)
        call_id, args = call["id"] or "", call["args"]
        if fan_out := load_fan_out(message, call_id):
            yield from ((part, fan_out) for part in fan_out.parts)
        elif call["name"] == SPAWN_SUBORDINATE or ("profile" in args and is_spawning_call(call)):
            yield _read_spawning_call(message, call), None
        elif call["name"] == CALL_SUBORDINATE:
            # A call that a person wrote into a state may have any arguments; it is then refused.
            task, subordinate = str(args.get("message", "")), str(args.get("subordinate") or "")
            reset = "reset" in args and args["reset"]
            request = SubordinateCall(call_id, subordinate, task, is_true(reset))
            if "context" in args and isinstance(args["context"], Mapping):
                request = replace(request, context=args["context"])
            if "input" in args and isinstance(args["input"], Mapping):
                task = task or render_input(args["input"])
                request = replace(request, message=task, input=args["input"])
            yield request, None
        elif is_typed_call(message, call):
            yield build_typed_call(call_id, call["name"], args), None


class MendedCall(dict[str, Any]):
    """A tool call with the arguments that its model means, in place of the `received` ones."""

    received: Mapping[str, Any]

    @classmethod
    def build(cls, call: ToolCall, arguments: Mapping[str, Any]) -> ToolCall:
        """Return a call with other arguments."""
        mended = cls(call, args=arguments)
        mended.received = getattr(call, "received", call["args"])
        return cast("ToolCall", mended)


def is_built_in_call(message: AIMessage, name: str) -> bool:
    """Return whether a reply's calls of a tool are of the library's: `ask` may be a user's tool."""
    return name in RESERVED_TOOLS or (name == ASK and ASKED_KEY in message.response_metadata)


def find_meant_call(message: AIMessage, call: ToolCall) -> ToolCall:
    """Return a call of a message with the arguments that are meant, where these differ."""
    mended: Any = message.response_metadata.get(MENDED_KEY)
    if not isinstance(mended, Mapping) or call["id"] not in mended:
        return call
    arguments = mended[call["id"]]
    return MendedCall.build(call, arguments) if isinstance(arguments, dict) else call


def is_true(argument: object) -> bool:
    """Return whether an argument means true, in one of the forms that pydantic accepts."""
    if isinstance(argument, str):
        return argument.strip().lower() in _TRUE_TEXTS
    return bool(argument)


_TRUE_TEXTS = frozenset({"1", "on", "t", "true", "y", "yes"})


def load_specifications(message: AIMessage, call_id: str) -> Mapping[str, Any]:
    """Return the specifications of the spawned agents that a request may go to, by name."""
    calls: Any = message.response_metadata.get(ADDED_KEY) or {}
    specifications = calls.get(call_id) if isinstance(calls, Mapping) else None
    return specifications if isinstance(specifications, Mapping) else {}


def is_spawning_call(call: ToolCall) -> bool:
    """Return whether a call of `call_subordinate` makes the subordinate that it calls."""
    args = call["args"]
    is_called = call["name"] == CALL_SUBORDINATE and not args.get("subordinate")
    return is_called and bool(args.get("profile"))


def _read_spawning_call(message: AIMessage, call: ToolCall) -> SubordinateCall:
    """Return the first request of a new agent; its name is empty if it was not made."""
    call_id, task = call["id"] or "", str(call["args"].get("message", ""))
    name = next(iter(load_specifications(message, call_id)), "")
    return SubordinateCall(call_id, name, task, reset=True, tool=call["name"], is_new=True)


def build_typed_call(call_id: str, tool: str, fields: Mapping[str, Any]) -> SubordinateCall:
    """Return the request of a call of the tool that is named after a subordinate."""
    # Calls of a tool are independent: each begins a conversation.
    task = render_input(fields)
    return SubordinateCall(call_id, tool, task, reset=True, input=fields, tool=tool)


def is_typed_call(message: AIMessage, call: ToolCall) -> bool:
    """Return whether a call is one of the tool that is named after a subordinate."""
    # Beside `call_subordinate`, only such a call has a thread under its id.
    threads: Any = message.response_metadata.get(THREADS_KEY)
    return isinstance(threads, Mapping) and call["id"] in threads


def is_response_message(message: ToolMessage) -> bool:
    """Return whether a tool message answers a delegation."""
    return message.name in DELEGATING_TOOLS or DELEGATED_KEY in message.response_metadata


class RequestLimits(NamedTuple):
    """How far a request may go, and by when it must be answered."""

    hops: int = MAX_HOPS
    seconds: float | None = None  # for all candidates one after the other
    deadline: float | None = None  # of the first candidate, in seconds since 1970 (UTC)

    @classmethod
    def begin(
        cls, depth: int, rules: DelegationPolicy, timeout: float | None, config: Mapping[str, Any]
    ) -> RequestLimits:
        """Return the limits of a request that the agent with `config` sends now.

        `depth` is that of the tree, `timeout` the time of the first candidate.
        """
        seconds = rules.request_timeout
        deadline = compute_deadline(config, (timeout, seconds))
        above = get_context(config).request
        # Counted from the root: what no policy limits may pass the whole tree below.
        hops = rules.max_hops or max(MAX_HOPS, depth + (above.hops if above else 0))
        return cls(hops, seconds, deadline)

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
    """Return the request of a call in a message of `agent`; `more` has what it does not tell."""
    candidates = load_candidates(message, call.call_id)
    path = candidates.remaining[0] if candidates.remaining else (call.subordinate,)
    first, *route = path
    calls = (made for made in message.tool_calls if fan_out and made["id"] == fan_out.call_id)
    whole = next((made["args"].get("message") for made in calls), None)
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
        "why": candidates.reasons.get(path[-1], ""),
    }
    if call.input is not None:
        fields["input"] = dict(call.input)
    return DelegationRequest.model_validate({**fields, **more})


def load_candidates(message: AIMessage, call_id: str) -> Candidates:
    """Return the candidates for the request of a call; none if it names its subordinate."""
    routes: Mapping[str, Any] = message.response_metadata.get(ROUTES_KEY) or {}
    return Candidates.load(routes[call_id]) if call_id in routes else NO_CANDIDATES


def request_diff(sent: Mapping[str, Any], derived: DelegationRequest) -> dict[str, Any]:
    """Return the fields of a stored request that differ from the one derived from the message."""
    fields = derived.stored()
    return {key: value for key, value in sent.items() if fields.get(key) != value}


def request_as_sent(
    call: SubordinateCall,
    fan_out: FanOutCall | None,
    message: AIMessage,
    agent: str,
    thread_id: str,
) -> DelegationRequest:
    """Return the request of a call as it was sent to the first candidate."""
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


@dataclass(frozen=True, slots=True)
class RelayedRequest:
    """A request as received by a level that relays it, with new conversations if `reset`."""

    request: DelegationRequest
    reset: bool = False

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"request": self.request.stored(), "reset": self.reset}

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> RelayedRequest:
        """Return the relayed request from the JSON of `stored`."""
        return cls(DelegationRequest.load(stored["request"]), bool(stored["reset"]))

    @property
    def next_agent(self) -> str:
        """The next agent on its route."""
        return self.request.route[0]

    def build_next_request(self, id: str) -> DelegationRequest:
        """Return the request for the next agent, under a new id."""
        first, *rest = self.request.route
        path = self.request.path / first
        changed = {"id": id, "current": first, "path": path, "route": tuple(rest)}
        return self.request.model_copy(update=changed)
