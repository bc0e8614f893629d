"""A foreign graph's own state: handed from one segment of its thread to the next, and read.

LangGraph keeps the state of a nested graph under the task that runs it, and each request is a task
of its own. So the last checkpoint of the graph is copied to where the next request runs, and the
graph goes on from there, as it would on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)

from echelons.checkpoints.delta_channels import MESSAGES
from echelons.checkpoints.namespaces import find_run_level, get_namespace_depth
from echelons.checkpoints.queries import (
    AllCheckpoints,
    ChannelWrites,
    OneCheckpoint,
    ReadPlan,
    Saver,
)
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import CarriedState, Head
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY, DeltaSnapshot

CARRIED_KEY = "carried"
"""Metadata key of a copied checkpoint, in which the graph has not begun with its request."""


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """Stores a checkpoint in the namespace of a config; a query, so that plans can contain it."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata

    def get(self, saver: Saver) -> RunnableConfig:
        """Store it and return its address."""
        versions = self.checkpoint["channel_versions"]
        return saver.put(self.config, self.checkpoint, self.metadata, versions)

    async def aget(self, saver: Saver) -> RunnableConfig:
        """Async version of `get`."""
        versions = self.checkpoint["channel_versions"]
        return await saver.aput(self.config, self.checkpoint, self.metadata, versions)


def plan_carrying(
    previous: Head, known: Head | None, channels: Mapping[str, Any], config: Mapping[str, Any]
) -> ReadPlan[CarriedState | None]:
    """Copy a graph's state to where it is about to run, and return what it holds.

    Returns `None` if there is nothing to copy, or if the graph has begun with the request.

    Args:
        previous: The end of the thread's latest segment.
        known: The end of the graph in the latest segment that it has finished, if there is one.
        channels: The graph's channels.
        config: The config of the task that runs the graph.
    """
    given = config["configurable"]
    here = OneCheckpoint(str(given["thread_id"]), str(given["checkpoint_ns"]))
    saved: CheckpointTuple | None = yield here
    if saved is not None:
        # A process that died after the copy left it alone in the namespace.
        copied = CARRIED_KEY in saved.metadata
        return _build_carried_state(saved.checkpoint) if copied else None
    found = yield from _find_state(
        previous, known, here.thread_id, require_identity(config).thread_id
    )
    if found is None:
        return None
    checkpoint = yield from _copy_checkpoint(found, channels)
    metadata: Any = {
        "source": "fork",
        "step": found.metadata.get("step", 0),
        "parents": given.get(CHECKPOINT_MAP_KEY, {}),
        CARRIED_KEY: True,
    }
    yield CheckpointCopy(cast("RunnableConfig", config), checkpoint, metadata)
    return _build_carried_state(checkpoint)


def read_graph_calls(
    rows: Sequence[CheckpointTuple], levels: Iterable[str]
) -> ReadPlan[dict[str, list[BaseMessage]]]:
    """Read the tool calls of the foreign graph of a thread, and their answers, by segment.

    Includes those of graphs inside it, and of a request that failed or is not finished.

    Args:
        rows: All checkpoints of the thread, newest first.
        levels: The namespaces of its segments.
    """
    found: dict[str, list[BaseMessage]] = {level: [] for level in levels}
    depth = get_namespace_depth(next(iter(found), ""))
    latest: dict[str, CheckpointTuple] = {}
    for row in reversed(rows):
        latest[row.config["configurable"]["checkpoint_ns"]] = row
    seen: set[str] = set()
    for namespace, row in latest.items():
        level = find_run_level(namespace, depth)
        if level in found:
            # A graph's state holds the messages of earlier requests, too.
            new = {message.id or str(message): message for message in (yield from _read_calls(row))}
            found[level] += [
                _strip_records(message) for key, message in new.items() if key not in seen
            ]
            seen |= new.keys()
    return found


def _read_calls(row: CheckpointTuple) -> ReadPlan[list[BaseMessage]]:
    """Read the messages of a graph that are tool calls, or answers of tools."""
    checkpoint = row.checkpoint
    held = checkpoint["channel_values"].get(MESSAGES)
    writes = list(row.pending_writes or ())
    if held is None and MESSAGES in checkpoint["channel_versions"]:
        histories = yield ChannelWrites(row.config, (MESSAGES,))
        history = histories.get(MESSAGES) or {}
        held, writes = history.get("seed"), [*history.get("writes", ()), *writes]
    written = [held, *(value for _, channel, value in writes if channel == MESSAGES)]
    return [
        message
        for message in _iterate_messages(written)
        if isinstance(message, ToolMessage)
        or (isinstance(message, AIMessage) and message.tool_calls)
    ]


def _strip_records(message: BaseMessage) -> BaseMessage:
    """Return a message without the records of a tree that a graph contains: they are not ours."""
    empty: dict[str, Any] = {"response_metadata": {}}
    if isinstance(message, ToolMessage):
        empty["artifact"] = None
    return message.model_copy(update=empty)


def _iterate_messages(values: Iterable[Any]) -> Iterator[BaseMessage]:
    for value in values:
        held = value.value if isinstance(value, DeltaSnapshot) else value
        for each in held if isinstance(held, (list, tuple)) else (held,):
            if isinstance(each, BaseMessage):
                yield each


def _find_state(
    previous: Head, known: Head | None, thread_id: str, agent_thread_id: str
) -> ReadPlan[CheckpointTuple | None]:
    """Return the graph's last checkpoint, that of an unfinished request if that is the latest."""
    level = previous["checkpoint_ns"]
    depth = get_namespace_depth(level)
    if not known or find_run_level(known["checkpoint_ns"], depth) != level:
        rows: list[CheckpointTuple] = yield AllCheckpoints(
            thread_id, {"agent_thread_id": agent_thread_id}
        )
        for row in rows:
            namespace = row.config["configurable"]["checkpoint_ns"]
            own = get_namespace_depth(namespace) == depth + 1
            if own and find_run_level(namespace, depth) == level:
                return row
    if not known:
        return None
    return (yield OneCheckpoint(thread_id, known["checkpoint_ns"], known["checkpoint_id"]))  # type: ignore[no-any-return]  # a plan is sent what it asked for


def _copy_checkpoint(saved: CheckpointTuple, channels: Mapping[str, Any]) -> ReadPlan[Checkpoint]:
    """Return a checkpoint with its delta channels whole, since it has no past to replay.

    It keeps its id: in a fork, LangGraph looks for a state that is older than where it began.
    """
    values = dict(saved.checkpoint["channel_values"])
    absent = tuple(
        name
        for name in saved.checkpoint["channel_versions"]
        if name not in values and isinstance(channels.get(name), DeltaChannel)
    )
    found: Mapping[str, Any] = (yield ChannelWrites(saved.config, absent)) if absent else {}
    for name in absent:
        history, empty = found.get(name) or {}, channels[name]
        channel = empty.from_checkpoint(history.get("seed", empty.typ()))
        channel.replay_writes(history.get("writes") or ())
        values[name] = DeltaSnapshot(channel.get())
    return cast("Checkpoint", {**saved.checkpoint, "channel_values": values})


def _build_carried_state(checkpoint: Checkpoint) -> CarriedState:
    held = checkpoint["channel_values"].get(MESSAGES)
    held = held.value if isinstance(held, DeltaSnapshot) else held
    return CarriedState(tuple(held) if isinstance(held, (list, tuple)) else ())
