"""Locks that show whether the holder of a lease is alive: they end with its process.

Each epoch of a lease is given out once and has a lock of its own, so no lock is ever waited for,
taken twice or taken away. `Ledger.lease` checks whether the latest epoch is still locked, and
takes the lock of the next one.

Beside a database each lock is a file, which exists while its lease is held; a killed process leaves
an empty one behind, which the next holder of the lease removes. POSIX systems lock it with `flock`.
Such a lock belongs to the open file: two sessions of one process exclude each other as two
processes do, and closing another file of the same path frees nothing, as it would with
`fcntl.lockf`. On Windows an open file cannot be removed, which serves as the lock.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Protocol
from weakref import WeakSet, WeakValueDictionary


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
