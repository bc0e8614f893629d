"""The states: what a level keeps, what a delegation keeps, what goes in and out."""

from __future__ import annotations

import operator
from typing import Annotated, Any, NotRequired

# LangGraph's server needs typing_extensions' TypedDict on Python 3.11.
from typing_extensions import TypedDict

from echelons.checkpoints.delta_channels import Entries, Messages
from echelons.graphs.parts_channel import Parts


class Conversation(TypedDict):
    """What a compiled tree takes and returns."""

    messages: Messages


class Level(TypedDict):
    """What one agent's level keeps of the current segment.

    Attributes:
        messages: The segment's own messages; earlier segments are read through `previous`.
        heads: The end of each subordinate thread, by thread id, in the order of their start.
        previous: The end of the segment before this one, if the thread had one.
        request: Id of the request that it works on.
        response: What the agent reported, if it did.
        forward: The request that it passes on, if it is for an agent further down.
        parts: What came of the requests of calls that make several, until all have ended.
    """

    messages: Messages
    heads: Entries
    previous: NotRequired[dict[str, Any] | None]
    request: NotRequired[str]
    response: NotRequired[dict[str, Any] | None]
    forward: NotRequired[dict[str, Any] | None]
    parts: NotRequired[Parts]


class Brief(TypedDict):
    """What a superior starts a segment with."""

    messages: Messages
    previous: NotRequired[dict[str, Any] | None]
    request: NotRequired[str]
    forward: NotRequired[dict[str, Any] | None]


class Outcome(TypedDict):
    """What a segment ends with."""

    messages: Messages
    response: NotRequired[dict[str, Any] | None]


class Delegation(TypedDict):
    """What a delegation graph works on.

    Attributes:
        queue: Orders still to be worked off, all for one thread.
        head: The end of that thread's latest segment.
        messages: The answers so far.
        heads: The thread's end, for the superior's state.
        parts: What came of requests that are parts of a call.
    """

    queue: list[dict[str, Any]]
    head: NotRequired[dict[str, Any] | None]
    messages: Annotated[list[Any], operator.add]
    heads: NotRequired[Annotated[dict[str, Any], operator.or_]]
    parts: NotRequired[Parts]


class Sent(TypedDict):
    """What a level sends to its delegation graph."""

    queue: list[dict[str, Any]]
    head: NotRequired[dict[str, Any] | None]


class Settled(TypedDict):
    """What a delegation graph gives back; keys with reducers, since several run side by side."""

    messages: Annotated[list[Any], operator.add]
    heads: NotRequired[Annotated[dict[str, Any], operator.or_]]
    parts: NotRequired[Parts]
