"""The way back from a checkpoint to where its delta channels were stored whole.

`GuardedSaver` goes it row by row, and `RememberingSaver` only as far as it remembers.
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


class Walk:
    """The way back from a checkpoint, until each channel is found stored whole.

    Args:
        channels: The channels.
        serde: Reads what is stored.
        known: What they are at a checkpoint that may be on the way.
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
        """Take the next checkpoint back, and return whether there is more to look for."""
        # A checkpoint that was stored anew below itself makes a loop.
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
        """Check that the way did not break off.

        Raises:
            CheckpointTampered: A checkpoint is missing that a channel is made of.
        """
        if self.first is None or self._above is None or self._above in self._ids:
            return
        lost = made_before(self.first, self._serde).intersection(self._open)
        if lost:
            parts = ", ".join(sorted(lost))
            why = f"checkpoint {self._above!r}, of which its {parts} is made, is gone"
            raise CheckpointTampered(self.first.where, why)

    def history(self, channel: str, rows: Iterable[WriteRow]) -> DeltaChannelHistory:
        """Return what a channel is made of, oldest first."""
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
    """Return what was written at a checkpoint, in LangGraph's order.

    Raises:
        CheckpointTampered: A row does not hold what such a row holds.
    """
    # Each is checked before they are put in order: damaged ones may not compare.
    checked = [(row, write_of(row, serde)) for row in rows]
    checked.sort(key=lambda each: writes_sort_key(each[0].task_path, each[0].task_id, each[0].idx))
    return [write for _, write in checked]


def made_before(row: CheckpointRow, serde: SerializerProtocol) -> set[str]:
    """Return the delta channels that a checkpoint does not hold whole, those never written out."""
    held = checkpoint_of(row, serde)
    counted = metadata_of(row).get("counters_since_delta_snapshot") or {}
    return (counted.keys() & held["channel_versions"].keys()) - held["channel_values"].keys()
