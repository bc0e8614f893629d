"""`TaskRecords`: records of the ledger that are stored in the transaction of a task's writes.

What a task has read, sent and spent is stored with what it has made of it, or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from threading import Lock
from typing import Protocol, TypeVar

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from echelons.checkpoints.clock import utc_now
from echelons.checkpoints.coordination.change_signals import get_signals
from echelons.checkpoints.ledger import Ledger, Transaction
from echelons.checkpoints.ledger.records import MAX_RECORD_SIZE
from echelons.checkpoints.ledger.sqlite_ledger import SqliteTransaction

R = TypeVar("R")
_UNFINISHED = frozenset({ERROR, INTERRUPT})


class TaskRecord(Protocol):
    """A record that belongs to the writes of a task."""

    def store(self, open_: Transaction) -> None:
        """Write it."""
        ...


class TaskRecords:
    """The records of tasks of this process whose writes are not stored yet.

    Attributes:
        pending: The records, by task.
        has_news: Whether some were stored that other runs have to look for, as they have
            `concerns_others`.
    """

    def __init__(self) -> None:
        self.pending: dict[str, list[TaskRecord]] = {}
        self.has_news = False
        self._lock = Lock()

    def add(self, task_id: str, records: Sequence[TaskRecord]) -> None:
        """Add records of a task."""
        with self._lock:
            self.pending.setdefault(task_id, []).extend(records)

    def list_pending(self, kind: type[R]) -> list[R]:
        """Return the records of a kind whose writes are not stored yet."""
        with self._lock:
            return [
                each
                for records in self.pending.values()
                for each in records
                if isinstance(each, kind)
            ]

    def drop(self, task_id: str, kinds: tuple[type, ...]) -> None:
        """Drop the records of some kinds that a task has left."""
        with self._lock:
            left = [each for each in self.pending.pop(task_id, ()) if not isinstance(each, kinds)]
            if left:
                self.pending[task_id] = left

    def store(
        self, cursor: sqlite3.Cursor, task_id: str, writes: Sequence[tuple[str, object]]
    ) -> None:
        """Store the records of a task, in the transaction that stores its writes.

        Of one that has failed or asks a question, only those that have `survives_failure` are.
        """
        if task_id not in self.pending:
            return
        has_failed = not _UNFINISHED.isdisjoint([name for name, _ in writes])
        open_ = SqliteTransaction(cursor, utc_now, MAX_RECORD_SIZE)
        left: list[TaskRecord] = []
        for each in self.pending.pop(task_id, ()):
            if has_failed and not getattr(each, "survives_failure", False):
                left.append(each)
                continue
            each.store(open_)
            self.has_news = self.has_news or getattr(each, "concerns_others", False)
        if left:
            self.pending[task_id] = left

    def signal(self, ledger: Ledger) -> None:
        """Let the runs of this process look for what was stored."""
        self.has_news = False
        get_signals(ledger).count_write()
