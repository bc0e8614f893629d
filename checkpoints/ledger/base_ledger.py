"""`Ledger`: the interface of both ledgers, the one in memory and the one in SQLite.

Turns, the effect journal, limits, orders, races and circuits are kept here. Each method is one
commit; what belongs together is done in one `commit` instead.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Any, TypeVar

from echelons.checkpoints.clock import Clock, utc_now
from echelons.checkpoints.ledger.locks import Lease, LeaseLocks, PendingLease
from echelons.checkpoints.ledger.transaction import (
    REPAIR_STEP,
    Fence,
    Json,
    LeaseHolder,
    RecordKind,
    StreamEntry,
    Transaction,
    VersionedValue,
)
from echelons.errors import LedgerDamaged, ThreadBusy

T = TypeVar("T")


class Ledger(ABC):
    """The record of everything outside the checkpoints; it is never forked and never rolled back.

    Ordered streams of records, keys with compare-and-set, and leases. The operations of a
    `Transaction` are here as well, each in a commit or query of its own: with the same errors,
    `StorageError` if the store cannot be read or written, and `LeaseLost` if a `fence` is given
    and another holder has taken its lease.

    Args:
        locks: Tell which holders of leases are alive.
        clock: Returns the time for stored records and deadlines.

    Examples:
        >>> from echelons.checkpoints.ledger import MemoryLedger
        >>> ledger = MemoryLedger()
        >>> ledger.append("mail", {"text": "hello"})
        1
        >>> [entry.record["text"] for entry in ledger.read("mail")]
        ['hello']
        >>> with ledger.lease("thread") as lease:
        ...     version = ledger.compare_and_set("turn/1", None, "begun", fence=lease.fence)
        >>> ledger.compare_and_set("turn/1", None, "begun again") is None
        True
    """

    has_earlier_calls = False
    """Whether the effect journal may have entries by the keys of earlier versions."""

    def __init__(self, locks: LeaseLocks, clock: Clock = utc_now) -> None:
        self._locks = locks
        self._clock = clock

    @abstractmethod
    def commit(self, work: Callable[[Transaction], T]) -> T:
        """Run some work in one write transaction, and return its result.

        Other writers are kept out meanwhile. If the work raises, nothing is stored. It must be
        quick, use the ledger only through its transaction, and have no other side effects: it
        may run again if the store was busy.
        """

    @abstractmethod
    def query(self, work: Callable[[Transaction], T]) -> T:
        """Run some reading, without keeping writers out, and return its result."""

    def get_time(self) -> datetime:
        """Return the time of its clock, in UTC."""
        return self._clock()

    def foreign_writes(self) -> int:
        """Return a number that changes when another connection has written to the store.

        It costs some microseconds; writes of this ledger itself do not change it.
        """
        return 0

    async def arun(self, work: Callable[[], T]) -> T:
        """Run some work on the ledger in an event loop; all of it again if the store was busy."""
        return work()

    def append(self, stream: str, record: Json, *, fence: Fence | None = None) -> int:
        """Add a record to the end of a stream, and return its sequence, counted from 1."""
        return self.commit(lambda open_: _require_fence(open_, fence).append(stream, record))

    def read(self, stream: str, after: int = 0, limit: int | None = None) -> list[StreamEntry]:
        """Return the entries of a stream after a sequence, in order, at most `limit` of them."""
        return self.query(lambda open_: open_.read(stream, after, limit))

    def get_last_sequence(self, stream: str) -> int:
        """Return the sequence of a stream's last entry, 0 if it has none."""
        return self.query(lambda open_: open_.get_last_sequence(stream))

    def get(self, key: str) -> VersionedValue[Any] | None:
        """Return the value and version of a key, or `None`."""
        return self.query(lambda open_: open_.get(key))

    def get_record(self, kind: RecordKind[T], key: str) -> VersionedValue[T] | None:
        """Return the record of a kind under a key, with its version, or `None`."""
        return self.query(lambda open_: open_.get_record(kind, key))

    def compare_and_set(
        self, key: str, expected: int | None, value: Json, *, fence: Fence | None = None
    ) -> int | None:
        """Set a key if it still has the expected version, `None` if it must not exist.

        Returns:
            The new version, or `None` if the key has another version than expected.
        """
        return self.commit(
            lambda open_: _require_fence(open_, fence).compare_and_set(key, expected, value)
        )

    def delete(self, key: str, expected: int, *, fence: Fence | None = None) -> bool:
        """Remove a key if it still has the expected version; return whether it was removed."""
        return self.commit(lambda open_: _require_fence(open_, fence).delete(key, expected))

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, in the order of their code points."""
        return self.query(lambda open_: open_.list_keys(prefix))

    def lease(self, name: str) -> Lease:
        """Take a lease, or fail at once if a living process holds it.

        The death of its holder frees it, also by `kill -9`; there is no timeout. Keep a reference:
        a lease that is garbage-collected is released with a `ResourceWarning`.

        Raises:
            ThreadBusy: It is held, in this process or another.
            LedgerDamaged: Its row is damaged, so its holder is not known; take it over.
        """
        # First by a read: a holder that was stopped (SIGSTOP) may still have the write lock.
        self.query(lambda open_: self._refuse_taken(open_, name))
        return self._take_lease(name, self._refuse_taken)

    async def alease(self, name: str) -> Lease:
        """Async version of `lease`."""
        return await self._await_lease(lambda: self.lease(name))

    def take_over(self, name: str, epoch: int | None = None) -> Lease:
        """Take a lease from its holder, alive or not: for one that hangs, or is damaged.

        A write of the old holder under its fence is refused with `LeaseLost`. Its other
        side effects are not: end its process where that is possible.

        Args:
            name: The name that is leased.
            epoch: The epoch of the holder to take it from; by default that of any.

        Raises:
            LeaseLost: Another has taken it since that epoch.
        """

        def admit(open_: Transaction, name: str) -> None:
            _require_fence(open_, None if epoch is None else Fence(name, epoch))

        return self._take_lease(name, admit)

    async def atake_over(self, name: str) -> Lease:
        """Async version of `take_over`."""
        return await self._await_lease(lambda: self.take_over(name))

    def get_holder(self, name: str) -> LeaseHolder | None:
        """Return the current holder of a lease, `None` if it is free."""
        return self.query(lambda open_: self._find_living_holder(open_, name))

    async def _await_lease(self, take: Callable[[], Lease]) -> Lease:
        taking = PendingLease(take)
        task = asyncio.create_task(self.arun(taking.run))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            taking.abandon()
            if not taking.running:
                task.cancel()
            # Until the lease is free again. A second cancellation ends the waiting alone.
            await asyncio.gather(task, return_exceptions=True)
            raise

    def _take_lease(self, name: str, admit: Callable[[Transaction, str], None]) -> Lease:
        with ExitStack() as undoing:

            def begin(open_: Transaction) -> Lease:
                admit(open_, name)
                version = open_.store_version
                try:
                    before = open_.get_last_holder(name)
                    epoch = before.epoch + 1 if before else 1
                except LedgerDamaged:  # only when it is taken over: `admit` reads the holder, too
                    epoch = REPAIR_STEP
                # A database restored from a backup does not know the latest epochs; their holders
                # may still be alive.
                while (lock := self._locks.take(name, epoch)) is None:
                    epoch += 1
                undoing.callback(lock.release)
                holder = open_.begin_epoch(name, epoch, os.getpid())
                return Lease(Fence(name, epoch), holder.since, version, lock, self.arun)

            lease = self.commit(begin)
            undoing.pop_all()
        self._locks.clear(name, lease.epoch - 1)
        return lease

    def _find_living_holder(self, open_: Transaction, name: str) -> LeaseHolder | None:
        holder = open_.get_last_holder(name)
        return holder if holder and self._locks.is_taken(name, holder.epoch) else None

    def _refuse_taken(self, open_: Transaction, name: str) -> None:
        holder = self._find_living_holder(open_, name)
        if holder:
            raise ThreadBusy(name, holder.pid, holder.since)


def _require_fence(open_: Transaction, fence: Fence | None) -> Transaction:
    if fence is not None:
        open_.require_lease(fence)
    return open_
