"""The requests of a model's calls: `SubordinateCall` is one, `FanOutCall` a call with several.

A call makes several requests if a model calls `delegate_many`, if its task is split among
several agents, or if all candidates are asked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from echelons.delegation.join_policies import JoinPolicy, load_join
from echelons.delegation.request import render_input
from echelons.errors import UnreadableRecord
from echelons.identity.lineage import (
    ASKED_KEY,
    DELEGATED_KEY,
    MENDED_KEY,
    PARTS_KEY,
    SPAWNED_KEY,
    THREADS_KEY,
)
from echelons.tree.names import (
    ASK,
    CALL_SUBORDINATE,
    DELEGATING_TOOLS,
    RESERVED_TOOLS,
    SPAWN_SUBORDINATE,
)

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, ToolCall, ToolMessage


@dataclass(frozen=True, slots=True)
class SubordinateCall:
    """A request made by a call.

    Attributes:
        call_id: Id of the call, or of its part (see `build_part_id`).
        subordinate: The subordinate named; empty if the task is to be routed.
        message: The task.
        reset: Whether it starts a new conversation.
        group: Number of the call's task that it belongs to; several agents may be asked to do
            the same task.
        context: The context of the request.
        thread_id: The thread that it goes on with, if it answers a question; empty for any other.
        route: The agents below the subordinate, down to the one whose question it answers.
        input: The fields of the input that the subordinate's contract declares; `None` for a task
            in words.
        tool: Name of the tool that was called.
        is_new: Whether the call makes the subordinate.
        budget: What it is granted, as it is stored; `None` for nothing of its own.
    """

    call_id: str
    subordinate: str
    message: str
    reset: bool
    group: int = 1
    context: Mapping[str, Any] = field(default_factory=dict, hash=False)
    thread_id: str = ""
    route: tuple[str, ...] = ()
    input: Mapping[str, Any] | None = field(default=None, hash=False)
    tool: str = CALL_SUBORDINATE
    is_new: bool = False
    budget: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of an equivalent `call_subordinate`."""
        given: dict[str, Any] = {
            "message": self.message,
            "subordinate": self.subordinate,
            "reset": self.reset,
        }
        if self.context:
            given["context"] = self.context
        if self.input is not None:
            given["input"] = self.input
        return given


@dataclass(frozen=True, slots=True)
class FanOutCall:
    """A call that makes several requests, in order, and the policy that joins the responses."""

    call_id: str
    join: JoinPolicy
    parts: tuple[SubordinateCall, ...]

    @property
    def tasks(self) -> dict[int, str]:
        """The tasks, by group."""
        return {each.group: each.message for each in self.parts}

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        requests = [{**each.arguments, "group": each.group} for each in self.parts]
        return {**self.join.stored(), "requests": requests}

    @classmethod
    def load(cls, call_id: str, stored: Mapping[str, Any]) -> FanOutCall:
        """Return the call from the JSON of `stored`.

        Raises:
            UnreadableRecord: It is damaged.
        """
        try:
            parts = tuple(
                SubordinateCall(build_part_id(call_id, place), **each)
                for place, each in enumerate(stored["requests"], start=1)
            )
            return cls(call_id, load_join(stored["join"], stored.get("n")), parts)
        except (AttributeError, KeyError, TypeError) as error:
            raise UnreadableRecord("FanOutCall", f"{type(error).__name__}: {error}") from error


def build_part_id(call_id: str, place: int) -> str:
    """Return the id of a part of a call, from its place among the parts (1 for the first)."""
    return f"{call_id}/{place}"


def load_fan_out(message: AIMessage, call_id: str) -> FanOutCall | None:
    """Return a call with several requests, or `None` if it makes only one.

    Raises:
        UnreadableRecord: They are damaged.
    """
    kept: Any = message.response_metadata.get(PARTS_KEY) or {}
    if not isinstance(kept, Mapping):
        raise UnreadableRecord("FanOutCall", "it is not stored as one")
    return FanOutCall.load(call_id, kept[call_id]) if call_id in kept else None


