"""The states of the level graph and the delegation graph, with their inputs and outputs.

LangGraph reads them for every graph that it compiles. So their annotations are not postponed, which
would be evaluated each time, and their reducers stand in channels, whose signatures are not read.
"""

from typing import Annotated, Any, NotRequired, TypeAlias

from langgraph.channels import BinaryOperatorAggregate

# LangGraph's server needs typing_extensions' TypedDict on Python 3.11.
from typing_extensions import TypedDict

from echelons.checkpoints.delta_channels import Entries, Messages
from echelons.graphs.channels import Answers, LatestEntries, Parts, WaitingRequests
from echelons.messaging.notice import keep_first

NoticeMark: TypeAlias = Annotated[str, BinaryOperatorAggregate(str, keep_first)]
"""Type of the state key with the mark of a thread's notices: the first that it was given stays."""


class Conversation(TypedDict):
    """Input and output of a compiled tree."""

    messages: Messages


class RootState(Conversation):
    """State of the root's level: the root's own thread."""

    # By thread id, in the order of their start.
    heads: Entries
    # The responses of unfinished calls with several requests, by request id.
    parts: NotRequired[Parts]
    notice_mark: NotRequired[NoticeMark]


class RootInput(Conversation):
    """Input of the root's level: that of a tree, and the mark that a new thread gets."""

    notice_mark: NotRequired[NoticeMark]


class LevelState(RootState):
    """State of a level below the root: its segment; earlier ones are read through `previous`."""

    previous: NotRequired[dict[str, Any] | None]
    request: NotRequired[str]
    response: NotRequired[dict[str, Any] | None]
    # The request to relay, if it is for an agent further down.
    forward: NotRequired[dict[str, Any] | None]


class LevelInput(TypedDict):
    """Input of a level: the start of a segment."""

    messages: Messages
    previous: NotRequired[dict[str, Any] | None]
    request: NotRequired[str]
    forward: NotRequired[dict[str, Any] | None]
    notice_mark: NotRequired[NoticeMark]


class LevelOutput(TypedDict):
    """Output of a level: the end of a segment."""

    messages: Messages
    response: NotRequired[dict[str, Any] | None]
    notice_mark: NotRequired[NoticeMark]


class DelegationState(TypedDict):
    """State of a delegation graph, whose requests are all for one thread."""

    # The request that comes next, and what an earlier version has queued behind it.
    queue: list[dict[str, Any]]
    waiting: NotRequired[WaitingRequests]
    # Of the thread's latest segment.
    head: NotRequired[dict[str, Any] | None]
    # The answers so far.
    messages: Answers
    # For the superior's state.
    heads: NotRequired[LatestEntries]
    # The responses of requests that are parts of a call, by request id.
    parts: NotRequired[LatestEntries]


class DelegationInput(TypedDict):
    """Input of a delegation graph, sent by a level."""

    queue: list[dict[str, Any]]
    waiting: NotRequired[WaitingRequests]
    head: NotRequired[dict[str, Any] | None]


class DelegationOutput(TypedDict):
    """Output of a delegation graph; its keys have reducers, as several run in parallel."""

    messages: Answers
    heads: NotRequired[LatestEntries]
    parts: NotRequired[LatestEntries]
