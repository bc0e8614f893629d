"""Seals: proof that a row was written with a key, and stands where it was written.

A seal is HMAC-SHA256 over every column of a row, its table and place included. Seals have their
own table, because LangGraph's tables stay unchanged. The saver stores and checks them in the
transaction of the rows. A seal does not reveal that rows were deleted, or that the whole
database is an old copy.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Sequence
from sqlite3 import Connection, Cursor
from struct import pack
from typing import Any

from echelons.checkpoints.storage.rows import CHECKPOINT_INDEX, CheckpointRow, StoredRow, WriteRow
from echelons.errors import CheckpointTampered, ConfigurationError, StorageError
from echelons.text.input_limits import list_items, refuse_unreadable

MIN_KEY_BYTES = 16
"""Minimum length of a key in bytes; NIST SP 800-107 asks for 112 bits."""
_KEY_ID_BYTES, _MAC_BYTES = 8, 32

SEALS_SCHEMA = """
CREATE TABLE seals (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
) WITHOUT ROWID;
"""
"""Step 3 of the database's schema: the place of a row, the id of the key, and the seal."""


class Seals:
    """The seals of a database; these are of one without seals: nothing is sealed or checked."""

    def seal_rows(self, cursor: Cursor, rows: Iterable[StoredRow], replace: bool = True) -> None:
        """Seal rows that are written in this transaction.

        Args:
            cursor: The cursor of the transaction.
            rows: The rows.
            replace: Whether they replace existing rows.

        Raises:
            StorageError: The database is sealed, and there is no key.
        """

    def check_row(self, row: StoredRow, seal: object) -> None:
        """Check a row against its seal.

        Raises:
            CheckpointTampered: The row has no seal, or does not match it.
            CheckpointTampered: It was sealed with another key.
        """

    def check_thread(self, cursor: Cursor, thread_id: str) -> None:
        """Check every row of a thread before it is copied."""

    def seal_thread(self, cursor: Cursor, thread_id: str) -> None:
        """Seal every row of a thread that was copied."""

    def reseal_all(self, cursor: Cursor, adopt: bool) -> int:
        """Check every row of the database, seal it with the first key, and count them.

        Args:
            cursor: The cursor of the transaction.
            adopt: Whether rows without a seal are accepted.

        Raises:
            ConfigurationError: There is no key.
        """
        raise _invalid_key("no key", MIN_KEY_BYTES)


class MissingKeySeals(Seals):
    """The seals of a sealed database opened without a key: it can be read, but not written."""

    def __init__(self, path: str) -> None:
        self._path = path

    def seal_rows(self, cursor: Cursor, rows: Iterable[StoredRow], replace: bool = True) -> None:
        """Refuse to write."""
        raise _key_missing(self._path)

    def seal_thread(self, cursor: Cursor, thread_id: str) -> None:
        """Refuse to write."""
        raise _key_missing(self._path)


