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
    """State of the root's level: the root's own thread.

    Attributes:
        messages: The messages of the level.
        heads: The head of each subordinate thread, by thread id, in the order of their start.
        parts: The responses of unfinished calls with several requests, by request id.
        notice_mark: The mark of the notices in the agent's thread.
    """

    heads: Entries
    parts: NotRequired[Parts]
    notice_mark: NotRequired[NoticeMark]


class RootInput(Conversation):
    """Input of the root's level: that of a tree, and the mark that a new thread gets."""

    notice_mark: NotRequired[NoticeMark]


class LevelState(RootState):
    """State of a level below the root: the current segment of its thread.

    Its messages are those of the segment; earlier segments are read through `previous`.

    Attributes:
        previous: The head of the segment before this one, if there is one.
        request: Id of the request that the segment answers.
        response: The agent's report, if there is one.
        forward: The request to relay, if it is for an agent further down.
    """

    previous: NotRequired[dict[str, Any] | None]
    request: NotRequired[str]
    response: NotRequired[dict[str, Any] | None]
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
    """State of a delegation graph.

    Attributes:
        queue: The request that comes next, and what an earlier version has queued behind it.
        waiting: The requests after it, all for one thread.
        head: The head of that thread's latest segment.
        messages: The answers so far.
        heads: The thread's head, for the superior's state.
        parts: The responses of requests that are parts of a call, by request id.
    """

    queue: list[dict[str, Any]]
    waiting: NotRequired[WaitingRequests]
    head: NotRequired[dict[str, Any] | None]
    messages: Answers
    heads: NotRequired[LatestEntries]
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
