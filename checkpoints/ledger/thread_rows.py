"""What of the ledger belongs to a root's thread: it is deleted and copied with the thread.

``maintenance`` executes this in the transaction of the thread's own rows. Leases stay, but for
their epoch: one that went back would let a holder of long ago write again.
"""

from __future__ import annotations

from sqlite3 import Cursor

from echelons.checkpoints.ledger.saver_ledger import key

_AFTER = "0"
"""What comes next after the slash, with which all names of a thread go on."""


def delete_belongings(cursor: Cursor, thread_id: str) -> None:
    """Delete the keys and streams of a thread, and let its run, if there is one, write no more."""
    between = _between(thread_id)
    # No later value of a key may have a version that one of these had.
    cursor.execute(
        "UPDATE ledger_floor SET version = max(version, coalesce("
        "(SELECT max(version) FROM ledger_values WHERE key >= ? AND key < ?), 0))",
        between,
    )
    cursor.execute("DELETE FROM ledger_values WHERE key >= ? AND key < ?", between)
    cursor.execute("DELETE FROM ledger_entries WHERE stream >= ? AND stream < ?", between)
    cursor.execute("UPDATE ledger_leases SET epoch = epoch + 1 WHERE name = ?", (key(thread_id),))


def has_belongings(cursor: Cursor, thread_id: str) -> bool:
    """Return whether anything stands under a key of a thread."""
    query = "SELECT 1 FROM ledger_values WHERE key >= ? AND key < ? LIMIT 1"
    return cursor.execute(query, _between(thread_id)).fetchone() is not None


def copy_belongings(cursor: Cursor, source: str, target: str) -> None:
    """Copy the keys of a thread: what is known of it. Streams, what it was sent, stay its own."""
    cursor.execute(
        "INSERT INTO ledger_values (key, version, at, value)"
        " SELECT ? || substr(key, ?), (SELECT version FROM ledger_floor) + 1, at, value"
        " FROM ledger_values WHERE key >= ? AND key < ?",
        (key(target), len(key(source)) + 1, *_between(source)),
    )


def _between(thread_id: str) -> tuple[str, str]:
    own = key(thread_id)
    return f"{own}/", f"{own}{_AFTER}"
