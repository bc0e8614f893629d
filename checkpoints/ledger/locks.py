"""Leases, the right to work on one thread, and the locks that show whether a holder is alive."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Protocol, Self
from weakref import WeakSet, WeakValueDictionary

from echelons.checkpoints.ledger.transaction import Fence


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


if sys.platform == "win32":

    def _lock(file: FileIO) -> bool:
        return True

    def _is_locked(path: Path) -> bool:
        try:
            path.unlink(missing_ok=True)
        except PermissionError:
            return True
        return False

else:
    import fcntl

    def _lock(file: FileIO) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_locked(path: Path) -> bool:
        try:
            with FileIO(path, "r") as file:
                # Shared, or two concurrent checks would take each other for the holder.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False


class FileLock:
    """A locked file, unlocked by the operating system when the process ends, however it ends."""

    def __init__(self, path: Path, file: FileIO) -> None:
        self._path = path
        self._file = file

    @property
    def held(self) -> bool:
        """Whether this process holds it and has not released it."""
        return not self._file.closed

    def release(self) -> None:
        """Free it, and remove the file."""
        if not self._file.closed:
            self.close()
            self.remove()

    def close(self) -> None:
        """Free it, or in a fork of the process that holds it, give up the copy."""
        self._file.close()

    def remove(self) -> None:
        """Remove the file, once it is closed."""
        _unlink(self._path)


class FileLocks:
    """The file locks of the leases of one database, whose path is absolute, for all processes."""

    def __init__(self, database: str) -> None:
        self._database = database

    def take(self, name: str, epoch: int) -> FileLock | None:
        """Take the lock of a new epoch; return `None` if it is held.

        Raises:
            OSError: The file cannot be created or locked.
        """
        path = self._build_path(name, epoch)
        with _FORK_LOCK:
            file = FileIO(
                path, "r+", opener=lambda name, flags: os.open(name, flags | os.O_CREAT, 0o600)
            )
            lock = FileLock(path, file)
            _OPEN_LOCKS.add(lock)
        taken = False
        try:
            taken = _lock(file)
        finally:
            if not taken:
                lock.close()
        return lock if taken else None

    def is_taken(self, name: str, epoch: int) -> bool:
        """Return whether the holder of an epoch is alive and has not released it.

        Raises:
            OSError: The file cannot be read.
        """
        return _is_locked(self._build_path(name, epoch))

    def clear(self, name: str, epoch: int) -> None:
        """Remove the file of an earlier epoch; a holder that was taken over keeps it open."""
        _unlink(self._build_path(name, epoch))

    def _build_path(self, name: str, epoch: int) -> Path:
        # Hashed: a lease's name may be too long for a file, or hold characters a file's cannot.
        return Path(f"{self._database}-lease-{sha256(name.encode()).hexdigest()[:32]}-{epoch}")


def _unlink(path: Path) -> None:
    # A file that stays, as it does on Windows while it is open, is harmless.
    with suppress(OSError):
        path.unlink()


# A forked child shares the open files of its parent, and with them the locks: it would keep the
# leases of a dead parent alive. So a child closes them before it does anything else.
_OPEN_LOCKS: WeakSet[FileLock] = WeakSet()
_FORK_LOCK = threading.RLock()


def _abandon_all() -> None:
    for lock in list(_OPEN_LOCKS):
        lock.close()
    _FORK_LOCK.release()


if sys.platform != "win32":
    os.register_at_fork(
        before=_FORK_LOCK.acquire,
        after_in_parent=_FORK_LOCK.release,
        after_in_child=_abandon_all,
    )


class Lease:
    """A lease taken by `Ledger.lease`: held until it is released, or its process ends.

    Holding it does not protect a write: a process that was suspended may have been taken over
    without noticing. Pass `fence` to each write that must then be refused.

    Attributes:
        fence: Proof of the lease, for protected writes.
        since: When it was taken, ISO 8601, UTC.
        store_version: `Transaction.store_version` just before it was taken.
    """

    def __init__(
        self,
        fence: Fence,
        since: str,
        store_version: tuple[int, int] | None,
        lock: LeaseLock,
        run: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self.fence = fence
        self.since = since
        self.store_version = store_version
        self._lock = lock
        self._run = run

    def __repr__(self) -> str:
        state = "held" if self.held else "released"
        return f"<Lease of {self.fence.name!r}, epoch {self.fence.epoch}, {state}>"

    @property
    def name(self) -> str:
        """The name that is leased."""
        return self.fence.name

    @property
    def epoch(self) -> int:
        """How many times the name has been leased, this time included."""
        return self.fence.epoch

    @property
    def held(self) -> bool:
        """Whether it has not been released; never so in a fork of the process that holds it."""
        return self._lock.held

    def release(self) -> None:
        """Free the lease at once; further calls do nothing.

        Its fence stays valid until the lease is taken again: pending writes can still be made.
        """
        self._lock.release()

    async def arelease(self) -> None:
        """Async version of `release`."""
        if self._lock.held:
            # At once, for a cancellation may come while the rest waits for a thread. What it
            # leaves behind then, the next holder removes.
            self._lock.close()
            await self._run(self._lock.remove)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.arelease()


class PendingLease:
    """A lease that may be taken in a thread for a task that is cancelled meanwhile.

    The thread and the task both release a lease that is abandoned, so that it is freed whichever
    of them comes last, and even if the event loop no longer runs.

    Attributes:
        running: Whether it is being taken at this moment.
    """

    def __init__(self, take: Callable[[], Lease]) -> None:
        self.running = False
        self._take = take
        self._abandoned = False
        self._lease: Lease | None = None

    def run(self) -> Lease:
        """Take the lease, and release it if it has been abandoned."""
        self.running = True
        try:
            lease = self._lease = self._take()
        finally:
            self.running = False
        if self._abandoned:
            lease.release()
        return lease

    def abandon(self) -> None:
        """Release the lease, now or as soon as it is taken."""
        self._abandoned = True
        if self._lease:
            self._lease.release()
