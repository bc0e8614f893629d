"""The walk back from a checkpoint to the snapshots of its delta channels.

`VerifiedSaver` walks it row by row, `CachedSaver` only as far as the checkpoint in its cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

from echelons.checkpoints.storage.rows import (
    CheckpointRow,
    WriteRow,
    load_checkpoint,
    load_metadata,
    load_write,
)
from echelons.errors import CheckpointTampered
from echelons.langgraph_internals import DELTA_COUNTERS_KEY


class DeltaWalk:
    """The walk back from a checkpoint until a snapshot of each channel is found.

    Args:
        channels: The channels.
        serde: The serializer of the stored values.
        known: Their values at a cached checkpoint, which may be on the way.
        known_at: Id of that checkpoint.
        plain_ids: Checkpoints that are known to hold no snapshot.
    """

    def __init__(
        self,
        channels: Iterable[str],
        serde: SerializerProtocol,
        known: Mapping[str, Any] | None = None,
        known_at: str | None = None,
        plain_ids: Set[str] = frozenset(),
    ) -> None:
        self.checkpoint_ids: dict[str, list[str]] = {channel: [] for channel in channels}
        self.first_row: CheckpointRow | None = None
        self._serde = serde
        self._known = known or {}
        self._known_at = known_at
        self._plain_ids = plain_ids
        self._snapshots: dict[str, Any] = {}
        self._unresolved = list(self.checkpoint_ids)
        self._visited: set[str] = set()
        self._parent_id: str | None = None

    @property
    def length(self) -> int:
        """Number of checkpoints visited so far."""
        return len(self._visited)

    def visit(self, row: CheckpointRow) -> bool:
        """Visit the next checkpoint back, and return whether a snapshot is still missing."""
        # A checkpoint that was stored again below itself makes a loop.
        if row.checkpoint_id in self._visited:
            return False
        self._visited.add(row.checkpoint_id)
        self._parent_id = row.parent_checkpoint_id
        if self.first_row is None:
            self.first_row = row
        else:
            for channel in self._unresolved:
                self.checkpoint_ids[channel].append(row.checkpoint_id)
            if row.checkpoint_id != self._known_at and row.checkpoint_id not in self._plain_ids:
                self._take_snapshots(load_checkpoint(row, self._serde)["channel_values"])
        if row.checkpoint_id == self._known_at:
            self._take_snapshots(self._known)
        return bool(self._unresolved)

    def check_complete(self) -> None:
        """Check that no checkpoint was missing on the way.

        Raises:
            CheckpointTampered: A checkpoint that a channel is rebuilt from is missing.
        """
        if not self._unresolved or self.first_row is None:
            return
        if self._parent_id is None or self._parent_id in self._visited:
            return
        lost = list_unresolved_channels(self.first_row, self._serde).intersection(self._unresolved)
        if lost:
            parts = ", ".join(sorted(lost))
            why = f"checkpoint {self._parent_id!r}, of which its {parts} is made, is gone"
            raise CheckpointTampered(self.first_row.description, why)

    def build_history(self, channel: str, rows: Iterable[WriteRow]) -> DeltaChannelHistory:
        """Return the snapshot of a channel and the writes since then, oldest first."""
        by_checkpoint: dict[str, list[WriteRow]] = {}
        for row in rows:
            by_checkpoint.setdefault(row.checkpoint_id, []).append(row)
        found: DeltaChannelHistory = {
            "writes": [
                write
                for each in reversed(self.checkpoint_ids[channel])
                if each in by_checkpoint
                for write in load_writes(by_checkpoint[each], self._serde)
            ]
        }
        if channel in self._snapshots:
            found["seed"] = self._snapshots[channel]
        return found

    def _take_snapshots(self, values: Mapping[str, Any]) -> None:
        for channel in values.keys() & self._unresolved:
            self._snapshots[channel] = values[channel]
            self._unresolved.remove(channel)


def load_writes(rows: Iterable[WriteRow], serde: SerializerProtocol) -> list[PendingWrite]:
    """Return the writes at a checkpoint, in LangGraph's order."""
    # Each is checked before sorting: damaged values may not be comparable.
    checked = [(row, load_write(row, serde)) for row in rows]
    checked.sort(key=lambda each: writes_sort_key(each[0].task_path, each[0].task_id, each[0].idx))
    return [write for _, write in checked]


def list_unresolved_channels(row: CheckpointRow, serde: SerializerProtocol) -> set[str]:
    """Return the delta channels that a checkpoint does not hold a snapshot of.

    Channels that were never written are left out.
    """
    held = load_checkpoint(row, serde)
    counted = load_metadata(row).get(DELTA_COUNTERS_KEY) or {}
    return (counted.keys() & held["channel_versions"].keys()) - held["channel_values"].keys()
