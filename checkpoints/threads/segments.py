"""Reads a thread's segments back: the chain that `reason` sees and never stores again.

A segment keeps its own messages and the end of the one before it. Ends never change, so
what was read once is kept in a small cache, unless a call of it may still be answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.constants import START

from echelons.checkpoints.delta_channels import (
    CHANNELS,
    HEADS,
    MESSAGES,
    rebuild,
    reduce_entries,
)
from echelons.checkpoints.inherited_config import saver_of
from echelons.checkpoints.namespaces import depth_of
from echelons.checkpoints.queries import (
    AllCheckpoints,
    ChannelWrites,
    LatestId,
    OneCheckpoint,
    Plan,
    Saver,
    aread,
    read,
)
from echelons.checkpoints.threads.late_results import late_answers, open_calls
from echelons.checkpoints.threads.pending_work import is_at_work
from echelons.identity.thread_history import Head, Past

KEPT = 256
"""Threads whose past the cache keeps, the least recently used forgotten first."""
EARLIER = "earlier_turns"
"""Key of an input's metadata: how many turns before it have been pruned."""


class Segment(NamedTuple):
    """What is read of one segment that has ended.

    Attributes:
        past: What it left.
        previous: Where the one before it ended.
        closed: Whether every call of it is answered; else an answer may still come.
    """

    past: Past
    previous: Head | None
    closed: bool = True


