"""Errors of a database: its files, stored rows and values, the ledger, and leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from echelons.errors.base import EchelonsError
from echelons.errors.configuration import ConfigurationError


class StorageError(EchelonsError):
    """The database cannot be opened, read or written.

    Attributes:
        path: The database.
        why: What SQLite or the system said.
    """

    path: str
    why: str
    message = (
        "database {path!r}: {why}; what was committed before is safe. Check the path, its "
        "permissions and the disk, or name another database"
    )


class DatabaseClosed(StorageError):
    """The database, or the session that had opened it, was closed before.

    Attributes:
        path: The database.
        why: What SQLite said.
    """

    message = (
        "database {path!r} is closed; use the session or the saver before it is closed, within "
        "its `with`, or open another one"
    )


class DatabaseMissing(StorageError):
    """The database to read does not exist; it is not created.

    Attributes:
        path: The database.
        why: What is wrong.
    """

    why: str = field(init=False, default="there is no such file")
    message = (
        "there is no database {path!r}; `echelons run` makes one, or name the one that you mean "
        "with --db or ECHELONS_DB"
    )


class DatabaseTooNew(StorageError):
    """A newer version of Echelons has migrated the database; it was not changed.

    Attributes:
        path: The database.
        why: What is wrong.
        found: The migration step of its schema.
        known: The last step that this version knows.
    """

    why: str = field(
        init=False, default="its schema is at step {found}, and this version knows up to {known}"
    )
    found: int
    known: int
    message = (
        "database {path!r} is of a newer version of Echelons: {why}; update Echelons, or name "
        "another database. Nothing was changed"
    )


class BackupExists(StorageError):
    """The file of a backup exists already; it was not changed.

    Attributes:
        path: The file.
        why: What is wrong.
    """

    why: str = field(init=False, default="there is such a file already")
    message = (
        "no backup was made at {path!r}: {why}, and none is ever overwritten; name another file, "
        "or move it away"
    )


class InvalidStrategy(EchelonsError):
    """The strategy of pruning threads is unknown or has an invalid limit.

    Attributes:
        strategy: The strategy as it was given.
        why: What is wrong with it.
    """

    strategy: str
    why: str
    message = "{strategy} {why}; nothing was changed"


class CheckpointTampered(EchelonsError):
    """A stored row is damaged, was moved, or was not written by Echelons.

    Attributes:
        where: The row.
        why: What is wrong with it.
    """

    where: str
    why: str
    message = (
        "{where} is not what was stored: {why}. Nothing of it was used, and other threads can be "
        "read. Restore a backup of the database, or delete the thread"
    )


class UnknownSealKey(CheckpointTampered):
    """A row was sealed with a key that was not given.

    Attributes:
        where: The row.
        why: What is wrong with it.
        key: Id of the key that sealed it.
        known: Ids of the keys that were given.
    """

    why: str = field(init=False, default="it is sealed with key {key}")
    key: str
    known: Sequence[str]
    message = (
        "{where} is sealed with key {key}, and the keys given are {known}; add that key to "
        "seal=[...], behind the one that is to sign"
    )


class InvalidSealKey(ConfigurationError):
    """A key for the seal is not bytes, or too short to be safe.

    Attributes:
        found: What was given, described without the key itself.
        shortest: Bytes that a key has at least.
    """

    found: str
    shortest: int
    message = (
        "{found} cannot seal a database; give bytes, {shortest} or more, best 32 from "
        "secrets.token_bytes(32), and keep them out of the database's folder"
    )


class SealKeyMissing(EchelonsError):
    """A sealed database was opened without a key, and cannot be written.

    Attributes:
        path: The database.
    """

    path: str
    message = (
        "database {path!r} is sealed, and no key was given; it can be read like this, but rows "
        "without a seal would be refused later. Open it with SqliteCheckpointer(path, seal=key). "
        "Nothing was changed"
    )


class NotStorable(EchelonsError):
    """A value cannot be stored, as it could not be read back.

    Attributes:
        kind: The type of the value.
        why: What is wrong with it, and what can be done.
    """

    kind: str
    why: str
    message = "a value of type {kind} cannot be stored: {why}. Nothing was stored"


class InvalidAllowedType(ConfigurationError):
    """A type in `allowed_types` cannot be serialised.

    Attributes:
        kind: What was given.
        why: What is wrong with it.
    """

    kind: str
    why: str
    message = (
        "{kind} cannot be in allowed_types: {why}; name pydantic models, dataclasses, named tuples "
        "and enumerations, each under a name of its own"
    )


class UnreadableRecord(EchelonsError):
    """A stored request or response is damaged, or of another type.

    Attributes:
        model: What it should have been.
        why: What is wrong with it.
    """

    model: str
    why: str
    message = (
        "a stored {model} cannot be read: {why}; other threads can be used. Restore a backup of "
        "the database, delete the thread, or go on from a checkpoint before it"
    )


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
    """A record of the ledger is damaged, or was not written by Echelons.

    Attributes:
        where: The stream, key or lease that it is stored under.
        why: What is wrong with it.
        kind: What it should have been, such as `turn`, `orders` or `lease`.
    """

    where: str
    why: str
    kind: str = "record"
    message = (
        "the {kind} that the ledger holds under {where!r} cannot be read: {why}; something other "
        "than Echelons has changed the database. Other threads can be used: restore a backup of "
        "the database, or delete the thread"
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

    thread: str
    pid: int
    since: str
    message = (
        "thread {thread!r} is at work in process {pid} since {since}; wait for it, use another "
        "thread, or end that process: its death frees the thread at once. From one that hangs and "
        "cannot be ended, take it over (`echelons takeover`, Session.take_over())"
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
        "no other run does"
    )


class CallContested(LedgerError):
    """Two runs of one thread carry out the same call, so this one did not.

    Attributes:
        tool: Name of the tool.
        call_id: The call.
    """

    tool: str
    call_id: str
    message = (
        "call {call_id:short} of {tool} is carried out by another run of this thread; it was not "
        "carried out here. Run a thread in one place at a time, with a Session"
    )
