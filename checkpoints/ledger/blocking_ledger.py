"""``BlockingLedger``: the ledger for those who may wait. ``Ledger`` adds the asynchronous names.

Each method is one commit. What belongs together is done in one ``commit`` instead.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from echelons.checkpoints.ledger.lease import Lease
from echelons.checkpoints.ledger.locks import Locks
from echelons.checkpoints.ledger.records import Json
from echelons.checkpoints.ledger.transaction import Entry, Fence, Holder, Transaction, Value
from echelons.errors import ThreadBusy

T = TypeVar("T")


class BlockingLedger(ABC):
    """What the world has already seen: it is never forked and never rolled back.

    Args:
        locks: Tell which holders of leases are alive.
    """

    def __init__(self, locks: Locks) -> None:
        self._locks = locks

    @abstractmethod
    def commit(self, work: Callable[[Transaction], T]) -> T:
        """Do some work in one transaction, and return what it returns.

        Nobody else writes to the ledger meanwhile. If the work raises, nothing of it is
        stored. It must be quick, use nothing of the ledger but the transaction that it is
        given, and change nothing else: it may be done again if the store was busy.

        Raises:
            StorageError: The store could not read or write.
        """

    @abstractmethod
    def look(self, work: Callable[[Transaction], T]) -> T:
        """Do some reading, without keeping writers out.

        Raises:
            StorageError: The store could not read.
        """

    def foreign_writes(self) -> int:
        """Return a number that changes when another connection has written to the store.

        Asking costs some microseconds; what this ledger itself writes changes nothing.

        Raises:
            StorageError: The store could not read.
        """
        return 0

    async def arun(self, work: Callable[[], T]) -> T:
        """Do some work on the ledger in an event loop; all of it again if the store was busy."""
        return work()

    def append(self, stream: str, record: Json, *, fence: Fence | None = None) -> int:
        """Add a record to the end of a stream, and return its sequence, counted from 1.

        Args:
            stream: Its name; the first record makes it.
            record: What to add.
            fence: A lease without which it must not be added.

        Raises:
            InvalidLedgerName: The stream's name cannot be kept.
            NotJson: The record would not be read back as it is.
            RecordTooLarge: The record is larger than the ledger keeps.
            LeaseLost: Somebody else has taken the lease.
            StorageError: The store could not write.
        """
        return self.commit(lambda open_: _under(open_, fence).append(stream, record))

    def append_after(
        self, stream: str, last: int, record: Json, *, fence: Fence | None = None
    ) -> int | None:
        """Add a record if the stream still ends at a sequence, 0 for one without records.

        Returns:
            The record's sequence, or ``None`` if the stream ends elsewhere.

        Raises:
            InvalidLedgerName: The stream's name cannot be kept.
            NotJson: The record would not be read back as it is.
            RecordTooLarge: The record is larger than the ledger keeps.
            LeaseLost: Somebody else has taken the lease.
            StorageError: The store could not write.
        """
        return self.commit(lambda open_: _under(open_, fence).append_after(stream, last, record))

    def read(self, stream: str, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Return the entries of a stream after a sequence, in order.

        Args:
            stream: Its name; one that nothing was appended to has no entries.
            after: The sequence of the last entry that is known already.
            limit: How many to return at most.

        Raises:
            InvalidLedgerName: The stream's name cannot be kept.
            LedgerDamaged: A stored record is no JSON.
            StorageError: The store could not read.
        """
        return self.look(lambda open_: open_.read(stream, after, limit))

    def last(self, stream: str) -> int:
        """Return the sequence of a stream's last entry, 0 if it has none.

        Raises:
            InvalidLedgerName: The stream's name cannot be kept.
            StorageError: The store could not read.
        """
        return self.look(lambda open_: open_.last(stream))

    def get(self, key: str) -> Value | None:
        """Return what stands under a key, or ``None``.

        Raises:
            InvalidLedgerName: The key cannot be kept.
            LedgerDamaged: The stored value is no JSON.
            StorageError: The store could not read.
        """
        return self.look(lambda open_: open_.get(key))

    def compare_and_set(
        self, key: str, expected: int | None, value: Json, *, fence: Fence | None = None
    ) -> int | None:
        """Set a key if it has not changed.

        Args:
            key: Its name.
            expected: The version that it must have; ``None`` if nothing may stand there.
            value: What to set.
            fence: A lease without which it must not be set.

        Returns:
            The new version, or ``None`` if the key has another version than expected.

        Raises:
            InvalidLedgerName: The key cannot be kept.
            NotJson: The value would not be read back as it is.
            RecordTooLarge: The value is larger than the ledger keeps.
            LeaseLost: Somebody else has taken the lease.
            StorageError: The store could not write.
        """
        return self.commit(lambda open_: _under(open_, fence).compare_and_set(key, expected, value))

    def delete(self, key: str, expected: int, *, fence: Fence | None = None) -> bool:
        """Remove a key if it has not changed, and return whether it was removed.

        Args:
            key: Its name.
            expected: The version that it must have.
            fence: A lease without which it must not be removed.

        Raises:
            InvalidLedgerName: The key cannot be kept.
            LeaseLost: Somebody else has taken the lease.
            StorageError: The store could not write.
        """
        return self.commit(lambda open_: _under(open_, fence).delete(key, expected))

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, in the order of their code points.

        Raises:
            InvalidLedgerName: No key can begin so.
            StorageError: The store could not read.
        """
        return self.look(lambda open_: open_.keys(prefix))

    def lease(self, name: str) -> Lease:
        """Take a lease, or fail at once if a living process holds it.

        The death of its holder frees it, also by ``kill -9``; there is no timeout. Keep the
        lease: one that is dropped is released with a ``ResourceWarning``.

        Raises:
            InvalidLedgerName: The name cannot be kept.
            ThreadBusy: Somebody holds it, in this process or another.
            StorageError: The store could not write.
        """
        # First without the right to write, which a stopped holder may have kept to itself.
        self.look(lambda open_: self._refuse_taken(open_, name))
        return self._hold(name, self._refuse_taken)

    def take_over(self, name: str) -> Lease:
        """Take a lease from whoever holds it, alive or not: for a holder that hangs.

        What the old holder still writes under its fence is refused with ``LeaseLost``. What
        it does in the world is not: end its process where that is possible.

        Raises:
            InvalidLedgerName: The name cannot be kept.
            StorageError: The store could not write.
        """
        return self._hold(name, lambda _, __: None)

    def holder(self, name: str) -> Holder | None:
        """Return who holds a lease at this moment, ``None`` if it is free.

        Raises:
            InvalidLedgerName: The name cannot be kept.
            StorageError: The store could not read.
        """
        return self.look(lambda open_: self._living(open_, name))

    def check(self, fence: Fence) -> None:
        """Refuse if somebody else has taken a lease: before an effect that cannot be fenced.

        Raises:
            LeaseLost: Somebody has.
            StorageError: The store could not read.
        """
        self.look(lambda open_: open_.require(fence))

    def _hold(self, name: str, admit: Callable[[Transaction, str], None]) -> Lease:
        with ExitStack() as undoing:

            def begin(open_: Transaction) -> Lease:
                admit(open_, name)
                before = open_.last_holder(name)
                epoch = before.epoch + 1 if before else 1
                # A database put back from a backup has forgotten epochs whose holders still live.
                while (lock := self._locks.take(name, epoch)) is None:
                    epoch += 1
                undoing.callback(lock.release)
                holder = open_.begin_epoch(name, epoch, os.getpid())
                return Lease(Fence(name, epoch), holder.since, lock, self.arun)

            lease = self.commit(begin)
            undoing.pop_all()
        self._locks.clear(name, lease.epoch - 1)
        return lease

    def _living(self, open_: Transaction, name: str) -> Holder | None:
        holder = open_.last_holder(name)
        return holder if holder and self._locks.is_taken(name, holder.epoch) else None

    def _refuse_taken(self, open_: Transaction, name: str) -> None:
        holder = self._living(open_, name)
        if holder:
            raise ThreadBusy(name, holder.pid, holder.since)


def _under(open_: Transaction, fence: Fence | None) -> Transaction:
    if fence is not None:
        open_.require(fence)
    return open_
