"""`ThreadStore`: reads the threads of a tree from any LangGraph saver.

Reads a thread, its events and subordinates, the trace of a root as a tree, and checks every
link. None of this needs the graph that wrote the checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.namespaces import depth_of
from echelons.checkpoints.queries import AllCheckpoints, OneCheckpoint, Plan, Saver, aread, read
from echelons.checkpoints.thread_events import Event, EventKind
from echelons.checkpoints.threads.late_results import late_answers
from echelons.checkpoints.threads.segments import (
    past_plan,
    previous_of,
    segment_end,
    segment_plan,
    segments_of,
    since,
    turns_in,
)
from echelons.checkpoints.threads.thread import Thread
from echelons.checkpoints.threads.trace import Link, Trace, links_of, trace_of
from echelons.errors import ThreadNotFound
from echelons.identity.lineage import METADATA_KEYS, Identity


@dataclass(frozen=True, slots=True)
class RootThread:
    """Summary of a root's thread, for lists.

    Attributes:
        id: LangGraph's `thread_id`.
        name: Its name; empty if it has none.
        agent: The root agent.
        turns: Number of turns, that is, of messages that the user sent.
        updated_at: Time of the last turn, ISO 8601, UTC.
        metadata: Metadata of the last turn, without the keys of the thread's identity.
    """

    id: str
    name: str
    agent: str
    turns: int
    updated_at: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


class ThreadStore:
    """Reads threads through any checkpointer; each method has an async version, `a…`.

    Args:
        saver: Any LangGraph checkpoint saver.
    """

    def __init__(self, saver: Saver) -> None:
        self._saver = saver

    def roots(self) -> list[RootThread]:
        """Return the root threads of the database, latest first."""
        return read(self._saver, _roots())

    async def aroots(self) -> list[RootThread]:
        """Async version of `roots`."""
        return await aread(self._saver, _roots())

    def get(self, thread_id: str, root: str | None = None) -> Thread:
        """Return a thread.

        Args:
            thread_id: Its own id.
            root: LangGraph's `thread_id`, to search in that tree only.

        Raises:
            ThreadNotFound: There is no such thread.
        """
        return read(self._saver, _thread(thread_id, root))

    async def aget(self, thread_id: str, root: str | None = None) -> Thread:
        """Async version of `get`."""
        return await aread(self._saver, _thread(thread_id, root))

    def events(self, thread_id: str, root: str | None = None) -> tuple[Event, ...]:
        """Return the events of a thread, oldest first.

        Raises:
            ThreadNotFound: There is no such thread.
        """
        return self.get(thread_id, root).events

    async def aevents(self, thread_id: str, root: str | None = None) -> tuple[Event, ...]:
        """Async version of `events`."""
        return (await self.aget(thread_id, root)).events

    def subordinates(self, thread_id: str, root: str | None = None) -> tuple[str, ...]:
        """Return the ids of the subordinate threads that a thread called, in order.

        Raises:
            ThreadNotFound: There is no such thread.
        """
        return _started(self.get(thread_id, root))

    async def asubordinates(self, thread_id: str, root: str | None = None) -> tuple[str, ...]:
        """Async version of `subordinates`."""
        return _started(await self.aget(thread_id, root))

    def trace(self, root: str) -> Trace:
        """Return the threads under a root as a tree, with their requests and tool calls.

        Raises:
            ThreadNotFound: There is no such root thread.
        """
        return read(self._saver, _trace(root))

    async def atrace(self, root: str) -> Trace:
        """Async version of `trace`."""
        return await aread(self._saver, _trace(root))

    def verify(self, root: str) -> list[Link]:
        """Return every link between the threads under a root, with its state.

        Raises:
            ThreadNotFound: There is no such root thread.
        """
        return links_of(self.trace(root))

    async def averify(self, root: str) -> list[Link]:
        """Async version of `verify`."""
        return links_of(await self.atrace(root))


def _roots() -> Plan[list[RootThread]]:
    # One input checkpoint a turn is enough, and far fewer rows than all.
    inputs: list[CheckpointTuple] = yield AllCheckpoints(
        None, {"superior_thread_id": "", "source": "input"}
    )
    by_thread: dict[str, list[CheckpointTuple]] = {}
    for saved in inputs:
        identity = Identity.read(saved.metadata)
        if identity is not None:
            by_thread.setdefault(identity.thread_id, []).append(saved)
    found = [_root(turns_of(rows)) for rows in by_thread.values()]
    return sorted(found, key=lambda root: root.updated_at, reverse=True)


def turns_of(inputs: list[CheckpointTuple]) -> list[CheckpointTuple]:
    """Return the input checkpoints of a root itself, from all with its identity.

    Its delegation graphs take input too, in namespaces below its own.
    """
    depths = [depth_of(str(row.config["configurable"]["checkpoint_ns"])) for row in inputs]
    return [row for row, depth in zip(inputs, depths, strict=True) if depth == min(depths)]


def _root(turns: list[CheckpointTuple]) -> RootThread:
    latest = turns[0]
    identity = Identity.read(latest.metadata)
    assert identity is not None  # noqa: S101  rows are found by their identity
    return RootThread(
        id=str(latest.config["configurable"]["thread_id"]),
        name=identity.thread_name,
        agent=identity.agent,
        turns=turns_in(turns),
        updated_at=latest.checkpoint["ts"],
        metadata={key: value for key, value in latest.metadata.items() if key not in METADATA_KEYS},
    )


def _thread(thread_id: str, root: str | None) -> Plan[Thread]:
    rows: list[CheckpointTuple] = yield AllCheckpoints(root, {"agent_thread_id": thread_id})
    segments = segments_of(rows)
    if not segments:
        raise ThreadNotFound(thread_id)
    return (yield from read_thread(segments))


def read_thread(segments: list[CheckpointTuple]) -> Plan[Thread]:
    """Read the thread whose segments these are, given newest first."""
    newest = segments[0]
    identity = Identity.read(newest.metadata)
    assert identity is not None  # noqa: S101  rows are found by their identity
    given = newest.config["configurable"]
    end = OneCheckpoint(given["thread_id"], given["checkpoint_ns"], given["checkpoint_id"])
    own = yield from past_plan(newest, since(newest))
    late = yield from late_answers(newest, own.messages, ended=False)
    messages, count = (*own.messages, *late), 1
    previous = previous_of(newest)
    while earlier := segment_end(previous, end.thread_id):
        segment = yield from segment_plan(earlier)
        messages = (*segment.past.messages, *messages)
        previous, count = segment.previous, count + 1
    return Thread(
        id=identity.thread_id,
        agent=identity.agent,
        path=identity.path,
        root_thread_id=end.thread_id,
        superior_thread_id=identity.superior_thread_id,
        name=identity.thread_name if not identity.superior_thread_id else "",
        segments=count,
        messages=messages,
        latest=end,
    )


def _trace(root: str) -> Plan[Trace]:
    rows: list[CheckpointTuple] = yield AllCheckpoints(root)
    by_thread: dict[str, list[CheckpointTuple]] = {}
    tops: dict[str, None] = {}
    for row in rows:
        identity = Identity.read(row.metadata)
        if identity is not None:
            by_thread.setdefault(identity.thread_id, []).append(row)
            if not identity.superior_thread_id:
                tops.setdefault(identity.thread_id)
    if not tops:
        raise ThreadNotFound(root)
    threads: dict[str, Thread] = {}
    for thread_id, own in by_thread.items():
        threads[thread_id] = yield from read_thread(segments_of(own))
    # In a tree embedded in another graph, each run is a root of its own: show the latest.
    return trace_of(root if root in tops else next(iter(tops)), threads)


def _started(thread: Thread) -> tuple[str, ...]:
    ids = (
        str(event.data["sub_agent_thread_id"])
        for event in thread.events
        if event.kind is EventKind.DELEGATION
    )
    return tuple(dict.fromkeys(ids))
