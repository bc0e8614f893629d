"""The channels of a delegation of several requests, which are worked off one after another.

They are delta channels: a step stores what it adds, and a queue takes space in proportion to its
length, where whole values would take its square. A delegation of one request, the ordinary case,
stores its state whole: that costs nothing more, and has no history to be read.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, TypeAlias

from langgraph.channels import BinaryOperatorAggregate
from langgraph.channels.base import BaseChannel

from echelons.checkpoints.delta_channels import SNAPSHOT_INTERVAL, SpacedDeltaChannel
from echelons.graphs.parts_channel import PartsChannel

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