class KeyedSeals(Seals):
    """The seals of a sealed database: the first key signs, and each key can verify.

    Raises:
        ConfigurationError: A key is not bytes, or too short.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if not isinstance(key, bytes):
                raise _invalid_key(f"a key of type {type(key).__name__}", MIN_KEY_BYTES)
            if len(key) < MIN_KEY_BYTES:
                raise _invalid_key(f"a key of {len(key)} bytes", MIN_KEY_BYTES)
        if not keys:
            raise _invalid_key("an empty list of keys", MIN_KEY_BYTES)
        self._keys = {_compute_key_id(key): key for key in keys}
        self._signing_key = _compute_key_id(keys[0])

    def seal_rows(self, cursor: Cursor, rows: Iterable[StoredRow], replace: bool = True) -> None:
        """Seal rows with the first key."""
        sealed = ((*row.seal_place, self._compute_seal(self._signing_key, row)) for row in rows)
        cursor.executemany(_REPLACE_SEAL if replace else _KEEP_SEAL, sealed)

    def check_row(self, row: StoredRow, seal: object) -> None:
        """Check a row against its seal."""
        if seal is None:
            raise CheckpointTampered(row.description, "it has no seal")
        if not isinstance(seal, bytes) or len(seal) != _KEY_ID_BYTES + _MAC_BYTES:
            raise CheckpointTampered(row.description, "its seal is damaged")
        key = seal[:_KEY_ID_BYTES]
        if key not in self._keys:
            raise CheckpointTampered(
                row.description,
                f"it is sealed with key {key.hex()}",
                "{where} is sealed with key {key}, and the keys given are {known}; add that key "
                "to seal=[...], behind the one that is to sign",
                code="unknown_seal_key",
                key=key.hex(),
                known=tuple(key.hex() for key in self._keys),
            )
        if not hmac.compare_digest(seal, self._compute_seal(key, row)):
            raise CheckpointTampered(
                row.description, "it or its place was changed after it was sealed"
            )

    def check_thread(self, cursor: Cursor, thread_id: str) -> None:
        """Check every row of a thread."""
        for row, seal in _load_sealed_rows(cursor.connection, thread_id):
            self.check_row(row, seal)

    def seal_thread(self, cursor: Cursor, thread_id: str) -> None:
        """Seal every row of a thread."""
        self.seal_rows(cursor, (row for row, _ in _load_sealed_rows(cursor.connection, thread_id)))

    def reseal_all(self, cursor: Cursor, adopt: bool) -> int:
        """Check every row of the database, seal it with the first key, and count them."""
        every = cursor.execute(
            "SELECT thread_id FROM checkpoints UNION SELECT thread_id FROM writes"
        )
        count = 0
        for (thread_id,) in every.fetchall():
            rows = list(_load_sealed_rows(cursor.connection, thread_id))
            for row, seal in rows:
                if seal is not None or not adopt:
                    self.check_row(row, seal)
            # This also deletes the seals of deleted rows.
            cursor.execute("DELETE FROM seals WHERE thread_id = ?", (thread_id,))
            self.seal_rows(cursor, (row for row, _ in rows))
            count += len(rows)
        return count

    def _compute_seal(self, key: bytes, row: StoredRow) -> bytes:
        return key + hmac.digest(self._keys[key], _encode_row(row), "sha256")


def choose_seals(keys: bytes | Sequence[bytes] | None, connection: Connection, path: str) -> Seals:
    """Return the `Seals` for the keys that a database was opened with."""
    if keys is not None:
        with refuse_unreadable(
            lambda why: _invalid_key(f"keys that are none ({why})", MIN_KEY_BYTES)
        ):
            return KeyedSeals(
                [keys] if isinstance(keys, (bytes, bytearray, str)) else list_items(keys)
            )
    sealed = connection.execute("SELECT 1 FROM seals LIMIT 1").fetchone()
    return MissingKeySeals(path) if sealed else Seals()


def _compute_key_id(key: bytes) -> bytes:
    return hmac.digest(key, b"echelons: id of a key", "sha256")[:_KEY_ID_BYTES]


def _encode_row(row: StoredRow) -> bytes:
    """Return an unambiguous encoding of a row: each value with its type and length."""
    parts = [type(row).__name__.encode()]
    for value in row:
        if isinstance(value, bytes):
            tag, data = b"b", value
        elif isinstance(value, str):
            tag, data = b"s", value.encode()
        else:
            tag, data = (b"n", b"") if value is None else (b"i", str(value).encode())
        parts += [tag, pack(">Q", len(data)), data]
    return b"".join(parts)


def _load_sealed_rows(connection: Connection, thread_id: str) -> Iterator[tuple[StoredRow, object]]:
    kinds: dict[Any, str] = {CheckpointRow: SELECT_CHECKPOINTS, WriteRow: SELECT_WRITES}
    for kind, select in kinds.items():
        # Fetched at once, because the caller changes the seals while it iterates.
        rows = connection.execute(f"{select} WHERE thread_id = ?", (thread_id,)).fetchall()
        for *columns, seal in rows:
            yield kind(*columns), seal


def _build_select(table: str, columns: Sequence[str], task: str, idx: str) -> str:
    # Made of the names below, never of anything given.
    return (
        f"SELECT {', '.join(columns)}, (SELECT seal FROM seals"  # noqa: S608
        f" WHERE seals.thread_id = {table}.thread_id"
        f" AND seals.checkpoint_ns = {table}.checkpoint_ns"
        f" AND seals.checkpoint_id = {table}.checkpoint_id"
        f" AND seals.task_id = {task} AND seals.idx = {idx}) FROM {table}"
    )


SELECT_CHECKPOINTS = _build_select(
    "checkpoints", CheckpointRow._fields, "''", str(CHECKPOINT_INDEX)
)
"""Selects the rows of `checkpoints`, each with its seal."""
SELECT_WRITES = _build_select("writes", WriteRow._fields, "writes.task_id", "writes.idx")
"""Selects the rows of `writes`, each with its seal."""
_SEAL_COLUMNS = "seals (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, seal)"
_REPLACE_SEAL = f"INSERT OR REPLACE INTO {_SEAL_COLUMNS} VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608
_KEEP_SEAL = f"INSERT OR IGNORE INTO {_SEAL_COLUMNS} VALUES (?, ?, ?, ?, ?, ?)"  # noqa: S608


def _invalid_key(found: str, shortest: int) -> ConfigurationError:
    return ConfigurationError(
        "{found} cannot seal a database; give bytes, {shortest} or more, best 32 from "
        "secrets.token_bytes(32), and keep them out of the database's folder",
        code="invalid_seal_key",
        found=found,
        shortest=shortest,
    )


def _key_missing(path: str) -> StorageError:
    return StorageError(
        path,
        "it is sealed, and no key was given",
        "database {path!r} is sealed, and no key was given; it can be read like this, but rows "
        "without a seal would be refused later. Open it with SqliteCheckpointer(path, seal=key). "
        "Nothing was changed",
        code="seal_key_missing",
    )
