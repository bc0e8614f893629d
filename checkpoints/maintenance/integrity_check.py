"""The integrity check of a database: is every row readable and in its place, and none missing?

`backup` runs it on its own connection, in one read transaction. Every fault is recorded and the
check goes on, so that one report names all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from sqlite3 import Connection, Error
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from echelons.checkpoints.coordination.journal import EFFECT, load_entry
from echelons.checkpoints.coordination.turns import TURN
from echelons.checkpoints.ledger import VersionedValue
from echelons.checkpoints.ledger.sqlite_ledger import SELECT_LEASES, load_holder
from echelons.checkpoints.ledger.transaction import ANY_RECORD, check_number
from echelons.checkpoints.maintenance.thread_admin import find_record_kind
from echelons.checkpoints.storage.event_rows import SELECT_EVENTS, load_event
from echelons.checkpoints.storage.rows import CheckpointRow, WriteRow, load_write
from echelons.checkpoints.storage.seals import SELECT_CHECKPOINTS, SELECT_WRITES, Seals
from echelons.checkpoints.storage.verified_saver import VerifiedSaver, list_unresolved_channels
from echelons.checkpoints.threads.store import ThreadStore
from echelons.errors import CheckpointTampered, EchelonsError, LedgerDamaged, ThreadNotFound

READ_ERRORS = (Error, UnicodeDecodeError)
"""What SQLite raises for a damaged file; the latter where its message holds damaged bytes."""


@dataclass(frozen=True, slots=True)
class IntegrityFault:
    """A fault of a database.

    Attributes:
        where: The damaged part.
        why: The fault.
    """

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """The result of an integrity check.

    Attributes:
        rows: Number of rows that were read.
        threads: Number of roots' threads that they belong to.
        faults: The faults; empty if the database is sound.
    """

    rows: int
    threads: int
    faults: tuple[IntegrityFault, ...]

    @property
    def is_sound(self) -> bool:
        """Whether there are no faults."""
        return not self.faults


class IntegrityCheck:
    """The integrity check of one database."""

    def __init__(self, connection: Connection, serde: SerializerProtocol, seals: Seals) -> None:
        self._connection = connection
        self._serde = serde
        self._seals = seals
        self._row_count = 0
        self._thread_count = 0

    def run(self) -> IntegrityReport:
        """Check everything, and return the report."""
        self._connection.execute("BEGIN")
        try:
            faults = tuple(dict.fromkeys(self._find_faults()))
        finally:
            self._connection.rollback()
        return IntegrityReport(self._row_count, self._thread_count, faults)

    def _find_faults(self) -> Iterator[IntegrityFault]:
        parts = (
            self._find_damaged_pages(),
            self._find_unreadable_rows("checkpoints", SELECT_CHECKPOINTS, self._check_checkpoint),
            self._find_unreadable_rows("writes", SELECT_WRITES, self._check_write),
            self._find_unreadable_rows("events", SELECT_EVENTS, load_event),
            self._find_unreadable_rows("ledger_values", _SELECT_VALUES, self._check_value),
            self._find_unreadable_rows("ledger_entries", _SELECT_ENTRIES, _check_entry),
            self._find_unreadable_rows("ledger_leases", SELECT_LEASES, load_holder),
            self._find_orphans(),
            self._find_broken_links(),
        )
        for part in parts:
            try:
                yield from part
            except READ_ERRORS as error:
                yield IntegrityFault("the file", str(error))

    def _find_damaged_pages(self) -> Iterator[IntegrityFault]:
        for (line,) in self._connection.execute("PRAGMA integrity_check"):
            if line != "ok":
                yield IntegrityFault("the file", str(line))

    def _find_unreadable_rows(
        self, table: str, select: str, check: Callable[[tuple[Any, ...]], object]
    ) -> Iterator[IntegrityFault]:
        # Row by row: SQLite ends a query at the first invalid text.
        numbers = self._connection.execute(f"SELECT rowid FROM {table}")  # noqa: S608
        for (number,) in numbers.fetchall():
            self._row_count += 1
            try:
                row = self._connection.execute(f"{select} WHERE rowid = ?", (number,)).fetchone()
                if row is None:
                    why = "an index lists it, and the table does not have it"
                    yield IntegrityFault(f"row {number} of {table}", why)
                else:
                    check(row)
            except CheckpointTampered as error:
                yield IntegrityFault(error.where, error.why)
            except LedgerDamaged as error:
                yield IntegrityFault(f"{error.kind} {error.where!r} in the ledger", error.why)
            except (*READ_ERRORS, EchelonsError) as error:
                yield IntegrityFault(f"row {number} of {table}", str(error))

    def _check_write(self, stored: tuple[Any, ...]) -> None:
        *columns, seal = stored
        row = WriteRow(*columns)
        self._seals.check_row(row, seal)
        load_write(row, self._serde)

    def _check_value(self, stored: tuple[Any, ...]) -> None:
        key, value, version = stored
        if type(key) is not str:
            raise LedgerDamaged(repr(key), "its key is no text")
        kind = find_record_kind(key)
        record = VersionedValue(kind.decode(key, value), check_number(key, version))
        if kind is EFFECT:
            load_entry(self._serde, key, record)
        elif kind is TURN:
            record.value.load_end()

    def _check_checkpoint(self, stored: tuple[Any, ...]) -> None:
        *columns, seal = stored
        row = CheckpointRow(*columns)
        self._seals.check_row(row, seal)
        before = list_unresolved_channels(row, self._serde)
        if not before or not row.parent_checkpoint_id:
            return
        parent = (row.thread_id, row.checkpoint_ns, row.parent_checkpoint_id)
        if self._connection.execute(_SELECT_PARENT, parent).fetchone() is None:
            parts = ", ".join(sorted(before))
            why = f"checkpoint {row.parent_checkpoint_id!r}, of which its {parts} is made, is gone"
            raise CheckpointTampered(row.description, why)

    def _find_orphans(self) -> Iterator[IntegrityFault]:
        for thread_id, checkpoint_id in self._fetch_all(
            "SELECT DISTINCT thread_id, checkpoint_id FROM writes WHERE NOT EXISTS (SELECT 1"
            " FROM checkpoints WHERE checkpoints.thread_id = writes.thread_id"
            " AND checkpoints.checkpoint_ns = writes.checkpoint_ns"
            " AND checkpoints.checkpoint_id = writes.checkpoint_id)"
        ):
            where = f"writes at checkpoint {checkpoint_id!r} of thread {thread_id!r}"
            yield IntegrityFault(where, "there is no such checkpoint")

    def _find_broken_links(self) -> Iterator[IntegrityFault]:
        reader = VerifiedSaver(self._connection, self._serde, self._seals)
        reader.is_setup = True
        for (stored_id,) in self._fetch_all("SELECT DISTINCT thread_id FROM checkpoints"):
            thread_id = str(stored_id)
            self._thread_count += 1
            try:
                links = ThreadStore(reader).verify(thread_id)
            except ThreadNotFound:
                continue  # a thread of a graph that is not a tree of ours
            except CheckpointTampered as error:
                yield IntegrityFault(error.where, error.why)
                continue
            except (*READ_ERRORS, EchelonsError) as error:
                yield IntegrityFault(f"thread {thread_id!r}", str(error))
                continue
            for link in links:
                if not link.holds:
                    lost = f"{link.agent!r}, {link.sub_agent_thread_id!r}"
                    why = f"it called a thread of {lost}, that is not its own"
                    yield IntegrityFault(f"thread {link.superior_thread_id!r}", why)

    def _fetch_all(self, query: str) -> list[tuple[Any, ...]]:
        # Show a damaged id as far as it can be decoded.
        self._connection.text_factory = lambda stored: stored.decode("utf-8", "backslashreplace")
        try:
            return self._connection.execute(query).fetchall()
        finally:
            self._connection.text_factory = str


def _check_entry(stored: tuple[Any, ...]) -> None:
    stream, sequence, record = stored
    check_number(stream, sequence)
    ANY_RECORD.decode(stream, record)


_SELECT_VALUES = "SELECT key, CAST(value AS BLOB), version FROM ledger_values"
_SELECT_ENTRIES = "SELECT stream, sequence, CAST(record AS BLOB) FROM ledger_entries"
_SELECT_PARENT = (
    "SELECT 1 FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
)
