"""What can be done with the ledger in one commit; the rules are here, the storing elsewhere.

``Ledger.commit`` lends a transaction to its caller. Each store implements the few methods
below the line, and nothing else, so that all of them keep the same rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

from echelons.checkpoints.clock import Clock
from echelons.checkpoints.ledger.records import Json, checked, decode, encode
from echelons.errors import LeaseLost


class Entry(NamedTuple):
    """One record of a stream.

    Attributes:
        sequence: Its place, counted from 1 without a gap, in the order of commit.
        at: When it was appended, ISO 8601, UTC; a clock may go back, a sequence does not.
        record: What was appended.
    """

    sequence: int
    at: str
    record: Any


class Value(NamedTuple):
    """What stands under a key.

    Attributes:
        value: What was set.
        version: Grows with every change of the key. No other value of the key ever has
            it, not even after a deletion.
    """

    value: Any
    version: int


class Fence(NamedTuple):
    """What a lease proves: that nobody has held the name since this epoch began.

    Attributes:
        name: The lease's name.
        epoch: How many times the name had been leased, this time included.
    """

    name: str
    epoch: int


class Holder(NamedTuple):
    """Who took a lease last; whether it still lives, its lock knows.

    Attributes:
        epoch: How many times the name has been leased.
        pid: The process.
        since: When it took it, ISO 8601, UTC.
    """

    epoch: int
    pid: int
    since: str


class Transaction(ABC):
    """Work on the ledger that is committed all together, or not at all.

    Args:
        clock: Tells the time of what is stored.
        limit: The largest record or value, in bytes of JSON in UTF-8.
    """

    def __init__(self, clock: Clock, limit: int) -> None:
        self._clock = clock
        self._limit = limit

    def append(self, stream: str, record: Json) -> int:
        """Add a record to the end of a stream, and return its sequence.

        Raises:
            InvalidLedgerName: The stream's name cannot be kept.
            NotJson: The record would not be read back as it is.
            RecordTooLarge: The record is larger than the ledger keeps.
        """
        text = encode(checked(stream), record, self._limit)
        sequence = self._last(stream) + 1
        self._add(stream, sequence, self._now(), text)
        return sequence

    def read(self, stream: str, after: int = 0, limit: int | None = None) -> list[Entry]:
        """Return the entries of a stream after a sequence, in order.

        Args:
            stream: Its name; one that nothing was appended to has no entries.
            after: The sequence of the last entry that is known already.
            limit: How many to return at most.

        Raises:
            InvalidLedgerName: The stream's name cannot be kept.
            LedgerDamaged: A stored record is no JSON.
        """
        found = self._entries(checked(stream), after, limit)
        return [Entry(sequence, at, decode(stream, text)) for sequence, at, text in found]

    def last(self, stream: str) -> int:
        """Return the sequence of a stream's last entry, 0 if it has none.

        Raises:
            InvalidLedgerName: The stream's name cannot be kept.
        """
        return self._last(checked(stream))

    def get(self, key: str) -> Value | None:
        """Return what stands under a key, or ``None``.

        Raises:
            InvalidLedgerName: The key cannot be kept.
            LedgerDamaged: The stored value is no JSON.
        """
        found = self._value(checked(key))
        return Value(decode(key, found[0]), found[1]) if found else None

    def compare_and_set(self, key: str, expected: int | None, value: Json) -> int | None:
        """Set a key if it has not changed.

        Args:
            key: Its name.
            expected: The version that it must have; ``None`` if nothing may stand there.
            value: What to set.

        Returns:
            The new version, or ``None`` if the key has another version than expected.

        Raises:
            InvalidLedgerName: The key cannot be kept.
            NotJson: The value would not be read back as it is.
            RecordTooLarge: The value is larger than the ledger keeps.
        """
        text = encode(checked(key), value, self._limit)
        if self._version(key) != expected:
            return None
        # A new key may be an old one, so it begins above the versions of all that were deleted.
        version = (self._floor() if expected is None else expected) + 1
        self._set(key, version, self._now(), text)
        return version

    def delete(self, key: str, expected: int) -> bool:
        """Remove a key if it has not changed, and return whether it was removed.

        Args:
            key: Its name.
            expected: The version that it must have.

        Raises:
            InvalidLedgerName: The key cannot be kept.
        """
        if self._version(checked(key)) != expected:
            return False
        self._remove(key)
        if expected > self._floor():
            self._raise_floor(expected)
        return True

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with a prefix, in the order of their code points.

        Raises:
            InvalidLedgerName: No key can begin so.
        """
        return list(self._keys(checked(prefix) if prefix else ""))

    def require(self, fence: Fence) -> None:
        """Refuse to go on if the lease has been taken by somebody else since.

        Raises:
            InvalidLedgerName: The lease's name cannot be kept.
            LeaseLost: It has.
        """
        holder = self.last_holder(fence.name)
        current = holder.epoch if holder else 0
        if current != fence.epoch:
            raise LeaseLost(fence.name, fence.epoch, current)

    def last_holder(self, name: str) -> Holder | None:
        """Return who took a lease last, dead or alive; ``None`` if nobody ever has.

        Raises:
            InvalidLedgerName: The lease's name cannot be kept.
        """
        return self._holder(checked(name))

    def begin_epoch(self, name: str, epoch: int, pid: int) -> Holder:
        """Write down who holds a lease from now on; only for who has the lock of the epoch.

        Raises:
            InvalidLedgerName: The lease's name cannot be kept.
        """
        holder = Holder(epoch, pid, self._now())
        self._hold(checked(name), holder)
        return holder

    def _now(self) -> str:
        return self._clock().isoformat()

    # What a store implements. Names are checked already, values are JSON.

    @abstractmethod
    def _last(self, stream: str) -> int: ...

    @abstractmethod
    def _add(self, stream: str, sequence: int, at: str, text: str) -> None: ...

    @abstractmethod
    def _entries(
        self, stream: str, after: int, limit: int | None
    ) -> Iterable[tuple[int, str, str]]: ...

    @abstractmethod
    def _value(self, key: str) -> tuple[str, int] | None: ...

    @abstractmethod
    def _version(self, key: str) -> int | None: ...

    @abstractmethod
    def _set(self, key: str, version: int, at: str, text: str) -> None: ...

    @abstractmethod
    def _remove(self, key: str) -> None: ...

    @abstractmethod
    def _floor(self) -> int: ...

    @abstractmethod
    def _raise_floor(self, version: int) -> None: ...

    @abstractmethod
    def _keys(self, prefix: str) -> Iterable[str]: ...

    @abstractmethod
    def _holder(self, name: str) -> Holder | None: ...

    @abstractmethod
    def _hold(self, name: str, holder: Holder) -> None: ...
