"""Which checkpoints of a thread pruning keeps, by count, by age or by turns.

Each strategy chooses checkpoints of one thread, given newest first. Those that they and open
questions need are kept, too, and the latest of every segment. A checkpoint needs others for two
reasons. A delta channel without a snapshot is rebuilt from the checkpoints before; and a state
points to the ends of other segments, with `previous` and `heads`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.delta_channels import DELTA_CHANNELS, HEADS, MESSAGES
from echelons.checkpoints.queries import AllCheckpoints, ReadPlan
from echelons.checkpoints.run_config import get_namespace_depth
from echelons.checkpoints.threads.pending_work import has_work_left
from echelons.checkpoints.threads.segments import EARLIER_TURNS_KEY, count_turns, read_past
from echelons.errors import invalid_strategy
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import DELTA_COUNTERS_KEY, DeltaSnapshot
from echelons.text.input_limits import shorten_repr


class Strategy(ABC):
    """Chooses the checkpoints of a thread's past that pruning keeps."""

    @abstractmethod
    def chosen(self, rows: Sequence[CheckpointTuple], at: datetime) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints to keep.

        Args:
            rows: All checkpoints of a thread, newest first.
            at: The current time.
        """


@dataclass(frozen=True, slots=True)
class KeepLatest(Strategy):
    """Keeps the latest checkpoints of every segment of every agent.

    Attributes:
        count: Number of checkpoints for each segment.

    Raises:
        InvalidInput: It is no integer, or less than 1.
    """

    count: int = 1

    def __post_init__(self) -> None:
        _refuse_invalid(not _is_count(self.count, 1), "KeepLatest", self.count, "1 or more")

    def chosen(self, rows: Sequence[CheckpointTuple], at: datetime) -> Iterator[CheckpointTuple]:
        """Yield the first checkpoints of each namespace."""
        seen: Counter[str] = Counter()
        for row in rows:
            namespace = _get_namespace(row)
            seen[namespace] += 1
            if seen[namespace] <= self.count:
                yield row


@dataclass(frozen=True, slots=True)
class KeepYounger(Strategy):
    """Keeps checkpoints up to an age.

    Attributes:
        age: The maximum age.

    Raises:
        InvalidInput: It is no timedelta, or negative.
    """

    age: timedelta

    def __post_init__(self) -> None:
        is_age = isinstance(self.age, timedelta) and self.age >= timedelta()
        _refuse_invalid(not is_age, "KeepYounger", self.age, "no negative time")

    def chosen(self, rows: Sequence[CheckpointTuple], at: datetime) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints whose time is recent, or unknown."""
        for row in rows:
            # No time, or one without a zone, is unknown.
            with suppress(ValueError, TypeError):
                if at - datetime.fromisoformat(row.checkpoint["ts"]) > self.age:
                    continue
            yield row


@dataclass(frozen=True, slots=True)
class KeepTurns(Strategy):
    """Keeps all checkpoints of the last finished turns, and of an unfinished turn.

    Attributes:
        count: Number of finished turns.

    Raises:
        InvalidInput: It is no integer, or less than 0.
    """

    count: int

    def __post_init__(self) -> None:
        _refuse_invalid(not _is_count(self.count, 0), "KeepTurns", self.count, "0 or more")

    def chosen(self, rows: Sequence[CheckpointTuple], at: datetime) -> Iterator[CheckpointTuple]:
        """Yield all checkpoints since the input of the first kept turn."""
        root_rows = [row for row in rows if not _get_namespace(row)]
        begun: dict[str, str] = {}
        for row in root_rows:
            if row.metadata.get("source") == "input":
                # Ids grow with time. Outside of sessions a turn has no id but its input's.
                input_id = row.checkpoint["id"]
                begun[str(row.metadata.get("turn_id") or input_id)] = input_id
        count = self.count + bool(root_rows and has_work_left(root_rows[0]))
        if count >= len(begun):
            yield from rows
        elif count:
            first = list(begun.values())[count - 1]
            yield from (row for row in rows if row.checkpoint["id"] >= first)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _get_namespace(row: CheckpointTuple) -> str:
    return str(row.config["configurable"]["checkpoint_ns"])


def _refuse_invalid(wrong: bool, name: str, value: object, limit: str) -> None:
    if wrong:
        raise invalid_strategy(f"{name}({shorten_repr(value)})", f"takes {limit}")


POINTER_KEYS = frozenset({"previous", "head"})
"""Keys of our states that point to the end of one segment."""


class NamespacePlace(NamedTuple):
    """Namespace and id of a checkpoint in a thread."""

    checkpoint_ns: str
    checkpoint_id: str


class Retention(NamedTuple):
    """The changes to a thread's checkpoints.

    Attributes:
        gone: Checkpoints to delete, because no kept one needs them.
        changed: Checkpoints to store again, with snapshots in place of delta channels.
    """

    gone: Collection[NamespacePlace]
    changed: Mapping[NamespacePlace, CheckpointTuple]


def plan_retention(thread_id: str, strategy: Strategy, at: datetime) -> ReadPlan[Retention]:
    """Keep what a strategy chooses, the latest of each namespace, and the ends they point to.

    A kept checkpoint of a level whose parent is not kept gets snapshots of its delta channels, so
    that it needs none before it. The reducers of a foreign graph's delta channels are unknown
    here: the checkpoints back to its last snapshot stay. The last input of each root stays too,
    and the first that stays records the number of turns before it, because lists of threads are
    built from inputs.
    """
    rows: list[CheckpointTuple] = yield AllCheckpoints(thread_id)
    levels = find_levels(rows)
    latest: dict[str, NamespacePlace] = {}
    for place in map(get_place, rows):
        latest.setdefault(place.checkpoint_ns, place)
    chosen = {*map(get_place, strategy.chosen(rows, at)), *latest.values()}
    inputs = {get_place(row): row for row in _find_first_inputs(rows, levels, chosen)}
    rows = [inputs.get(get_place(row), row) for row in rows]
    kept = yield from _plan_kept(rows, {*chosen, *inputs}, levels)
    return kept._replace(changed={**inputs, **kept.changed})


