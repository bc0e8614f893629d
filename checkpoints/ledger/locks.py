"""Locks that show whether the holder of a lease is alive: they end with its process.

Each epoch of a lease is given out once and has a lock of its own, so no lock is ever waited for,
taken twice or taken away. `Ledger.lease` checks whether the latest epoch is still locked, and
takes the lock of the next one.
"""

from __future__ import annotations

from typing import Protocol
from weakref import WeakValueDictionary


class LeaseLock(Protocol):
    """The lock of one epoch of a lease. It is also freed when it is garbage-collected."""

    @property
    def held(self) -> bool:
        """Whether this process holds it and has not released it."""
        ...

    def release(self) -> None:
        """Free it, and remove what is left of it; once is enough."""

    def close(self) -> None:
        """Free it, without waiting for the disk; `remove` is called next."""

    def remove(self) -> None:
        """Remove what is left of it, once it is closed."""


class LeaseLocks(Protocol):
    """The locks of one ledger's leases, shared by all its users."""

    def take(self, name: str, epoch: int) -> LeaseLock | None:
        """Take the lock of a new epoch; return `None` if it is held."""
        ...

    def is_taken(self, name: str, epoch: int) -> bool:
        """Return whether the holder of an epoch is alive and has not released it."""
        ...

    def clear(self, name: str, epoch: int) -> None:
        """Remove what is left of an epoch that has ended."""


class LocalLock:
    """The lock of a ledger in memory."""

    def __init__(self) -> None:
        self.held = True

    def release(self) -> None:
        """Free it."""
        self.held = False

    close = release

    def remove(self) -> None:
        """Remove nothing: it leaves nothing behind."""


class LocalLocks:
    """The locks of a ledger in memory, which no other process can reach."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, int], LocalLock] = WeakValueDictionary()

    def take(self, name: str, epoch: int) -> LocalLock | None:
        """Take the lock of a new epoch; return `None` if it is held."""
        if self.is_taken(name, epoch):
            return None
        lock = self._locks[name, epoch] = LocalLock()
        return lock

    def is_taken(self, name: str, epoch: int) -> bool:
        """Return whether the holder of an epoch has not released it."""
        lock = self._locks.get((name, epoch))
        return lock is not None and lock.held

    def clear(self, name: str, epoch: int) -> None:
        """Remove what is left of an epoch."""
        self._locks.pop((name, epoch), None)
