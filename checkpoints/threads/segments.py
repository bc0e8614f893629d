"""Reads the segments of a thread: the past that `reason` sees, but does not store again.

A segment stores its own messages and a pointer to the end of the one before it. Ends never
change, so they are cached, unless a call in a segment may still be answered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.constants import START

from echelons.checkpoints.delta_channels import (
    DELTA_CHANNELS,
    HEADS,
    MESSAGES,
    rebuild_channel,
    reduce_entries,
)
from echelons.checkpoints.queries import (
    AllCheckpoints,
    ChannelWrites,
    LatestCheckpointId,
    OneCheckpoint,
    ReadPlan,
    Saver,
    arun_plan,
    run_plan,
)
from echelons.checkpoints.run_config import get_namespace_depth, get_saver
from echelons.checkpoints.threads.graph_state import (
    list_open_calls,
    plan_carrying,
    read_late_answers,
)
from echelons.checkpoints.threads.pending_work import has_work_left
from echelons.identity.lineage import require_identity
from echelons.identity.thread_history import CarriedState, Head, Past

MAX_CACHED_PASTS = 256
"""Number of threads of one saver whose past is cached; the least recently used goes first."""
EARLIER_TURNS_KEY = "earlier_turns"
"""Metadata key of an input checkpoint: the number of pruned turns before it."""


class ThreadSegment(NamedTuple):
    """One segment that has ended.

    Attributes:
        past: Its messages and heads.
        previous: The end of the segment before it.
        closed: Whether all its calls are answered; otherwise a late answer may still come.
    """

    past: Past
    previous: Head | None
    closed: bool = True


class SavedHistory:
    """The `GraphHistory` of a tree, read through the saver of each run, and cached with it."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Saver, OrderedDict[OneCheckpoint, Past]] = (
            WeakKeyDictionary()
        )
        self._lock = Lock()

    def is_durable(self, config: Mapping[str, Any]) -> bool:
        """Return whether the run has a saver, its own or an inherited one."""
        return get_saver(config["configurable"]) is not None

    def load_head(self, config: Mapping[str, Any]) -> Head:
        """Return the end of the segment that has just run under a config."""
        saver = get_saver(config["configurable"])
        end = _build_end_query(config)
        return _build_head(end, end.get(saver)) if saver else Head()

    async def aload_head(self, config: Mapping[str, Any]) -> Head:
        """Async version of `load_head`."""
        saver = get_saver(config["configurable"])
        end = _build_end_query(config)
        return _build_head(end, await end.aget(saver)) if saver else Head()

    def load_past(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        """Return the messages and heads of a segment and all before it."""
        saver = get_saver(config["configurable"])
        return run_plan(saver, self._read_chain(saver, head, config)) if saver and head else Past()

    async def aload_past(self, head: Head | None, config: Mapping[str, Any]) -> Past:
        """Async version of `load_past`."""
        saver = get_saver(config["configurable"])
        if not saver or not head:
            return Past()
        return await arun_plan(saver, self._read_chain(saver, head, config))

    def carry_state(
        self,
        previous: Head | None,
        past: Past,
        channels: Mapping[str, Any],
        config: Mapping[str, Any],
    ) -> CarriedState | None:
        """Give a graph that is about to run with `config` the state that it had, and return it."""
        saver = get_saver(config["configurable"])
        if not saver or not previous:
            return None
        finished = past.heads.get(require_identity(config).thread_id)
        return run_plan(saver, plan_carrying(previous, finished, channels, config))

    async def acarry_state(
        self,
        previous: Head | None,
        past: Past,
        channels: Mapping[str, Any],
        config: Mapping[str, Any],
    ) -> CarriedState | None:
        """Async version of `carry_state`."""
        saver = get_saver(config["configurable"])
        if not saver or not previous:
            return None
        finished = past.heads.get(require_identity(config).thread_id)
        return await arun_plan(saver, plan_carrying(previous, finished, channels, config))

    def _read_chain(self, saver: Saver, head: Head, config: Mapping[str, Any]) -> ReadPlan[Past]:
        thread_id = str(config["configurable"]["thread_id"])
        last = end = find_segment_end(head, thread_id)
        newer: list[Past] = []
        cached: Past | None = None
        closed = True
        while end and (cached := self._find_cached(saver, end)) is None:
            segment = yield from read_segment(end)
            newer.append(segment.past)
            closed = closed and segment.closed
            end = find_segment_end(segment.previous, thread_id)
        past = join_pasts([*([cached] if cached else ()), *reversed(newer)])
        past = past._replace(heads=(yield from resolve_heads(past.heads, thread_id)))
        if newer and last and closed:
            self._cache_past(saver, last, past)
        return past

    def _find_cached(self, saver: Saver, end: OneCheckpoint) -> Past | None:
        with self._lock:
            pasts = self._known.get(saver)
            if pasts and end in pasts:
                pasts.move_to_end(end)
                return pasts[end]
            return None

    def _cache_past(self, saver: Saver, end: OneCheckpoint, past: Past) -> None:
        # Only the complete past is cached: a copy for each segment would grow with the square.
        with self._lock:
            pasts = self._known.setdefault(saver, OrderedDict())
            pasts[end] = past
            while len(pasts) > MAX_CACHED_PASTS:
                pasts.popitem(last=False)


def join_pasts(pasts: Sequence[Past]) -> Past:
    """Return the pasts of several segments, oldest first, as one.

    Messages that a middleware has cut off are left out.
    """
    first = next((n for n, past in reversed([*enumerate(pasts)]) if past.cuts), 0)
    messages = tuple(message for past in pasts[first:] for message in past.messages)
    heads = reduce_entries({}, [past.heads for past in pasts])
    return Past(messages, heads, pasts[-1].values if pasts else {})


def resolve_heads(heads: Mapping[str, Head], thread_id: str) -> ReadPlan[Mapping[str, Head]]:
    """Return heads, completed with ends that an interrupted superior had not recorded yet."""
    resolved = dict(heads)
    for thread, head in heads.items():
        if "checkpoint_id" not in head:
            rows = yield AllCheckpoints(thread_id, {"agent_thread_id": thread})
            for latest in list_segments(rows)[:1]:
                configurable = latest.config["configurable"]
                end = {key: str(configurable[key]) for key in ("checkpoint_ns", "checkpoint_id")}
                resolved[thread] = cast("Head", {**head, **end})
    return resolved


def list_segments(rows: list[CheckpointTuple]) -> list[CheckpointTuple]:
    """Return the latest checkpoint of each of one thread's segments, newest first.

    Args:
        rows: Checkpoints of one thread, newest first, those of its delegations included.
    """
    latest: dict[str, CheckpointTuple] = {}
    for row in rows:
        latest.setdefault(str(row.config["configurable"]["checkpoint_ns"]), row)
    if not latest:
        return []
    # A segment's namespace is that of the agent's node; delegations and foreign graphs run below.
    shortest = min(map(get_namespace_depth, latest))
    return [row for namespace, row in latest.items() if get_namespace_depth(namespace) == shortest]


def count_turns(inputs: Iterable[CheckpointTuple]) -> int:
    """Return the number of turns that some inputs of one root stand for, pruned ones included."""
    noted = (cast("Mapping[str, Any]", row.metadata).get(EARLIER_TURNS_KEY, 0) for row in inputs)
    # A caller's config may have had the key.
    return sum(1 + earlier if isinstance(earlier, int) else 1 for earlier in noted)


def find_segment_end(head: Mapping[str, Any] | None, thread_id: str) -> OneCheckpoint | None:
    """Return the checkpoint that a head points to, or `None` if its thread has not run yet."""
    if not head or "checkpoint_id" not in head:
        return None
    return OneCheckpoint(thread_id, head["checkpoint_ns"], head["checkpoint_id"])


def choose_branch_end(
    saved: CheckpointTuple, head: Mapping[str, Any] | None, latest: OneCheckpoint
) -> OneCheckpoint:
    """Return the end of a thread on the branch on which its superior has come to a checkpoint.

    Args:
        saved: The superior's checkpoint.
        head: The head of the thread that the superior then had.
        latest: The thread's newest checkpoint, on any branch.
    """
    ended = find_segment_end(head, latest.thread_id)
    # What began after a superior's latest checkpoint is part of its present step.
    is_newer = (latest.checkpoint_id or "") > saved.config["configurable"]["checkpoint_id"]
    return latest if ended is None or (is_newer and has_work_left(saved)) else ended


def read_segment(end: OneCheckpoint) -> ReadPlan[ThreadSegment]:
    """Read one segment that has ended; an empty one if its checkpoint does not exist."""
    saved: CheckpointTuple | None = yield end
    if saved is None:
        return ThreadSegment(Past(), None)
    past = yield from read_past(saved, list_pending_writes(saved))
    late = yield from read_late_answers(saved, past.messages, ended=True)
    whole = past._replace(messages=(*past.messages, *late))
    return ThreadSegment(whole, get_previous_head(saved), closed=not list_open_calls(past.messages))


def get_previous_head(saved: CheckpointTuple) -> Head | None:
    """Return the end of the segment before that of a checkpoint."""
    values = saved.checkpoint["channel_values"]
    return _get_input(values).get("previous") or values.get("previous")


def list_pending_writes(saved: CheckpointTuple) -> list[tuple[str, str, Any]]:
    """Return the writes of the step after a checkpoint, if there is one.

    The writes of a finished task belong to the conversation, even if other tasks of its step are
    open. At the end of a segment there is no next step; writes there came later, from outside.
    """
    if not has_work_left(saved):
        return []
    inputs = _get_input(saved.checkpoint["channel_values"])
    taken = [(START, name, value) for name, value in inputs.items()]
    return taken + list(saved.pending_writes or ())


def read_past(
    saved: CheckpointTuple, writes: Sequence[tuple[str, str, Any]] = ()
) -> ReadPlan[Past]:
    """Read the messages and heads at a checkpoint, with some further writes applied."""
    values = saved.checkpoint["channel_values"]
    absent = tuple(name for name in DELTA_CHANNELS if name not in values)
    histories: Mapping[str, Any] = (yield ChannelWrites(saved.config, absent)) if absent else {}
    held = {}
    for name, annotated in DELTA_CHANNELS.items():
        history = histories.get(name) or {}
        stored = values.get(name, history.get("seed"))
        new = [write for write in writes if write[1] == name]
        held[name] = rebuild_channel(annotated, stored, [*(history.get("writes") or ()), *new])
    cut = values.get("cut")
    cuts = isinstance(cut, Mapping) and bool(cut.get("past"))
    return Past(tuple(held[MESSAGES]), held[HEADS], values, cuts)


def _get_input(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the input of a graph that has not taken its first step; else an empty mapping."""
    value = values.get(START)
    return value if isinstance(value, Mapping) else {}


def _build_end_query(config: Mapping[str, Any]) -> LatestCheckpointId:
    configurable = config["configurable"]
    return LatestCheckpointId(
        str(configurable.get("thread_id", "")), str(configurable.get("checkpoint_ns", ""))
    )


def _build_head(end: LatestCheckpointId, checkpoint_id: str | None) -> Head:
    if checkpoint_id is None:
        return Head()
    return Head(checkpoint_ns=end.checkpoint_ns, checkpoint_id=checkpoint_id)