def plan_run_removal(thread_id: str, runs: Collection[str]) -> ReadPlan[Retention]:
    """Keep the checkpoints of other runs, and those of these runs that they need."""
    rows: list[CheckpointTuple] = yield AllCheckpoints(thread_id)
    others = [get_place(row) for row in rows if row.metadata.get("run_id") not in runs]
    return (yield from _plan_kept(rows, others, levels=()))


def get_place(row: CheckpointTuple) -> NamespacePlace:
    """Return the namespace and id of a checkpoint."""
    configurable = row.config["configurable"]
    return NamespacePlace(configurable["checkpoint_ns"], configurable["checkpoint_id"])


def find_levels(rows: Sequence[CheckpointTuple]) -> set[str]:
    """Return the namespaces of levels; delegations and foreign graphs run below them."""
    owners: dict[str, str] = {}
    shallowest: dict[str, int] = {}
    for row in rows:
        identity, namespace = Identity.from_metadata(row.metadata), get_place(row).checkpoint_ns
        if identity is not None:
            owner, depth = identity.thread_id, get_namespace_depth(namespace)
            owners[namespace] = owner
            shallowest[owner] = min(depth, shallowest.get(owner, depth))
    return {
        name for name, owner in owners.items() if get_namespace_depth(name) == shallowest[owner]
    }


def _find_first_inputs(
    rows: Sequence[CheckpointTuple], levels: Collection[str], chosen: Collection[NamespacePlace]
) -> Iterator[CheckpointTuple]:
    """Yield the first input of each root that stays, with the number of turns before it."""
    inputs: dict[str, list[CheckpointTuple]] = {}
    for row in rows:
        identity, namespace = Identity.from_metadata(row.metadata), get_place(row).checkpoint_ns
        root = identity is not None and not identity.superior_thread_id and namespace in levels
        if root and row.metadata.get("source") == "input":
            inputs.setdefault(namespace, []).append(row)
    for turns in inputs.values():
        staying = [row for row in turns if get_place(row) in chosen] or turns[:1]
        gone = [row for row in turns if row not in staying]
        first = staying[-1]
        earlier: Any = {EARLIER_TURNS_KEY: count_turns([first, *gone]) - 1}
        yield first._replace(metadata={**first.metadata, **earlier})


def _plan_kept(
    rows: Sequence[CheckpointTuple], wanted: Collection[NamespacePlace], levels: Collection[str]
) -> ReadPlan[Retention]:
    by_place = {get_place(row): row for row in rows}
    changed: dict[NamespacePlace, CheckpointTuple] = {}
    kept: set[NamespacePlace] = set()
    waiting = list(wanted)
    while waiting:
        place = waiting.pop()
        row = by_place.get(place)
        if row is None or place in kept:
            continue
        kept.add(place)
        stands = _get_parent(row) in wanted
        level = place.checkpoint_ns in levels
        if level and not stands and set() < _list_rebuilt_channels(row) <= DELTA_CHANNELS.keys():
            past = yield from read_past(row)
            held = {MESSAGES: list(past.messages), HEADS: dict(past.heads)}
            whole = row.checkpoint.copy()
            snapshots = {
                channel: DeltaSnapshot(held[channel]) for channel in _list_rebuilt_channels(row)
            }
            whole["channel_values"] = {**whole["channel_values"], **snapshots}
            row = changed[place] = row._replace(checkpoint=whole)
        waiting += _list_needed(row)
    return Retention(by_place.keys() - kept, changed)


def _list_needed(row: CheckpointTuple) -> Iterator[NamespacePlace]:
    parent = _get_parent(row)
    if parent and _list_rebuilt_channels(row):
        yield parent
    writes = ((channel, value) for _, channel, value in row.pending_writes or ())
    for channel, value in chain(row.checkpoint["channel_values"].items(), writes):
        held = value.value if isinstance(value, DeltaSnapshot) else value
        pointers: Iterable[Any] = [held] if channel in POINTER_KEYS else ()
        if channel == HEADS and isinstance(held, Mapping):
            pointers = held.values()
        for head in pointers:
            if isinstance(head, Mapping) and "checkpoint_id" in head:
                yield NamespacePlace(head["checkpoint_ns"], head["checkpoint_id"])


def _get_parent(row: CheckpointTuple) -> NamespacePlace | None:
    if not row.parent_config:
        return None
    configurable = row.parent_config["configurable"]
    return NamespacePlace(configurable["checkpoint_ns"], configurable["checkpoint_id"])


def _list_rebuilt_channels(row: CheckpointTuple) -> set[str]:
    """Return the delta channels that are rebuilt from earlier checkpoints."""
    checkpoint = row.checkpoint
    # LangGraph keeps a counter for each channel without a snapshot. One without a version was
    # never written: it is empty, and needs nothing.
    return {
        channel
        for channel in row.metadata.get(DELTA_COUNTERS_KEY) or ()
        if channel in checkpoint["channel_versions"] and channel not in checkpoint["channel_values"]
    }