def iterate_requests(
    message: AIMessage, calls: Iterable[ToolCall]
) -> Iterator[tuple[SubordinateCall, FanOutCall | None]]:
    """Yield the requests of some of a message's calls, each with the call that it is part of."""
    for given in calls:
        call = find_meant_call(message, given)
        call_id, args = call["id"] or "", call["args"]
        if parted := load_fan_out(message, call_id):
            yield from ((each, parted) for each in parted.parts)
        elif call["name"] == SPAWN_SUBORDINATE or ("profile" in args and is_spawning_call(call)):
            yield _read_spawning_call(message, call), None
        elif call["name"] == CALL_SUBORDINATE:
            # A call that a person wrote into a state may have any arguments; it is then refused.
            task, named = str(args.get("message", "")), str(args.get("subordinate") or "")
            reset = "reset" in args and args["reset"]
            request = SubordinateCall(call_id, named, task, is_true(reset))
            if "context" in args and isinstance(args["context"], Mapping):
                request = replace(request, context=args["context"])
            if "input" in args and isinstance(args["input"], Mapping):
                task = task or render_input(args["input"])
                request = replace(request, message=task, input=args["input"])
            yield request, None
        elif is_typed_call(message, call):
            yield build_typed_call(call_id, call["name"], args), None


class MendedCall(dict[str, Any]):
    """A tool call with the arguments that its model means, in place of those that it wrote.

    Attributes:
        received: The arguments that were received.
    """

    received: Mapping[str, Any]

    @classmethod
    def build(cls, call: ToolCall, arguments: Mapping[str, Any]) -> ToolCall:
        """Return a call with other arguments."""
        mended: Any = cls(call, args=arguments)
        mended.received = getattr(call, "received", call["args"])
        whole: ToolCall = mended
        return whole


def is_built_in_call(message: AIMessage, name: str) -> bool:
    """Return whether a reply's calls of a tool are of the library's, which `ask` need not be."""
    return name in RESERVED_TOOLS or (name == ASK and ASKED_KEY in message.response_metadata)


def find_meant_call(message: AIMessage, call: ToolCall) -> ToolCall:
    """Return a call of a message with the arguments that are meant, where these are others."""
    kept: Any = message.response_metadata.get(MENDED_KEY)
    if not isinstance(kept, Mapping) or call["id"] not in kept:
        return call
    arguments = kept[call["id"]]
    return MendedCall.build(call, arguments) if isinstance(arguments, dict) else call


def is_true(given: object) -> bool:
    """Return whether an argument says true, in one of the forms that pydantic takes for it."""
    if isinstance(given, str):
        return given.strip().lower() in _TRUE_TEXTS
    return bool(given)


_TRUE_TEXTS = frozenset({"1", "on", "t", "true", "y", "yes"})


def load_specifications(message: AIMessage, call_id: str) -> Mapping[str, Any]:
    """Return the specifications of the spawned agents that a request may go to, by name."""
    kept: Any = message.response_metadata.get(SPAWNED_KEY) or {}
    found = kept.get(call_id) if isinstance(kept, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def is_spawning_call(call: ToolCall) -> bool:
    """Return whether a call of `call_subordinate` makes the subordinate that it calls."""
    args = call["args"]
    is_called = call["name"] == CALL_SUBORDINATE and not args.get("subordinate")
    return is_called and bool(args.get("profile"))


def _read_spawning_call(message: AIMessage, call: ToolCall) -> SubordinateCall:
    """Return the first request of a new agent; to nobody if it was not made."""
    call_id, task = call["id"] or "", str(call["args"].get("message", ""))
    name = next(iter(load_specifications(message, call_id)), "")
    return SubordinateCall(call_id, name, task, reset=True, tool=call["name"], is_new=True)


def build_typed_call(call_id: str, tool: str, fields: Mapping[str, Any]) -> SubordinateCall:
    """Return the request of a call of the tool that is named after a subordinate.

    As of any tool, each of its calls is for itself: it begins a conversation of its own.
    """
    task = render_input(fields)
    return SubordinateCall(call_id, tool, task, reset=True, input=fields, tool=tool)


def is_typed_call(message: AIMessage, call: ToolCall) -> bool:
    """Return whether a call is one of the tool that is named after a subordinate.

    Only such a call has a thread under its own id, beside those of `call_subordinate`.
    """
    threads: Any = message.response_metadata.get(THREADS_KEY)
    return isinstance(threads, Mapping) and call["id"] in threads


def is_response_message(message: ToolMessage) -> bool:
    """Return whether a tool message answers a delegation."""
    return message.name in DELEGATING_TOOLS or DELEGATED_KEY in message.response_metadata
