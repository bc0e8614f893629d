"""`Transaction`: the operations of one commit. The rules are here, the storage elsewhere.

`Ledger.commit` passes a transaction to its caller. Each ledger implements the abstract methods
at the end of the class and nothing else, so all of them have the same rules.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from echelons.checkpoints.clock import Clock
from echelons.checkpoints.ledger.records import (
    ANY_RECORD,
    Json,
    RecordKind,
    encode_record,
    validate_name,
)
from echelons.checkpoints.thread_events import ThreadEvent, WriteLocation
from echelons.errors import LeaseLost, LedgerDamaged
from echelons.text.input_limits import shorten_repr

T = TypeVar("T")
MAX_NUMBER: Final = 2**53
"""Versions, sequences and epochs are below it: each grows by one with a write."""
REPAIR_STEP: Final = 2**32
"""How far a number in place of a damaged one is above all that there can have been."""

HOST = socket.gethostname()
"""The name of this machine or container, in which a process id has a meaning."""


class StreamEntry(NamedTuple):
    """One record of a stream."""

    sequence: int  # its position, counted from 1 without a gap, in the order of commit
    at: str  # when it was appended, ISO 8601, UTC; unlike the sequence, it may go back
    record: Any  # the JSON value that was appended


class VersionedValue(NamedTuple, Generic[T]):
    """The value of a key."""

    value: T
    # Grows with every change of the key, and is never used again for the key, not even after a
    # deletion.
    version: int


class StoredRecord(NamedTuple, Generic[T]):
    """A record with its key, and when it was stored last, ISO 8601, UTC."""

    key: str
    at: str
    value: T


class Fence(NamedTuple):
    """Proof of a lease: that its name has had no other holder since this epoch began."""

    name: str
    epoch: int  # how many times the name had been leased, this time included


class LeaseHolder(NamedTuple):
    """The last holder of a lease, alive or not; only its lock shows that."""

    epoch: int  # how many times the name has been leased
    pid: int  # the holder's process
    since: str  # when it took the lease, ISO 8601, UTC
    host: str = ""  # name of the holder's machine or container; empty in a row from before


def check_number(where: str, number: object, kind: str = ANY_RECORD.name) -> int:
    """Return a stored version, sequence or epoch, if the ledger can have written it.

    Raises:
        LedgerDamaged: It is no integer, or out of the range.
    """
    if type(number) is not int or not 0 <= number < MAX_NUMBER:
        raise LedgerDamaged(where, f"its number is {shorten_repr(number)}", kind)
    return number


class Transaction(ABC):
    """Operations on the ledger that are committed together, or not at all.

    Each raises `LedgerError` for a stream, key or lease whose name cannot be kept.

    Args:
        clock: Returns the times that are stored.
        limit: The largest record or value, in bytes of JSON in UTF-8.
    """

    def __init__(self, clock: Clock, limit: int) -> None:
        self._clock = clock
        self._limit = limit
        self._now = ""

    @property
    def store_version(self) -> tuple[int, int] | None:
        """The version of the whole store: equal while nothing at all is written to it.

        `None` if the store has none, as other savers keep their checkpoints elsewhere.
        """
        return None

    @property
    def foreign_writes(self) -> int:
        """The value of `Ledger.foreign_writes`, as of this transaction."""
        return 0

    @property
    def now(self) -> str:
        """The time of the commit by the ledger's clock, ISO 8601, UTC."""
        if not self._now:
            self._now = self._clock().isoformat()
        return self._now

    def add_event(self, where: WriteLocation, event: ThreadEvent) -> bool:
        """Add an event to those of a thread, once for its key; return whether events are kept.

        Only the ledger of `SqliteCheckpointer` has a table of them.
        """
        return False

    def append(self, stream: str, record: Json) -> int:
        """Add a record to the end of a stream, and return its sequence, counted from 1.

        Raises:
            LedgerError: The record would not be read back as it is; the record is larger than the
                ledger keeps.
        """
        text = encode_record(validate_name(stream), record, self._limit)
        sequence = self._read_last(stream) + 1
        self._add_entry(stream, sequence, self.now, text)
        return sequence

    def read(self, stream: str, after: int = 0, limit: int | None = None) -> list[StreamEntry]:
        """Return the entries of a stream after a sequence, in order.

        Args:
            stream: Its name; a stream that was never written has no entries.
            after: The sequence of the last entry already read.
            limit: How many to return at most.

        Raises:
            LedgerDamaged: A stored record is no JSON.
        """
        rows = self._read_entries(validate_name(stream), after, limit)
        return [
            StreamEntry(check_number(stream, sequence), at, ANY_RECORD.decode(stream, text))
            for sequence, at, text in rows
        ]

    def get_last_sequence(self, stream: str) -> int:
        """Return the sequence of a stream's last entry, 0 if it has none."""
        return self._read_last(validate_name(stream))

    def get(self, key: str) -> VersionedValue[Any] | None:
        """Return the value and version of a key, or `None`.

        Raises:
            LedgerDamaged: The stored value is no JSON.
        """
        return self.get_record(ANY_RECORD, key)

    def get_record(self, kind: RecordKind[T], key: str) -> VersionedValue[T] | None:
        """Return the record of a kind under a key, with its version, or `None`.

        Raises:
            LedgerDamaged: The stored value is no record of the kind.
        """
        stored = self._read_value(validate_name(key))
        if stored is None:
            return None
        return VersionedValue(kind.decode(key, stored[0]), check_number(key, stored[1], kind.name))

    def compare_and_set(self, key: str, expected: int | None, value: Json) -> int | None:
        """Set a key if it still has the expected version, `None` if it must not exist.

        Returns:
            The new version, or `None` if the key has another version than expected.

        Raises:
            LedgerError: The value would not be read back as it is; the value is larger than the
                ledger keeps.
        """
        text = encode_record(validate_name(key), value, self._limit)
        if self._read_version(key) != expected:
            return None
        # The key may have been deleted before, so it begins above all versions of deleted keys.
        version = (self._read_floor() if expected is None else expected) + 1
        self._store_value(key, version, self.now, text)
        return version

    def has_version(self, key: str, version: int | None) -> bool:
        """Return whether a key has a version; `None`: whether there is none of it."""
        return self._read_version(key) == version

    def set_read(self, key: str, version: int | None, value: Json, *, is_plain: bool = True) -> int:
        """Set a key that was read in this transaction, and return its new version.

        Args:
            key: The key, which is not checked again.
            version: The version that it had, likewise.
            value: The value.
            is_plain: Whether it is known to have texts as keys, no tuples, and little depth.
        """
        text = encode_record(key, value, self._limit, is_plain=is_plain)
        new = (self._read_floor() if version is None else version) + 1
        self._store_value(key, new, self.now, text)
        return new

    def delete(self, key: str, expected: int) -> bool:
        """Remove a key if it still has the expected version; return whether it was removed."""
        if self._read_version(validate_name(key)) != expected:
            return False
        self.discard(key)
        return True

    def discard(self, key: str) -> None:
        """Remove a key whatever its version, and also if what it holds is damaged."""
        version = self._read_version(validate_name(key))
        self._remove_key(key)
        if type(version) is int and version > self._read_floor():
            self._raise_floor(version)

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, in the order of their code points."""
        return list(self._read_keys(validate_name(prefix) if prefix else ""))

    def list_records(self, kind: RecordKind[T], prefix: str) -> list[StoredRecord[T]]:
        """Return the records of a kind whose keys begin with a prefix, in the order of the keys.

        Raises:
            LedgerDamaged: A value under one of the keys is no record of the kind.
        """
        return [
            StoredRecord(key, at, kind.decode(key, text))
            for key, at, text in self._read_records(validate_name(prefix))
        ]

    def require_lease(self, fence: Fence) -> None:
        """Refuse to go on if another holder has taken the lease.

        Raises:
            LeaseLost: Another holder has taken it.
        """
        holder = self.get_last_holder(fence.name)
        current = holder.epoch if holder else 0
        if current != fence.epoch:
            raise LeaseLost(fence.name, fence.epoch, current)

    def get_last_holder(self, name: str) -> LeaseHolder | None:
        """Return the last holder of a lease, dead or alive; `None` if it was never taken."""
        return self._read_holder(validate_name(name))

    def begin_epoch(self, name: str, epoch: int, pid: int) -> LeaseHolder:
        """Store a new holder of a lease; the caller must have the lock of the epoch."""
        holder = LeaseHolder(epoch, pid, self.now, HOST)
        self._store_holder(validate_name(name), holder)
        return holder

    # Implemented by each ledger. Names are checked already, values are JSON texts.

    @abstractmethod
    def _read_last(self, stream: str) -> int: ...

    @abstractmethod
    def _add_entry(self, stream: str, sequence: int, at: str, text: str) -> None: ...

    @abstractmethod
    def _read_entries(
        self, stream: str, after: int, limit: int | None
    ) -> Iterable[tuple[int, str, str | bytes]]: ...

    @abstractmethod
    def _read_value(self, key: str) -> tuple[str | bytes, int] | None: ...

    @abstractmethod
    def _read_version(self, key: str) -> int | None: ...

    @abstractmethod
    def _store_value(self, key: str, version: int, at: str, text: str) -> None: ...

    @abstractmethod
    def _remove_key(self, key: str) -> None: ...

    @abstractmethod
    def _read_floor(self) -> int: ...

    @abstractmethod
    def _raise_floor(self, version: int) -> None: ...

    @abstractmethod
    def _read_keys(self, prefix: str) -> Iterable[str]: ...

    @abstractmethod
    def _read_records(self, prefix: str) -> Iterable[tuple[str, str, str | bytes]]: ...

    @abstractmethod
    def _read_holder(self, name: str) -> LeaseHolder | None: ...

    @abstractmethod
    def _store_holder(self, name: str, holder: LeaseHolder) -> None: ...
