"""`Transaction`: the operations of one commit, on records that are JSON under structured keys."""

from __future__ import annotations

import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from echelons.checkpoints.clock import Clock
from echelons.checkpoints.thread_events import ThreadEvent, WriteLocation
from echelons.errors import LeaseLost, LedgerDamaged, LedgerError
from echelons.text.input_limits import shorten_repr

T = TypeVar("T")
Json: TypeAlias = dict[str, Any] | list[Any] | str | int | float | bool | None

MAX_RECORD_SIZE = 8 * 1024 * 1024
"""Bytes of JSON in UTF-8 that a record or value may have, unless a ledger is made with another
limit: above the largest results of tools, far below what SQLite keeps in a row."""
MAX_NESTING = 100
"""Levels of nested lists and objects; Python and SQLite both give up near 1,000."""
MAX_NAME_SIZE = 4096
"""Bytes of UTF-8 that a name may have: ids, and the path of an agent 32 levels down."""

_TEXT = frozenset({str})
_SCALARS = frozenset({str, int, float, bool, type(None)})
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
MAX_NUMBER: Final = 2**53
"""Versions, sequences and epochs are below it: each grows by one with a write."""
REPAIR_STEP: Final = 2**32
"""How far a number in place of a damaged one is above all that there can have been."""
HOST = socket.gethostname()
"""The name of this machine or container, in which a process id has a meaning."""


def encode_record(
    where: str, value: Json, limit: int = MAX_RECORD_SIZE, *, is_plain: bool = False
) -> str:
    """Return a value as JSON.

    Args:
        where: The stream or key, for the errors.
        value: The value.
        limit: The largest size, in bytes of UTF-8.
        is_plain: Whether it is known to have texts as keys, no tuples, and little depth.

    Raises:
        LedgerError: It would be read back as another value, or not at all; it is larger than the
            limit.
    """
    try:
        # As `encode` does it, without its checks.
        text = "".join(_ENCODER.iterencode(value, _one_shot=True))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(where, str(error)) from error
    if size > limit:
        raise LedgerError(
            "what was given for {where!r} has {size} bytes as JSON, and the limit is {limit}; "
            "store it elsewhere and keep its address here. Nothing was changed",
            code="record_too_large",
            where=where,
            size=size,
            limit=limit,
        )
    # Most values are flat, of scalars that JSON has.
    if is_plain or (
        type(value) is dict
        and _TEXT.issuperset(map(type, value))
        and _SCALARS.issuperset(map(type, value.values()))
    ):
        return text
    # Few brackets cannot nest deeply, so most values need no walk.
    if text.count("[") + text.count("{") > MAX_NESTING and _is_deeper(value, MAX_NESTING):
        raise _not_json(where, f"it is nested more than {MAX_NESTING} deep")
    if json.loads(text) != value:
        raise _not_json(
            where, "a tuple, or a key that is no text, would come back as another value"
        )
    return text


class RecordKind(Generic[T]):
    """A kind of record, and the shape that its records have.

    Fields that the shape does not have are passed over: a newer version may write more of them.

    Examples:
        >>> RecordKind("race", list[int]).decode("thread/trip/race/1", "[2, 1]")
        [2, 1]
    """

    def __init__(self, name: str, shape: type[T]) -> None:
        self.name = name
        self._shape = shape

    def decode(self, where: str, text: str | bytes) -> T:
        """Return a record that was stored as JSON.

        Raises:
            LedgerDamaged: It is no JSON, or has another shape.
        """
        try:
            return self._validate_json(text, strict=True)
        except ValidationError as error:
            # Without what was stored, which may be long or secret.
            fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
            why = ": ".join((*map(str, fault["loc"]), fault["msg"]))
            raise LedgerDamaged(where, why, self.name) from None

    @cached_property
    def _validate_json(self) -> Callable[..., T]:
        # When it is first needed: a command reads only some of the kinds.
        return TypeAdapter(self._shape).validator.validate_json


ANY_RECORD: Final[RecordKind[Any]] = RecordKind("record", object)
"""The kind of records that may be any JSON."""


def validate_name(name: object) -> str:
    """Return a name, if every ledger can store it.

    Raises:
        LedgerError: It is no text, empty, too long, or has a NUL or a lone surrogate.
    """
    if not isinstance(name, str):
        raise _invalid_name(repr(name)[:80], "it is no text")
    return _validate_text(name)


@lru_cache(maxsize=1024)
def _validate_text(name: str) -> str:
    if not name:
        raise _invalid_name(name, "it is empty")
    if "\0" in name:
        raise _invalid_name(name[:80], "it holds a NUL")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise _invalid_name(ascii(name[:80]), "it holds half a character") from error
    if size > MAX_NAME_SIZE:
        raise _invalid_name(name[:80], f"it has {size} bytes, and the limit is {MAX_NAME_SIZE}")
    return name


def _is_deeper(value: Json, limit: int) -> bool:
    level = _list_containers([value])
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in _list_containers(outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _list_containers(values: Iterable[Any]) -> list[dict[str, Any] | list[Any]]:
    return [container for container in values if isinstance(container, (dict, list))]


def _invalid_name(name: str, why: str) -> LedgerError:
    return LedgerError(
        "{name!r} is no name for the ledger: {why}; nothing was changed",
        code="invalid_ledger_name",
        name=name,
        why=why,
    )


def _not_json(where: str, why: str) -> LedgerError:
    return LedgerError(
        "what was given for {where!r} is no JSON: {why}; give null, booleans, finite numbers, "
        "texts, lists, and objects with text keys. Nothing was changed",
        code="not_json",
        where=where,
        why=why,
    )


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
