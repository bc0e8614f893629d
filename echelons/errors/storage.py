"""Errors of a database: its files, stored rows and values, the ledger, and leases."""

from __future__ import annotations

from typing import Any

from echelons.errors.base import EchelonsError


class StorageError(EchelonsError):
    """The database cannot be opened, read or written.

    Attributes:
        path: The database.
        why: The message of SQLite or the system.
    """

    code = "storage_error"

    def __init__(
        self,
        path: str,
        why: str,
        text: str = "database {path!r}: {why}; what was committed before is safe. Check the path, "
        "its permissions and the disk, or name another database",
        **fields: Any,
    ) -> None:
        super().__init__(text, path=path, why=why, **fields)


class CheckpointTampered(EchelonsError):
    """A stored row is damaged, was moved, or was not written by Echelons.

    Attributes:
        where: The row.
        why: The fault.
    """

    code = "checkpoint_tampered"

    def __init__(
        self,
        where: str,
        why: str,
        text: str = "{where} is not what was stored: {why}. Nothing of it was used, and other "
        "threads can be read. Restore a backup of the database, or delete the thread",
        **fields: Any,
    ) -> None:
        super().__init__(text, where=where, why=why, **fields)


class NotStorable(EchelonsError):
    """A value cannot be stored, as it could not be read back.

    Attributes:
        kind: The type of the value.
        why: The fault, and what can be done.
    """

    code = "not_storable"

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(
            "a value of type {kind} cannot be stored: {why}. Nothing was stored",
            kind=kind,
            why=why,
        )


class UnreadableRecord(EchelonsError):
    """A stored request or response is damaged, or of another type.

    Attributes:
        model: The expected kind.
        why: The fault.
    """

    code = "unreadable_record"

    def __init__(self, model: str, why: str) -> None:
        super().__init__(
            "a stored {model} cannot be read: {why}; other threads can be used. Restore a backup "
            "of the database, delete the thread, or go on from a checkpoint before it",
            model=model,
            why=why,
        )


class LedgerError(EchelonsError):
    """The ledger cannot store a value, or cannot read a stored one."""


class LedgerDamaged(LedgerError):
    """A record of the ledger is damaged, or was not written by Echelons.

    Attributes:
        where: The stream, key or lease that it is stored under.
        why: The fault.
        kind: The expected kind, such as `turn`, `orders` or `lease`.
    """

    code = "ledger_damaged"

    def __init__(self, where: str, why: str, kind: str = "record") -> None:
        super().__init__(
            "the {kind} that the ledger holds under {where!r} cannot be read: {why}; something "
            "other than Echelons has changed the database. Other threads can be used: restore a "
            "backup of the database, or delete the thread",
            where=where,
            why=why,
            kind=kind,
        )


class ForeignSaverWarning(UserWarning):
    """A session has a saver whose ledger is in the memory of this process.

    Python's filters of warnings take it by its name: `echelons.errors.ForeignSaverWarning`.
    """


class ThreadBusy(EchelonsError):
    """Another run holds the thread, so this one changed nothing.

    Attributes:
        thread: The thread, as its lease is named.
        pid: The process that holds it, on the machine of the database.
        since: When it took it, ISO 8601, UTC.
    """

    code = "thread_busy"

    def __init__(self, thread: str, pid: int, since: str) -> None:
        super().__init__(
            "thread {thread!r} is at work in process {pid} since {since}; wait for it, use "
            "another thread, or end that process: its death frees the thread at once. From one "
            "that hangs and cannot be ended, take it over (`echelons takeover`, "
            "Session.take_over())",
            thread=thread,
            pid=pid,
            since=since,
        )


class LeaseLost(EchelonsError):
    """Another run has taken over the thread, so its write was refused.

    Attributes:
        thread: The thread, as its lease is named.
        epoch: The epoch in which this run held it.
        current: The epoch now; 0 if the database knows of no holder.
    """

    code = "lease_lost"

    def __init__(self, thread: str, epoch: int, current: int) -> None:
        super().__init__(
            "thread {thread!r} was taken over: this run held it in epoch {epoch}, and now is "
            "epoch {current}; nothing of this write was stored. Read the thread again, and "
            "resume it if no other run does",
            thread=thread,
            epoch=epoch,
            current=current,
        )
