"""Which checkpoints of a thread must stay, so that the kept ones can still be read.

Plans that only read: `thread_admin` runs them in its transaction and deletes the rest. A
checkpoint needs others for two reasons. A delta channel without a snapshot is rebuilt from the
checkpoints before; and a state points to the ends of other segments, with `previous` and `heads`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.delta_channels import CHANNELS, HEADS, MESSAGES
from echelons.checkpoints.maintenance.retention_policies import Strategy
from echelons.checkpoints.namespaces import depth_of
from echelons.checkpoints.queries import AllCheckpoints, Plan
from echelons.checkpoints.threads.segments import EARLIER, past_plan, turns_in
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import DELTA_COUNTERS_KEY, DeltaSnapshot

POINTERS = frozenset({"previous", "head"})
"""Keys of our states that point to the end of one segment."""


class Place(NamedTuple):
    """Namespace and id of a checkpoint in a thread."""

    checkpoint_ns: str
    checkpoint_id: str


class Kept(NamedTuple):
    """The changes to a thread's checkpoints.

    Attributes:
        gone: Checkpoints to delete, because no kept one needs them.
        changed: Checkpoints to store again, with snapshots in place of delta channels.
    """

    gone: Collection[Place]
    changed: Mapping[Place, CheckpointTuple]


def chosen_only(thread_id: str, strategy: Strategy, at: datetime) -> Plan[Kept]:
    """Keep what a strategy chooses, the latest of each namespace, and the ends they point to.

    A kept checkpoint of a level whose parent is not kept gets snapshots of its delta channels, so
    that it needs none before it. The reducers of a foreign graph's delta channels are unknown
    here: the checkpoints back to its last snapshot stay. The last input of each root stays too,
    and the first that stays records the number of turns before it, because lists of threads are
    built from inputs.
    """
    rows: list[CheckpointTuple] = yield AllCheckpoints(thread_id)
    levels = levels_of(rows)
    latest: dict[str, Place] = {}
    for place in map(place_of, rows):
        latest.setdefault(place.checkpoint_ns, place)
    chosen = {*map(place_of, strategy.chosen(rows, at)), *latest.values()}
    inputs = {place_of(row): row for row in _first_inputs(rows, levels, chosen)}
    rows = [inputs.get(place_of(row), row) for row in rows]
    kept = yield from _kept(rows, {*chosen, *inputs}, levels)
    return kept._replace(changed={**inputs, **kept.changed})


def without_runs(thread_id: str, runs: Collection[str]) -> Plan[Kept]:
    """Keep the checkpoints of other runs, and those of these runs that they need."""
    rows: list[CheckpointTuple] = yield AllCheckpoints(thread_id)
    others = [place_of(row) for row in rows if row.metadata.get("run_id") not in runs]
    return (yield from _kept(rows, others, levels=()))


def place_of(row: CheckpointTuple) -> Place:
    """Return the namespace and id of a checkpoint."""
    given = row.config["configurable"]
    return Place(given["checkpoint_ns"], given["checkpoint_id"])


def levels_of(rows: Sequence[CheckpointTuple]) -> set[str]:
    """Return the namespaces of levels; delegations and foreign graphs run below them."""
    owners: dict[str, str] = {}
    shallowest: dict[str, int] = {}
    for row in rows:
        identity, namespace = Identity.read(row.metadata), place_of(row).checkpoint_ns
        if identity is not None:
            owner, depth = identity.thread_id, depth_of(namespace)
            owners[namespace] = owner
            shallowest[owner] = min(depth, shallowest.get(owner, depth))
    return {name for name, owner in owners.items() if depth_of(name) == shallowest[owner]}


def _first_inputs(
    rows: Sequence[CheckpointTuple], levels: Collection[str], chosen: Collection[Place]
) -> Iterator[CheckpointTuple]:
    """Yield the first input of each root that stays, with the number of turns before it."""
    inputs: dict[str, list[CheckpointTuple]] = {}
    for row in rows:
        identity, namespace = Identity.read(row.metadata), place_of(row).checkpoint_ns
        root = identity is not None and not identity.superior_thread_id and namespace in levels
        if root and row.metadata.get("source") == "input":
            inputs.setdefault(namespace, []).append(row)
    for turns in inputs.values():
        staying = [row for row in turns if place_of(row) in chosen] or turns[:1]
        gone = [row for row in turns if row not in staying]
        first = staying[-1]
        earlier: Any = {EARLIER: turns_in([first, *gone]) - 1}
        yield first._replace(metadata={**first.metadata, **earlier})


def _kept(
    rows: Sequence[CheckpointTuple], wanted: Collection[Place], levels: Collection[str]
) -> Plan[Kept]:
    found = {place_of(row): row for row in rows}
    changed: dict[Place, CheckpointTuple] = {}
    kept: set[Place] = set()
    waiting = list(wanted)
    while waiting:
        place = waiting.pop()
        row = found.get(place)
        if row is None or place in kept:
            continue
        kept.add(place)
        stands = _above(row) in wanted
        level = place.checkpoint_ns in levels
        if level and not stands and set() < _lacking(row) <= CHANNELS.keys():
            row = changed[place] = yield from _made_whole(row)
        waiting += _needs(row)
    return Kept(found.keys() - kept, changed)


def _needs(row: CheckpointTuple) -> Iterator[Place]:
    above = _above(row)
    if above and _lacking(row):
        yield above
    writes = ((channel, value) for _, channel, value in row.pending_writes or ())
    for channel, value in chain(row.checkpoint["channel_values"].items(), writes):
        held = value.value if isinstance(value, DeltaSnapshot) else value
        if channel in POINTERS:
            yield from _ends([held])
        elif channel == HEADS and isinstance(held, Mapping):
            yield from _ends(held.values())


def _above(row: CheckpointTuple) -> Place | None:
    if not row.parent_config:
        return None
    given = row.parent_config["configurable"]
    return Place(given["checkpoint_ns"], given["checkpoint_id"])


def _ends(heads: Iterable[Any]) -> Iterator[Place]:
    for head in heads:
        if isinstance(head, Mapping) and "checkpoint_id" in head:
            yield Place(head["checkpoint_ns"], head["checkpoint_id"])


def _lacking(row: CheckpointTuple) -> set[str]:
    """Return the delta channels that are rebuilt from earlier checkpoints."""
    checkpoint = row.checkpoint
    # LangGraph keeps a counter for each channel without a snapshot. One without a version was
    # never written: it is empty, and needs nothing.
    return {
        channel
        for channel in row.metadata.get(DELTA_COUNTERS_KEY) or ()
        if channel in checkpoint["channel_versions"] and channel not in checkpoint["channel_values"]
    }


def _made_whole(row: CheckpointTuple) -> Plan[CheckpointTuple]:
    past = yield from past_plan(row)
    held = {MESSAGES: list(past.messages), HEADS: dict(past.heads)}
    whole = row.checkpoint.copy()
    snapshots = {channel: DeltaSnapshot(held[channel]) for channel in _lacking(row)}
    whole["channel_values"] = {**whole["channel_values"], **snapshots}
    return row._replace(checkpoint=whole)
