"""Migrates a database of any age: numbered steps, each taken once, in order.

`SqliteCheckpointer` calls `refuse_newer` before it touches a file, and `migrate` once
LangGraph's own tables exist. A released step is never edited: a later step corrects it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from echelons.checkpoints.clock import Clock
from echelons.checkpoints.storage.schema import DELEGATIONS, LEDGER, SCHEMA
from echelons.checkpoints.storage.seals import SEALS
from echelons.errors import DatabaseTooNew

# Databases from before the steps were counted have all of step 1, so it must be idempotent.
STEPS = (SCHEMA, LEDGER, SEALS, DELEGATIONS)

# Not `PRAGMA user_version`: an app may use that number for its own tables in the same file.
_TAKEN = "CREATE TABLE IF NOT EXISTS echelons_schema (step INTEGER PRIMARY KEY, at TEXT NOT NULL)"


def refuse_newer(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database that a newer version of Echelons has migrated.

    Raises:
        DatabaseTooNew: It has steps that this version does not know.
    """
    taken = _taken(connection)
    if taken > len(STEPS):
        raise DatabaseTooNew(path, taken, len(STEPS))


def migrate(connection: sqlite3.Connection, path: str, clock: Clock) -> None:
    """Take the missing steps of a database, all of them or none.

    Safe in several processes at once: one takes the steps while the others wait.

    Raises:
        DatabaseTooNew: It has steps that this version does not know.
        sqlite3.Error: SQLite could not read or write.
    """
    refuse_newer(connection, path)
    if _taken(connection) == len(STEPS):
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        connection.execute(_TAKEN)
        # Read again: another process may have taken some while this one waited.
        refuse_newer(connection, path)
        taken = _taken(connection)
        for number, script in enumerate(STEPS[taken:], start=taken + 1):
            # Not `executescript`, which commits first.
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO echelons_schema VALUES (?, ?)", (number, clock().isoformat())
            )


def _taken(connection: sqlite3.Connection) -> int:
    counted = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'echelons_schema'")
    if counted.fetchone() is None:
        return 0
    (taken,) = connection.execute("SELECT coalesce(max(step), 0) FROM echelons_schema").fetchone()
    return int(taken)


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for line in script.splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
