"""Migrates a database of any age: numbered steps, each taken once, in order.

`SqliteCheckpointer` calls `refuse_newer` before it touches a file, and `migrate` once
LangGraph's own tables exist. A released step is never edited: a later step corrects it.
"""

from __future__ import annotations

import sqlite3
from functools import cache

from echelons.checkpoints.clock import Clock
from echelons.checkpoints.ledger import build_key
from echelons.checkpoints.storage.schema import (
    AGENTS_VIEW,
    AGENTS_VIEW_WITH_KINDS,
    CALLS_BY_POSITION,
    CIRCUITS_BY_PATH,
    DELEGATIONS_VIEW,
    DELEGATIONS_WITH_ENDS,
    EVENTS_SCHEMA,
    LEDGER,
    NOTED_CALLS,
    OPEN_CALLS,
    RESULTS_IN_CONTENT,
    USAGE_VIEWS,
    USER_ACTIONS_VIEW,
)
from echelons.checkpoints.storage.seals import SEALS_SCHEMA
from echelons.errors import StorageError

# Databases from before the steps were counted have all of step 1, so it must be idempotent.
MIGRATION_STEPS = (
    EVENTS_SCHEMA,
    LEDGER,
    SEALS_SCHEMA,
    # The journal has had its keys of today since the view was made: later databases know their
    # open calls.
    DELEGATIONS_VIEW + OPEN_CALLS,
    CIRCUITS_BY_PATH,
    CALLS_BY_POSITION,
    RESULTS_IN_CONTENT,
    USER_ACTIONS_VIEW,
    AGENTS_VIEW,
    AGENTS_VIEW_WITH_KINDS,
    USAGE_VIEWS,
    NOTED_CALLS,
    DELEGATIONS_WITH_ENDS,
)

# Not `PRAGMA user_version`: an app may use that number for its own tables in the same file.
_STEPS_TABLE = (
    "CREATE TABLE IF NOT EXISTS echelons_schema (step INTEGER PRIMARY KEY, at TEXT NOT NULL)"
)


def refuse_newer(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database that a newer version of Echelons has migrated.

    Raises:
        StorageError: It has steps that this version does not know.
    """
    taken = _count_steps_taken(connection)
    if taken > len(MIGRATION_STEPS):
        raise StorageError(
            path,
            f"its schema is at step {taken}, and this version knows up to {len(MIGRATION_STEPS)}",
            "database {path!r} is of a newer version of Echelons: {why}; update Echelons, or name "
            "another database. Nothing was changed",
            code="database_too_new",
            found=taken,
            known=len(MIGRATION_STEPS),
        )


def migrate(connection: sqlite3.Connection, path: str, clock: Clock) -> None:
    """Take the missing steps of a database, all of them or none.

    Safe in several processes at once: one takes the steps while the others wait.
    """
    refuse_newer(connection, path)
    if _count_steps_taken(connection) == len(MIGRATION_STEPS):
        return
    connection.create_function("build_key", -1, build_key, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        connection.execute(_STEPS_TABLE)
        # Read again: another process may have taken some while this one waited.
        refuse_newer(connection, path)
        taken = _count_steps_taken(connection)
        for number, script in enumerate(MIGRATION_STEPS[taken:], start=taken + 1):
            # Not `executescript`, which commits first.
            for statement in _split_statements(script):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO echelons_schema VALUES (?, ?)", (number, clock().isoformat())
            )


@cache
def _split_statements(script: str) -> tuple[str, ...]:
    statements, statement = list[str](), ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return tuple(statements)


def _count_steps_taken(connection: sqlite3.Connection) -> int:
    counted = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'echelons_schema'")
    if counted.fetchone() is None:
        return 0
    (taken,) = connection.execute("SELECT coalesce(max(step), 0) FROM echelons_schema").fetchone()
    return int(taken)
