"""The ledger rows of a root's thread, which are deleted and copied with the thread.

`maintenance.thread_admin` does this in the transaction of the thread's checkpoints. Leases are
kept and only their epoch grows: a smaller one would let an earlier holder write again.
"""

from __future__ import annotations

from sqlite3 import Cursor

from echelons.checkpoints.ledger.saver_ledger import build_key

_AFTER_SLASH = "0"
"""The character after the slash, which follows the prefix in all names of a thread."""


def delete_thread_rows(cursor: Cursor, thread_id: str) -> None:
    """Delete the keys and streams of a thread, and fence off its run, if it has one."""
    between = _get_key_range(thread_id)
    # A key that is created again must not get a version that it has had.
    cursor.execute(
        "UPDATE ledger_floor SET version = max(version, coalesce("
        "(SELECT max(version) FROM ledger_values WHERE key >= ? AND key < ?), 0))",
        between,
    )
    cursor.execute("DELETE FROM ledger_values WHERE key >= ? AND key < ?", between)
    cursor.execute("DELETE FROM ledger_entries WHERE stream >= ? AND stream < ?", between)
    cursor.execute(
        "UPDATE ledger_leases SET epoch = epoch + 1 WHERE name = ?", (build_key(thread_id),)
    )


def has_thread_keys(cursor: Cursor, thread_id: str) -> bool:
    """Return whether a thread has any key."""
    query = "SELECT 1 FROM ledger_values WHERE key >= ? AND key < ? LIMIT 1"
    return cursor.execute(query, _get_key_range(thread_id)).fetchone() is not None


def copy_thread_keys(cursor: Cursor, source: str, target: str) -> None:
    """Copy the keys of a thread, and not its streams: its mail is not the copy's."""
    cursor.execute(
        "INSERT INTO ledger_values (key, version, at, value)"
        " SELECT ? || substr(key, ?), (SELECT version FROM ledger_floor) + 1, at, value"
        " FROM ledger_values WHERE key >= ? AND key < ?",
        (build_key(target), len(build_key(source)) + 1, *_get_key_range(source)),
    )


def _get_key_range(thread_id: str) -> tuple[str, str]:
    own = build_key(thread_id)
    return f"{own}/", f"{own}{_AFTER_SLASH}"
