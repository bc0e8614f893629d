"""The walk back from a checkpoint to the snapshots of its delta channels.

`VerifiedSaver` walks it row by row, `CachedSaver` only as far as the checkpoint in its cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

from echelons.checkpoints.storage.rows import (
    CheckpointRow,
    WriteRow,
    checkpoint_of,
    metadata_of,
    write_of,
)
from echelons.errors import CheckpointTampered
from echelons.langgraph_internals import DELTA_COUNTERS_KEY


class Walk:
    """The walk back from a checkpoint until a snapshot of each channel is found.

    Args:
        channels: The channels.
        serde: The serializer of the stored values.
        known: Their values at a cached checkpoint, which may be on the way.
        known_at: Id of that checkpoint.
    """

    def __init__(
        self,
        channels: Iterable[str],
        serde: SerializerProtocol,
        known: Mapping[str, Any] | None = None,
        known_at: str | None = None,
    ) -> None:
        self.passed: dict[str, list[str]] = {channel: [] for channel in channels}
        self.first: CheckpointRow | None = None
        self._serde = serde
        self._known = known or {}
        self._known_at = known_at
        self._seeds: dict[str, Any] = {}
        self._open = list(self.passed)
        self._ids: set[str] = set()
        self._above: str | None = None

    def goes_on(self, row: CheckpointRow) -> bool:
        """Visit the next checkpoint back, and return whether a snapshot is still missing."""
        # A checkpoint that was stored again below itself makes a loop.
        if row.checkpoint_id in self._ids:
            return False
        self._ids.add(row.checkpoint_id)
        self._above = row.parent_checkpoint_id
        if self.first is None:
            self.first = row
        else:
            for channel in self._open:
                self.passed[channel].append(row.checkpoint_id)
            if row.checkpoint_id != self._known_at:
                self._find(checkpoint_of(row, self._serde)["channel_values"])
        if row.checkpoint_id == self._known_at:
            self._find(self._known)
        return bool(self._open)

    def arrive(self) -> None:
        """Check that no checkpoint was missing on the way.

        Raises:
            CheckpointTampered: A checkpoint that a channel is rebuilt from is missing.
        """
        if self.first is None or self._above is None or self._above in self._ids:
            return
        lost = made_before(self.first, self._serde).intersection(self._open)
        if lost:
            parts = ", ".join(sorted(lost))
            why = f"checkpoint {self._above!r}, of which its {parts} is made, is gone"
            raise CheckpointTampered(self.first.where, why)

    def history(self, channel: str, rows: Iterable[WriteRow]) -> DeltaChannelHistory:
        """Return the snapshot of a channel and the writes since then, oldest first."""
        by_checkpoint: dict[str, list[WriteRow]] = {}
        for row in rows:
            by_checkpoint.setdefault(row.checkpoint_id, []).append(row)
        found: DeltaChannelHistory = {
            "writes": [
                write
                for each in reversed(self.passed[channel])
                if each in by_checkpoint
                for write in written(by_checkpoint[each], self._serde)
            ]
        }
        if channel in self._seeds:
            found["seed"] = self._seeds[channel]
        return found

    def _find(self, values: Mapping[str, Any]) -> None:
        for channel in values.keys() & self._open:
            self._seeds[channel] = values[channel]
            self._open.remove(channel)


def written(rows: Iterable[WriteRow], serde: SerializerProtocol) -> list[PendingWrite]:
    """Return the writes at a checkpoint, in LangGraph's order.

    Raises:
        CheckpointTampered: A row is not valid.
    """
    # Each is checked before sorting: damaged values may not be comparable.
    checked = [(row, write_of(row, serde)) for row in rows]
    checked.sort(key=lambda each: writes_sort_key(each[0].task_path, each[0].task_id, each[0].idx))
    return [write for _, write in checked]


def made_before(row: CheckpointRow, serde: SerializerProtocol) -> set[str]:
    """Return the delta channels that a checkpoint does not hold a snapshot of.

    Channels that were never written are left out.
    """
    held = checkpoint_of(row, serde)
    counted = metadata_of(row).get(DELTA_COUNTERS_KEY) or {}
    return (counted.keys() & held["channel_versions"].keys()) - held["channel_values"].keys()
