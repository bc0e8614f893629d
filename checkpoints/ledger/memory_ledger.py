"""`MemoryLedger`, for savers without a ledger and for tests, and `get_ledger`, which chooses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

from langgraph.checkpoint.base import BaseCheckpointSaver

from echelons.checkpoints.clock import Clock, utc_now
from echelons.checkpoints.ledger.base_ledger import Ledger
from echelons.checkpoints.ledger.locks import LocalLocks
from echelons.checkpoints.ledger.transaction import MAX_RECORD_SIZE, LeaseHolder, Transaction

T = TypeVar("T")


class MemoryLedger(Ledger):
    """A ledger in memory, for any number of threads of one process.

    Args:
        clock: Returns the time of stored records.
        limit: The largest record or value, in bytes of JSON in UTF-8.
    """

    def __init__(self, *, clock: Clock = utc_now, limit: int = MAX_RECORD_SIZE) -> None:
        super().__init__(LocalLocks(), clock)
        self._stored = _Content()
        self._limit = limit
        self._lock = threading.Lock()

    def commit(self, work: Callable[[Transaction], T]) -> T:
        """Run some work in one write transaction, and return its result."""
        with self._lock:
            transaction = MemoryTransaction(self._stored, self._clock, self._limit)
            try:
                return work(transaction)
            except BaseException:
                transaction.undo()
                raise

    def query(self, work: Callable[[Transaction], T]) -> T:
        """Run some reading, and return its result."""
        return self.commit(work)


@dataclass
class _Content:
    """The content of a ledger; records and values are JSON texts."""

    streams: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    values: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    holders: dict[str, LeaseHolder] = field(default_factory=dict)
    floor: int = 0


class MemoryTransaction(Transaction):
    """A transaction with a list of undo steps."""

    def __init__(self, stored: _Content, clock: Clock, limit: int) -> None:
        super().__init__(clock, limit)
        self._stored = stored
        self._undo_steps: list[Callable[[], object]] = []

    def undo(self) -> None:
        """Undo all changes, the latest first."""
        while self._undo_steps:
            self._undo_steps.pop()()

    def _read_last(self, stream: str) -> int:
        return len(self._stored.streams.get(stream, ()))

    def _add_entry(self, stream: str, sequence: int, at: str, text: str) -> None:
        entries = self._stored.streams.setdefault(stream, [])
        entries.append((sequence, at, text))
        self._undo_steps.append(entries.pop)

    def _read_entries(
        self, stream: str, after: int, limit: int | None
    ) -> Iterable[tuple[int, str, str]]:
        after = max(after, 0)
        until = None if limit is None else after + max(limit, 0)
        return self._stored.streams.get(stream, [])[after:until]

    def _read_value(self, key: str) -> tuple[str, int] | None:
        stored = self._stored.values.get(key)
        return stored[:2] if stored else None

    def _read_version(self, key: str) -> int | None:
        stored = self._stored.values.get(key)
        return stored[1] if stored else None

    def _store_value(self, key: str, version: int, at: str, text: str) -> None:
        self._add_undo(self._stored.values, key)
        self._stored.values[key] = text, version, at

    def _remove_key(self, key: str) -> None:
        self._add_undo(self._stored.values, key)
        self._stored.values.pop(key, None)

    def _read_floor(self) -> int:
        return self._stored.floor

    def _raise_floor(self, version: int) -> None:
        # Never lowered again: a floor that is too high does no harm.
        self._stored.floor = version

    def _read_keys(self, prefix: str) -> Iterable[str]:
        return sorted(key for key in self._stored.values if key.startswith(prefix))

    def _read_records(self, prefix: str) -> Iterable[tuple[str, str, str]]:
        for key in self._read_keys(prefix):
            text, _, at = self._stored.values[key]
            yield key, at, text

    def _read_holder(self, name: str) -> LeaseHolder | None:
        return self._stored.holders.get(name)

    def _store_holder(self, name: str, holder: LeaseHolder) -> None:
        self._add_undo(self._stored.holders, name)
        self._stored.holders[name] = holder

    def _add_undo(self, where: dict[str, T], name: str) -> None:
        if name in where:
            before = where[name]
            self._undo_steps.append(lambda: where.update({name: before}))
        else:
            self._undo_steps.append(lambda: where.pop(name, None))


_MEMORY_LEDGERS: WeakKeyDictionary[BaseCheckpointSaver[Any], MemoryLedger] = WeakKeyDictionary()
_MEMORY_LOCK = Lock()


def get_ledger(saver: BaseCheckpointSaver[Any]) -> Ledger:
    """Return the ledger of a saver, the same object every time."""
    ledger = getattr(saver, "ledger", None)
    if isinstance(ledger, Ledger):
        return ledger
    with _MEMORY_LOCK:
        return _MEMORY_LEDGERS.setdefault(saver, MemoryLedger())


@lru_cache(maxsize=1024)
def build_key(thread_id: str, *parts: str) -> str:
    """Return the name of a key, a stream or a lease that belongs to a root's thread.

    All names of a thread have one prefix, by which they are deleted with it.

    Examples:
        >>> build_key("trip", "turn", "1")
        'thread/trip/turn/1'
    """
    # Quoted: a thread id may hold a slash, and no thread's names may begin like another's.
    return "/".join(("thread", _quote(thread_id), *parts))


@lru_cache(maxsize=1024)
def _quote(thread_id: str) -> str:
    return quote(thread_id, safe="")
