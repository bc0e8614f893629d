"""Whether the holder of a lease lives: a lock that ends with its process, and never times out.

A holding is a name in an epoch. An epoch is given once, so every holding has a lock of its
own: nobody ever waits for one, takes one twice, or takes one away from another. ``leases``
asks whether the holding that the ledger knows is alive, and takes the lock of the next one.
"""

from __future__ import annotations

from typing import Protocol
from weakref import WeakValueDictionary


class Lock(Protocol):
    """The lock of one holding. Whoever drops it without releasing it frees it, too."""

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


class Locks(Protocol):
    """The locks of all who share one ledger."""

    def take(self, name: str, epoch: int) -> Lock | None:
        """Take the lock of a new holding; ``None`` if somebody has it."""
        ...

    def is_taken(self, name: str, epoch: int) -> bool:
        """Return whether the holder of a holding is alive and has not released it."""
        ...

    def clear(self, name: str, epoch: int) -> None:
        """Remove what is left of a holding that will not be asked about again."""


class LocalLock:
    """The lock of a ledger that lives and dies with this process."""

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
        """Take the lock of a new holding; ``None`` if somebody has it."""
        if self.is_taken(name, epoch):
            return None
        lock = self._locks[name, epoch] = LocalLock()
        return lock

    def is_taken(self, name: str, epoch: int) -> bool:
        """Return whether the holder of a holding has not released it."""
        lock = self._locks.get((name, epoch))
        return lock is not None and lock.held

    def clear(self, name: str, epoch: int) -> None:
        """Remove what is left of a holding."""
        self._locks.pop((name, epoch), None)
