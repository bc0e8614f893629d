"""Errors of the ledger and of its leases.

Raised by the stores of records, and by a run that takes or keeps a thread.
"""

from __future__ import annotations

from echelons.errors.base import EchelonsError


class LedgerError(EchelonsError):
    """The ledger cannot store a value, or cannot read a stored one."""


class InvalidLedgerName(LedgerError):
    """A stream, a key or a lease has a name that not every store can keep.

    Attributes:
        name: The name as it was given, shortened.
        why: What is wrong with it.
    """

    name: str
    why: str
    message = "{name!r} is no name for the ledger: {why}; nothing was changed"


class NotJson(LedgerError):
    """A record or value would not be read back as it was given.

    Attributes:
        where: The stream or key that it was meant for.
        why: What is wrong with it.
    """

    where: str
    why: str
    message = (
        "what was given for {where!r} is no JSON: {why}; give null, booleans, finite numbers, "
        "texts, lists, and objects with text keys. Nothing was changed"
    )


class RecordTooLarge(LedgerError):
    """A record or value is larger than the ledger keeps.

    Attributes:
        where: The stream or key that it was meant for.
        size: Its size as JSON, in bytes of UTF-8.
        limit: The largest size.
    """

    where: str
    size: int
    limit: int
    message = (
        "what was given for {where!r} has {size} bytes as JSON, and the limit is {limit}; store it "
        "elsewhere and keep its address here. Nothing was changed"
    )


class LedgerDamaged(LedgerError):
    """A value stored in the ledger is not valid JSON.

    Attributes:
        where: The stream or key that it is stored under.
        why: What is wrong with it.
    """

    where: str
    why: str
    message = (
        "what the ledger holds under {where!r} cannot be read: {why}; something other than "
        "Echelons has changed the database: restore a backup of it"
    )


class ThreadBusy(EchelonsError):
    """Another run holds the thread, so this one changed nothing.

    Attributes:
        thread: The thread, as its lease is named.
        pid: The process that holds it, on the machine of the database.
        since: When it took it, ISO 8601, UTC.
    """

    thread: str
    pid: int
    since: str
    message = (
        "thread {thread!r} is at work in process {pid} since {since}; wait for it, use another "
        "thread, or end that process: its death frees the thread at once"
    )


class LeaseLost(EchelonsError):
    """Another run has taken over the thread, so its write was refused.

    Attributes:
        thread: The thread, as its lease is named.
        epoch: The epoch in which this run held it.
        current: The epoch now; 0 if the database knows of no holder.
    """

    thread: str
    epoch: int
    current: int
    message = (
        "thread {thread!r} was taken over: this run held it in epoch {epoch}, and now is epoch "
        "{current}; nothing of this write was stored. Read the thread again, and resume it if "
        "nobody else does"
    )
