"""The SQL that deletes and copies the rows of a root's thread, those of the ledger included.

`thread_admin` executes it in one transaction. Leases are kept and only their epoch grows: a smaller
one would let an earlier holder write again.
"""

from __future__ import annotations

from sqlite3 import Cursor

from echelons.checkpoints.ledger import build_key
from echelons.checkpoints.ledger.sqlite_ledger import MAX_FLOOR
from echelons.checkpoints.tree_control.agent_aliases import ALIAS
from echelons.checkpoints.tree_control.budget_records import CHARGE, GRANT

STATE_TABLES = ("checkpoints", "writes", "seals")
THREAD_TABLES = (*STATE_TABLES, "events")
_AFTER_SLASH = "0"
"""The character after the slash, which follows the prefix in all names of a thread."""


def delete_thread_rows(cursor: Cursor, thread_id: str) -> None:
    """Delete a thread with its keys and streams, and fence off its run, if it has one."""
    for table in THREAD_TABLES:
        cursor.execute(f"DELETE FROM {table} WHERE thread_id = ?", (thread_id,))  # noqa: S608
    between = _get_key_range(thread_id)
    # A key that is created again must not get a version that it has had.
    cursor.execute(
        "UPDATE ledger_floor SET version = max(version, coalesce("
        "(SELECT max(version) FROM ledger_values WHERE key >= ? AND key < ?"
        # Not the version of a damaged row: the new keys of all threads begin above the floor.
        " AND typeof(version) = 'integer' AND version < ?), 0))",
        (*between, MAX_FLOOR),
    )
    cursor.execute("DELETE FROM ledger_values WHERE key >= ? AND key < ?", between)
    cursor.execute("DELETE FROM ledger_entries WHERE stream >= ? AND stream < ?", between)
    cursor.execute(
        "UPDATE ledger_leases SET epoch = epoch + 1 WHERE name = ?", (build_key(thread_id),)
    )


def has_thread_rows(cursor: Cursor, thread_id: str) -> bool:
    """Return whether a thread has any checkpoint or key."""
    query = (
        "SELECT 1 FROM checkpoints WHERE thread_id = ?"
        " UNION ALL SELECT 1 FROM ledger_values WHERE key >= ? AND key < ? LIMIT 1"
    )
    return cursor.execute(query, (thread_id, *_get_key_range(thread_id))).fetchone() is not None


def copy_thread_rows(cursor: Cursor, source: str, target: str) -> None:
    """Copy a root's thread and its keys, such as its mail, to an unused id, and not its streams.

    The root's id is replaced in all columns. Subordinates' threads keep their ids, because their
    superiors' messages name them, and the copy has no name, nor have its agents.
    """
    for statement in (_COPY_CHECKPOINTS, _COPY_WRITES, _COPY_EVENTS):
        cursor.execute(statement, {"source": source, "target": target})
    cursor.execute(
        "INSERT INTO ledger_values (key, version, at, value)"
        " SELECT ? || substr(key, ?), (SELECT version FROM ledger_floor) + 1, at, value"
        " FROM ledger_values WHERE key >= ? AND key < ? AND NOT (key >= ? AND key < ?)",
        (
            *(build_key(target), len(build_key(source)) + 1),
            *(*_get_key_range(source), *_get_key_range(source, ALIAS.name)),
        ),
    )
    for kind in (GRANT, CHARGE):
        first, end = _get_key_range(target, kind.name)
        cursor.execute(
            _RENAME_ACCOUNTS, {"source": source, "target": target, "first": first, "end": end}
        )


def _get_key_range(thread_id: str, *parts: str) -> tuple[str, str]:
    own = build_key(thread_id, *parts)
    return f"{own}/", f"{own}{_AFTER_SLASH}"


def _build_rename(column: str) -> str:
    return f"CASE {column} WHEN :source THEN :target ELSE {column} END"


_TEXT = "CAST(metadata AS TEXT)"
# `json_replace` ignores missing keys.
_RENAMED_IDS = ", ".join(
    f"'$.{key}', " + _build_rename(f"json_extract({_TEXT}, '$.{key}')")
    for key in ("thread_id", "agent_thread_id", "superior_thread_id")
)
# Built from the names above, never from input.
_COPY_CHECKPOINTS = f"""
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
)
SELECT
    :target, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
    CAST(json_replace({_TEXT}, {_RENAMED_IDS}, '$.thread_name', '') AS BLOB)
FROM checkpoints WHERE thread_id = :source
"""  # noqa: S608
_RENAME_ACCOUNTS = f"""
UPDATE ledger_values SET value = json_replace(value, '$.thread_id', :target, '$.agent_thread_id',
    {_build_rename("json_extract(value, '$.agent_thread_id')")})
WHERE key >= :first AND key < :end AND json_valid(value)
"""  # noqa: S608
_COPY_WRITES = """
INSERT INTO writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
)
SELECT
    :target, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
FROM writes WHERE thread_id = :source
"""
_COPY_EVENTS = f"""
INSERT INTO events (
    thread_id, agent_thread_id, agent_path, checkpoint_ns, checkpoint_id, at, kind, key, data
)
SELECT
    :target, {_build_rename("agent_thread_id")}, agent_path, checkpoint_ns, checkpoint_id, at, kind,
    key, data
FROM events WHERE thread_id = :source ORDER BY id
"""  # noqa: S608
