"""`TaskChange`: a change of the ledger that is committed in the transaction of a task's writes.

The reads, messages and charges of a task are stored with its result, or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from echelons.checkpoints.clock import utc_now
from echelons.checkpoints.coordination.orders import get_signals
from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.ledger import Ledger, Transaction
from echelons.checkpoints.ledger.sqlite_ledger import SqliteTransaction
from echelons.checkpoints.ledger.transaction import MAX_RECORD_SIZE
from echelons.checkpoints.run_config import stores_each_step
from echelons.langgraph_internals import TASK_ID_KEY

_UNFINISHED = frozenset({ERROR, INTERRUPT})


class TaskChange(NamedTuple):
    """A change of the ledger that belongs to the writes of a task."""

    owner: str  # the feature that makes it
    make: Callable[[Transaction], None]
    subject: Any = None  # what it is about, for its owner
    concerns_others: bool = False  # whether other runs have to look for it
    survives_failure: bool = False  # whether it is made if the task fails or asks a question, too


class TaskChanges:
    """The changes of tasks of this process whose writes are not stored yet."""

    def __init__(self) -> None:
        # By task.
        self.pending: dict[str, list[TaskChange]] = {}
        # Whether some were made that other runs have to look for.
        self.has_news = False
        self._lock = Lock()

    def add(self, task_id: str, changes: Sequence[TaskChange]) -> None:
        """Add changes of a task."""
        with self._lock:
            self.pending.setdefault(task_id, []).extend(changes)

    def list_subjects(self, owner: str) -> list[Any]:
        """Return what the changes of a feature are about that have not been made yet."""
        with self._lock:
            return [
                change.subject
                for changes in self.pending.values()
                for change in changes
                if change.owner == owner and change.subject is not None
            ]

    def drop(self, task_id: str, owner: str) -> None:
        """Drop the changes of a feature that an earlier run of a task has left."""
        with self._lock:
            left = [one for one in self.pending.pop(task_id, ()) if one.owner != owner]
            if left:
                self.pending[task_id] = left

    def make(
        self, cursor: sqlite3.Cursor, task_id: str, writes: Sequence[tuple[str, object]]
    ) -> None:
        """Make the changes of a task, in the transaction that stores its writes."""
        if task_id not in self.pending:
            return
        has_failed = not _UNFINISHED.isdisjoint([name for name, _ in writes])
        open_ = SqliteTransaction(cursor, utc_now, MAX_RECORD_SIZE)
        left: list[TaskChange] = []
        for change in self.pending.pop(task_id, ()):
            if has_failed and not change.survives_failure:
                left.append(change)
                continue
            change.make(open_)
            self.has_news = self.has_news or change.concerns_others
        if left:
            self.pending[task_id] = left

    def signal(self, ledger: Ledger) -> None:
        """Let the runs of this process look for what was changed."""
        self.has_news = False
        get_signals(ledger).count_write()


def get_task_changes(saver: object) -> TaskChanges | None:
    """Return what collects the changes of tasks; `None` if a saver shares no transaction."""
    changes: TaskChanges | None = getattr(saver, "task_changes", None)
    return changes


def commit_with_task(
    ledger: Ledger,
    collected: TaskChanges | None,
    changes: Sequence[TaskChange],
    config: Mapping[str, Any],
) -> None:
    """Make changes with the writes of a config's task, or at once where these are not stored.

    Raises:
        LeaseLost: Another run has the thread now.
    """
    configurable = config["configurable"]
    if collected and stores_each_step(configurable):
        collected.add(configurable[TASK_ID_KEY], changes)
    else:
        commit_changes(ledger, changes, config)


def commit_changes(
    ledger: Ledger, changes: Sequence[TaskChange], config: Mapping[str, Any]
) -> None:
    """Make changes at once, under the lease of the run.

    Raises:
        LeaseLost: Another run has the thread now.
    """
    turn = get_turn(config["configurable"])

    def make(open_: Transaction) -> None:
        if turn:
            turn.check_in(open_)
        for change in changes:
            change.make(open_)

    ledger.commit(make)
    if any(change.concerns_others for change in changes):
        get_signals(ledger).count_write()
