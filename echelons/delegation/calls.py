"""Calls that make requests: ``Delegation`` is one request, ``Parted`` a call that makes several.

A call makes several because a model says so (``delegate_many``), because its task is one for
several agents, or because everybody who fits is asked at once. ``reason`` writes it into its
message, and puts the answer together when every part has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from echelons.delegation.join_policies import Join, join_called
from echelons.errors import UnreadableRecord
from echelons.identity.lineage import PARTS_KEY
from echelons.tree.names import CALL_SUBORDINATE

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, ToolCall


@dataclass(frozen=True, slots=True)
class Delegation:
    """A request that a call makes.

    Attributes:
        call_id: The call, or the part of one.
        subordinate: Whom it names; empty if it names nobody, and the task is to be routed.
        message: The task.
        reset: Whether it begins a conversation anew.
        group: The one of a call's tasks that it is for; several agents may be asked for one.
    """

    call_id: str
    subordinate: str
    message: str
    reset: bool
    group: int = 1

    @property
    def arguments(self) -> dict[str, Any]:
        """What a call that makes this request alone would say."""
        return {"message": self.message, "subordinate": self.subordinate, "reset": self.reset}


@dataclass(frozen=True, slots=True)
class Parted:
    """A call that makes several requests.

    Attributes:
        call_id: The call.
        join: When it has an answer, and which.
        parts: The requests, in order.
    """

    call_id: str
    join: Join
    parts: tuple[Delegation, ...]

    @property
    def tasks(self) -> dict[int, str]:
        """The tasks, by their groups."""
        return {each.group: each.message for each in self.parts}

    def stored(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            **self.join.stored(),
            "requests": [{**each.arguments, "group": each.group} for each in self.parts],
        }

    @classmethod
    def load(cls, call_id: str, stored: Mapping[str, Any]) -> Parted:
        """Return what is kept in ``stored``.

        Raises:
            UnreadableRecord: It is damaged.
        """
        try:
            parts = tuple(
                Delegation(part_id(call_id, place), **each)
                for place, each in enumerate(stored["requests"], start=1)
            )
            return cls(call_id, join_called(stored["join"], stored.get("n")), parts)
        except (AttributeError, KeyError, TypeError) as error:
            raise UnreadableRecord("Parted", f"{type(error).__name__}: {error}") from error


def part_id(call_id: str, place: int) -> str:
    """Return the id of a part of a call, as a call's id stands for the whole.

    Examples:
        >>> part_id("call-1", 2)
        'call-1/2'
    """
    return f"{call_id}/{place}"


def parted_of(message: AIMessage, call_id: str) -> Parted | None:
    """Return the several requests of a call, ``None`` if it makes one.

    Raises:
        UnreadableRecord: They are damaged.
    """
    kept: Any = message.response_metadata.get(PARTS_KEY) or {}
    if not isinstance(kept, Mapping):
        raise UnreadableRecord("Parted", "it is not stored as one")
    return Parted.load(call_id, kept[call_id]) if call_id in kept else None


def requests_of(
    message: AIMessage, calls: Iterable[ToolCall]
) -> Iterator[tuple[Delegation, Parted | None]]:
    """Yield the requests that calls of a message make, each with the call that it is a part of.

    Args:
        message: The message.
        calls: Those of its calls that are of interest.

    Raises:
        UnreadableRecord: What is kept of them is damaged.
    """
    for call in calls:
        call_id, args = call["id"] or "", call["args"]
        if parted := parted_of(message, call_id):
            yield from ((each, parted) for each in parted.parts)
        elif call["name"] == CALL_SUBORDINATE:
            # A call that a person wrote into a state may be anything; nobody is found for it.
            task, named = str(args.get("message", "")), str(args.get("subordinate") or "")
            yield Delegation(call_id, named, task, bool(args.get("reset", False))), None
