"""A foreign graph's own state, handed from one segment of its thread to the next.

LangGraph keeps the state of a nested graph under the task that runs it, and each request is a task
of its own. So the last checkpoint of the graph is copied to where the next request runs, and the
graph goes on from there, as it would on a thread of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    empty_checkpoint,
)

from echelons.checkpoints.delta_channels import MESSAGES
from echelons.checkpoints.namespaces import get_namespace_depth, is_below_run
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


def _find_state(
    previous: Head, known: Head | None, thread_id: str, agent_thread_id: str
) -> ReadPlan[CheckpointTuple | None]:
    """Return the graph's last checkpoint, that of an unfinished request if that is the latest."""
    level = previous["checkpoint_ns"]
    if not known or not is_below_run(known["checkpoint_ns"], level):
        rows: list[CheckpointTuple] = yield AllCheckpoints(
            thread_id, {"agent_thread_id": agent_thread_id}
        )
        for row in rows:
            namespace = row.config["configurable"]["checkpoint_ns"]
            own = get_namespace_depth(namespace) == get_namespace_depth(level) + 1
            if own and is_below_run(namespace, level):
                return row
    if not known:
        return None
    return (yield OneCheckpoint(thread_id, known["checkpoint_ns"], known["checkpoint_id"]))  # type: ignore[no-any-return]  # a plan is sent what it asked for


def _copy_checkpoint(saved: CheckpointTuple, channels: Mapping[str, Any]) -> ReadPlan[Checkpoint]:
    """Return a checkpoint under a new id, its delta channels whole: it has no past to replay."""
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
    fresh = empty_checkpoint()
    copied = {"id": fresh["id"], "ts": fresh["ts"], "channel_values": values}
    return cast("Checkpoint", {**saved.checkpoint, **copied})


def _build_carried_state(checkpoint: Checkpoint) -> CarriedState:
    held = checkpoint["channel_values"].get(MESSAGES)
    held = held.value if isinstance(held, DeltaSnapshot) else held
    return CarriedState(tuple(held) if isinstance(held, (list, tuple)) else ())
