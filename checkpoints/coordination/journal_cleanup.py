"""Completed calls whose results are in the journal because no checkpoint has them yet.

A result is in the journal from the end of a call until LangGraph stores the writes of its task;
after that it would be in the file twice. `SqliteCheckpointer` removes it in that very
transaction. Other savers do not, so there only the latest results are kept, in memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from echelons.checkpoints.clock import utc_now
from echelons.checkpoints.ledger import Ledger
from echelons.checkpoints.ledger.records import MAX_RECORD_SIZE
from echelons.checkpoints.ledger.sqlite_ledger import SqliteTransaction

MAX_KEPT_RESULTS = 1024
"""Results that a ledger in memory keeps, in case a foreign saver failed to store the writes."""


class CompletedCall(NamedTuple):
    """The journal entry of a completed call."""

    key: str
    version: int


class CompletedCalls:
    """The completed calls of this process, by task."""

    def __init__(self) -> None:
        # A middleware may have run a call several times, each with an entry of its own.
        self._done: dict[str, list[CompletedCall]] = {}

    def add(self, task_id: str, key: str, version: int) -> None:
        """Remember the completed call of a task."""
        entries = self._done.setdefault(task_id, [])
        entries[:] = [*(each for each in entries if each.key != key), CompletedCall(key, version)]

    def remove_entry(
        self, cursor: sqlite3.Cursor, task_id: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        """Remove the entries of a call, in the transaction that stores the writes of its task."""
        if task_id not in self._done or any(channel in (ERROR, INTERRUPT) for channel, _ in writes):
            return
        own = SqliteTransaction(cursor, utc_now, MAX_RECORD_SIZE)
        for done in self._done.pop(task_id):
            own.delete(done.key, done.version)

    def drop_oldest(self, ledger: Ledger) -> None:
        """Remove the oldest entries, but for the latest `MAX_KEPT_RESULTS`."""
        while len(self._done) > MAX_KEPT_RESULTS:
            for done in self._done.pop(next(iter(self._done))):
                ledger.delete(done.key, done.version)


_FOREIGN_CALLS: WeakKeyDictionary[BaseCheckpointSaver[Any], CompletedCalls] = WeakKeyDictionary()


def removes_entries(saver: BaseCheckpointSaver[Any]) -> bool:
    """Return whether a saver removes journal entries itself."""
    return isinstance(getattr(saver, "unsettled", None), CompletedCalls)


def get_completed_calls(saver: BaseCheckpointSaver[Any]) -> CompletedCalls:
    """Return the completed calls of a saver, the same object every time."""
    own = getattr(saver, "unsettled", None)
    if isinstance(own, CompletedCalls):
        return own
    return _FOREIGN_CALLS.setdefault(saver, CompletedCalls())
