"""The states of the graphs: a level's, the root's and a delegation graph's, and their channels.

Those of a queue are delta channels: a step stores what it adds, and a queue takes space in
proportion to its length, where whole values would take its square. A delegation of one request,
the ordinary case, stores its state whole: that costs nothing more, and has no history to be read.

LangGraph reads the states for every graph that it compiles. So annotations are not postponed, which
would be evaluated each time, and reducers stand in channels, whose signatures are not read.
"""

import operator
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, NotRequired, Self, TypeAlias

from langgraph.channels import BinaryOperatorAggregate
from langgraph.channels.base import BaseChannel
from langgraph.errors import EmptyChannelError

# LangGraph's server needs typing_extensions' TypedDict on Python 3.11.
from typing_extensions import TypedDict

from echelons.checkpoints.delta_channels import (
    SNAPSHOT_INTERVAL,
    Entries,
    Messages,
    SpacedDeltaChannel,
)
from echelons.delegation.notice import keep_first


def merge_parts(held: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return both mappings merged; an entry that is `None` in `new` is deleted."""
    return {key: entry for key, entry in {**held, **new}.items() if entry is not None}


class PartsChannel(BaseChannel[dict[str, Any], dict[str, Any], dict[str, Any]]):
    """A channel of merged mappings that is absent from checkpoints while it is empty."""

    # LangGraph's own channel with a reducer would do, but for one thing: where a checkpoint lacks
    # it, LangGraph reads the whole history of the thread to make sure that it is empty.

    __slots__ = ("value",)

    def __init__(self, typ: Any = dict, key: str = "") -> None:
        super().__init__(typ, key)
        self.value: dict[str, Any] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartsChannel)

    def __hash__(self) -> int:
        return hash(PartsChannel)

    @property
    def ValueType(self) -> Any:  # noqa: N802  LangGraph's name
        """The type of the channel's value."""
        return dict[str, Any]

    @property
    def UpdateType(self) -> Any:  # noqa: N802  LangGraph's name
        """The type of an update."""
        return dict[str, Any]

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """Return a channel with a stored value."""
        held = self.__class__(self.typ, self.key)
        if isinstance(checkpoint, dict):
            held.value = checkpoint.copy()
        return held

    def copy(self) -> Self:
        """Return a copy of the channel."""
        return self.from_checkpoint(self.value)

    def update(self, values: Sequence[dict[str, Any]]) -> bool:
        """Merge updates into the value; return whether there were any."""
        for value in values:
            self.value = merge_parts(self.value, value)
        return bool(values)

    def is_available(self) -> bool:
        """Return whether the channel has entries."""
        return bool(self.value)

    def get(self) -> dict[str, Any]:
        """Return the entries."""
        if not self.value:
            raise EmptyChannelError
        return self.value


Parts: TypeAlias = Annotated[dict[str, Any], PartsChannel()]
"""Type of a state key with the responses of requests, by request id."""


WAITING = "waiting"
"""The state key of the requests that wait for the first to end."""


def take_requests(waiting: Sequence[Any] | None, writes: Sequence[Any]) -> list[Any]:
    """Fold writes into a list of requests: a list is added, a number is taken from the front."""
    left = list(waiting or ())
    for write in writes:
        left = left[write:] if isinstance(write, int) else [*left, *write]
    return left


def collect_answers(held: Sequence[Any] | None, writes: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the answers so far and those of further writes, in order."""
    return [*(held or ()), *chain.from_iterable(writes)]


def collect_entries(
    held: Mapping[str, Any] | None, writes: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the entries so far with those of further writes in their place."""
    entries = dict(held or {})
    for write in writes:
        entries.update(write)
    return entries


WaitingRequests: TypeAlias = Annotated[
    list[dict[str, Any]],
    SpacedDeltaChannel(take_requests, list, snapshot_frequency=SNAPSHOT_INTERVAL),
]
"""Type of a state key with the requests that wait for the first to end."""

Answers: TypeAlias = Annotated[
    list[Any], SpacedDeltaChannel(collect_answers, list, snapshot_frequency=SNAPSHOT_INTERVAL)
]
"""Type of a state key that collects answers, as messages in the order in which they come."""

LatestEntries: TypeAlias = Annotated[
    dict[str, Any], SpacedDeltaChannel(collect_entries, dict, snapshot_frequency=SNAPSHOT_INTERVAL)
]
"""Type of a state key that collects entries, such as heads by thread id; the last one counts."""


def store_whole(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a delegation graph for runs of one request, which have no queue."""
    whole: dict[str, BaseChannel[Any, Any, Any]] = {
        "messages": BinaryOperatorAggregate(list, operator.add),
        "heads": BinaryOperatorAggregate(dict, operator.or_),
        "parts": PartsChannel(),
    }
    for name, channel in whole.items():
        channel.key = name
    channels = {**graph["channels"], **whole}
    del channels[WAITING]
    nodes = {
        name: node.copy({"channels": _leave_out_waiting(node.channels)})
        for name, node in graph["nodes"].items()
    }
    named = ("input_channels", "stream_channels")
    return {
        **graph,
        "channels": channels,
        "nodes": nodes,
        **{name: _leave_out_waiting(graph[name]) for name in named},
    }


def _leave_out_waiting(names: Any) -> Any:
    return [name for name in names if name != WAITING] if isinstance(names, list) else names


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
