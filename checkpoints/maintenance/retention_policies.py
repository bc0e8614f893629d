"""Retention policies: which checkpoints pruning keeps, by count, by age or by turns.

Each strategy chooses checkpoints of one thread, given newest first; `reachability` adds those
that they and open questions need. The latest of every segment always stays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.threads.pending_work import has_work_left
from echelons.errors import invalid_strategy
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
        own = [row for row in rows if not _get_namespace(row)]
        begun: dict[str, str] = {}
        for row in own:
            if row.metadata.get("source") == "input":
                # Ids grow with time. Outside of sessions a turn has no id but its input's.
                input_id = row.checkpoint["id"]
                begun[str(row.metadata.get("turn_id") or input_id)] = input_id
        count = self.count + bool(own and has_work_left(own[0]))
        if count >= len(begun):
            yield from rows
        elif count:
            first = list(begun.values())[count - 1]
            yield from (row for row in rows if row.checkpoint["id"] >= first)


def _is_count(given: Any, least: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def _get_namespace(row: CheckpointTuple) -> str:
    return str(row.config["configurable"]["checkpoint_ns"])


def _refuse_invalid(wrong: bool, name: str, given: object, limit: str) -> None:
    if wrong:
        raise invalid_strategy(f"{name}({shorten_repr(given)})", f"takes {limit}")