class SavedHistory:
    """The history of a compiled tree, read through whatever saver a run uses."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, OneCheckpoint], Past] = OrderedDict()
        self._lock = Lock()

    def durable(self, config: Mapping[str, Any]) -> bool:
        """Return whether the run has a saver, its superior's included."""
        return saver_of(config["configurable"]) is not None

    def head(self, config: Mapping[str, Any]) -> Head:
        """Return the end of the segment that has just run under `config`."""
        saver = saver_of(config["configurable"])
        end = _end(config)
        return _head(end, end.get(saver)) if saver else Head()

    async def ahead(self, config: Mapping[str, Any]) -> Head:
        """Return the same in an event loop."""
        saver = saver_of(config["configurable"])
        end = _end(config)
        return _head(end, await end.aget(saver)) if saver else Head()

    def before(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        """Return what a segment and all before it leave to the next."""
        saver = saver_of(config["configurable"])
        return read(saver, self._chain(saver, head, config)) if saver and head else Past()

    async def abefore(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        """Return the same in an event loop."""
        saver = saver_of(config["configurable"])
        return await aread(saver, self._chain(saver, head, config)) if saver and head else Past()

    def _chain(self, saver: Saver, head: Head, config: Mapping[str, Any]) -> Plan[Past]:
        thread_id = str(config["configurable"]["thread_id"])
        last = end = segment_end(head, thread_id)
        newer: list[Past] = []
        known: Past | None = None
        closed = True
        while end and (known := self._recall(saver, end)) is None:
            segment = yield from segment_plan(end)
            newer.append(segment.past)
            closed = closed and segment.closed
            end = segment_end(segment.previous, thread_id)
        past = joined([*([known] if known else ()), *reversed(newer)])
        past = past._replace(heads=(yield from found_ends(past.heads, thread_id)))
        if newer and last and closed:
            self._keep(saver, last, past)
        return past

    def _recall(self, saver: Saver, end: OneCheckpoint) -> Past | None:
        with self._lock:
            key = (id(saver), end)
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def _keep(self, saver: Saver, end: OneCheckpoint, past: Past) -> None:
        # Only the whole is kept: a copy for each end of the chain would grow with the square.
        with self._lock:
            self._known[id(saver), end] = past
            while len(self._known) > KEPT:
                self._known.popitem(last=False)


def joined(pasts: Sequence[Past]) -> Past:
    """Return what several segments leave together, oldest first."""
    messages = tuple(message for past in pasts for message in past.messages)
    return Past(messages, reduce_entries({}, [past.heads for past in pasts]))


def found_ends(heads: Mapping[str, Head], thread_id: str) -> Plan[Mapping[str, Head]]:
    """Return heads with the ends of threads whose superior was cut short before it knew them."""
    found = dict(heads)
    for thread, head in heads.items():
        if "checkpoint_id" not in head:
            rows = yield AllCheckpoints(thread_id, {"agent_thread_id": thread})
            for latest in segments_of(rows)[:1]:
                given = latest.config["configurable"]
                found[thread] = {
                    **head,
                    "checkpoint_ns": str(given["checkpoint_ns"]),
                    "checkpoint_id": str(given["checkpoint_id"]),
                }
    return found


def segments_of(rows: list[CheckpointTuple]) -> list[CheckpointTuple]:
    """Return the latest checkpoint of each of one thread's segments, newest first.

    Args:
        rows: Checkpoints of one thread, newest first; its delegations' are among them.
    """
    latest: dict[str, CheckpointTuple] = {}
    for row in rows:
        latest.setdefault(str(row.config["configurable"]["checkpoint_ns"]), row)
    if not latest:
        return []
    # A segment's namespace is the agent's node; delegations and foreign graphs run below.
    shortest = min(map(depth_of, latest))
    return [row for namespace, row in latest.items() if depth_of(namespace) == shortest]


def turns_in(inputs: Iterable[CheckpointTuple]) -> int:
    """Return how many turns some inputs of one root stand for, pruned ones counted."""
    noted = (cast("Mapping[str, Any]", row.metadata) for row in inputs)
    return sum(1 + int(metadata.get(EARLIER, 0)) for metadata in noted)


def segment_end(head: Mapping[str, Any] | None, thread_id: str) -> OneCheckpoint | None:
    """Return where a head points to, or `None` if its thread has not run yet."""
    if not head or "checkpoint_id" not in head:
        return None
    return OneCheckpoint(thread_id, head["checkpoint_ns"], head["checkpoint_id"])


def segment_plan(end: OneCheckpoint) -> Plan[Segment]:
    """Read one segment that has ended; an end without rows reads as an empty one."""
    saved: CheckpointTuple | None = yield end
    if saved is None:
        return Segment(Past(), None)
    past = yield from past_plan(saved, since(saved))
    late = yield from late_answers(saved, past.messages, ended=True)
    whole = past._replace(messages=(*past.messages, *late))
    return Segment(whole, previous_of(saved), closed=not open_calls(past.messages))


def previous_of(saved: CheckpointTuple) -> Head | None:
    """Return the end of the segment before the one that a checkpoint is of."""
    values = saved.checkpoint["channel_values"]
    return _input(values).get("previous") or values.get("previous")


def since(saved: CheckpointTuple) -> list[tuple[str, str, Any]]:
    """Return what has been written of a checkpoint's next step, if it has one.

    A task that has ended is part of the conversation, though others of its step have not. At
    the end of a segment there is no step; what was written there came from outside, later.
    """
    if not is_at_work(saved):
        return []
    given = _input(saved.checkpoint["channel_values"])
    taken = [(START, name, value) for name, value in given.items()]
    return taken + list(saved.pending_writes or ())


def past_plan(saved: CheckpointTuple, then: Sequence[tuple[str, str, Any]] = ()) -> Plan[Past]:
    """Read the messages and heads that a checkpoint holds, and those written then."""
    values = saved.checkpoint["channel_values"]
    absent = tuple(name for name in CHANNELS if name not in values)
    found: Mapping[str, Any] = (yield ChannelWrites(saved.config, absent)) if absent else {}
    held = {}
    for name, annotated in CHANNELS.items():
        history = found.get(name) or {}
        stored = values.get(name, history.get("seed"))
        new = [write for write in then if write[1] == name]
        held[name] = rebuild(annotated, stored, [*(history.get("writes") or ()), *new])
    return Past(tuple(held[MESSAGES]), held[HEADS])


def _input(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a graph was given that has not taken its first step."""
    given = values.get(START)
    return given if isinstance(given, Mapping) else {}


def _end(config: Mapping[str, Any]) -> LatestId:
    given = config["configurable"]
    return LatestId(str(given.get("thread_id", "")), str(given.get("checkpoint_ns", "")))


def _head(end: LatestId, checkpoint_id: str | None) -> Head:
    if checkpoint_id is None:
        return Head()
    return Head(checkpoint_ns=end.checkpoint_ns, checkpoint_id=checkpoint_id)
