"""The integrity check of a database: is every row readable and in its place, and none missing?

`backup` runs it on its own connection, in one read transaction. Every fault is recorded and the
check goes on, so that one report names all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from sqlite3 import Connection, DatabaseError
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from echelons.checkpoints.storage.delta_history import list_unresolved_channels
from echelons.checkpoints.storage.rows import CheckpointRow, WriteRow, load_write
from echelons.checkpoints.storage.seals import SELECT_CHECKPOINTS, SELECT_WRITES, Seals
from echelons.checkpoints.storage.verified_saver import VerifiedSaver
from echelons.checkpoints.threads.store import ThreadStore
from echelons.errors import CheckpointTampered, EchelonsError, ThreadNotFound

JSON_COLUMNS = (("ledger_entries", "record"), ("ledger_values", "value"))
"""Tables and their columns of JSON text."""


@dataclass(frozen=True, slots=True)
class IntegrityFault:
    """A fault of a database.

    Attributes:
        where: The damaged part.
        why: What is wrong with it.
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
    """The integrity check of one database.

    Args:
        connection: A connection to it, not used by others meanwhile.
        serde: The serializer of values.
        seals: The seals of the database.
    """

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
            self._find_unreadable_rows(
                "checkpoints", SELECT_CHECKPOINTS, CheckpointRow, self._check_checkpoint
            ),
            self._find_unreadable_rows(
                "writes", SELECT_WRITES, WriteRow, lambda row: load_write(row, self._serde)
            ),
            self._find_orphans(),
            self._find_invalid_json(),
            self._find_broken_links(),
        )
        for part in parts:
            try:
                yield from part
            except DatabaseError as error:
                yield IntegrityFault("the file", str(error))

    def _find_damaged_pages(self) -> Iterator[IntegrityFault]:
        for (line,) in self._connection.execute("PRAGMA integrity_check"):
            if line != "ok":
                yield IntegrityFault("the file", str(line))

    def _find_unreadable_rows(
        self, table: str, select: str, kind: Any, read: Callable[[Any], object]
    ) -> Iterator[IntegrityFault]:
        # Row by row: SQLite ends a query at the first invalid text.
        numbers = self._connection.execute(f"SELECT rowid FROM {table}")  # noqa: S608
        for (number,) in numbers.fetchall():
            self._row_count += 1
            try:
                row = self._connection.execute(f"{select} WHERE rowid = ?", (number,))
                *columns, seal = row.fetchone()
                held = kind(*columns)
                self._seals.check_row(held, seal)
                read(held)
            except CheckpointTampered as error:
                yield IntegrityFault(error.where, error.why)
            except (DatabaseError, EchelonsError) as error:
                yield IntegrityFault(f"row {number} of {table}", str(error))

    def _check_checkpoint(self, row: CheckpointRow) -> None:
        before = list_unresolved_channels(row, self._serde)
        if not before or not row.parent_checkpoint_id:
            return
        above = (row.thread_id, row.checkpoint_ns, row.parent_checkpoint_id)
        if self._connection.execute(_SELECT_PARENT, above).fetchone() is None:
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

    def _find_invalid_json(self) -> Iterator[IntegrityFault]:
        for table, column in JSON_COLUMNS:
            for number, text in self._fetch_all(f"SELECT rowid, {column} FROM {table}"):  # noqa: S608
                self._row_count += 1
                try:
                    json.loads(text)
                except (TypeError, ValueError, RecursionError) as error:
                    why = f"its {column} is no JSON ({error})"
                    yield IntegrityFault(f"row {number} of {table}", why)

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
            except (EchelonsError, DatabaseError) as error:
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


_SELECT_PARENT = (
    "SELECT 1 FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
)
