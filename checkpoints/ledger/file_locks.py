"""Locks of the operating system: one file beside the database for each epoch of a lease.

The file exists while its lease is held; a killed process leaves an empty one behind, which the
next holder of the lease removes. POSIX systems lock it with `flock`. Such a lock belongs to the
open file: two sessions of one process exclude each other as two processes do, and closing
another file of the same path frees nothing, as it would with `fcntl.lockf`. On Windows an open
file cannot be removed, which serves as the lock.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from hashlib import sha256
from io import FileIO
from pathlib import Path
from weakref import WeakSet

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
    """The file locks of the leases of one database, for all processes that open it.

    Args:
        database: The database's path, absolute: the working directory may change.
    """

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
