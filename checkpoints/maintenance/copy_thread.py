"""The statements that copy a root's thread: every row of it, under another id.

`maintenance` executes them in one transaction.
"""

from __future__ import annotations

from sqlite3 import Cursor


def copy(cursor: Cursor, source: str, target: str) -> None:
    """Copy a root's thread to an id that nothing is stored under.

    The root's id changes wherever it stands. Subordinates' threads keep theirs, for their
    superiors' messages name them, and the copy has no name.
    """
    for statement in (CHECKPOINTS, WRITES, EVENTS):
        cursor.execute(statement, {"source": source, "target": target})


def _renamed(column: str) -> str:
    return f"CASE {column} WHEN :source THEN :target ELSE {column} END"


def _metadata() -> str:
    text = "CAST(metadata AS TEXT)"
    ids = ("thread_id", "agent_thread_id", "superior_thread_id")
    # `json_replace` passes over what is not there.
    renamed = (f"'$.{key}', " + _renamed(f"json_extract({text}, '$.{key}')") for key in ids)
    return f"CAST(json_replace({text}, {', '.join(renamed)}, '$.thread_name', '') AS BLOB)"


# Made of the names above, never of anything given.
CHECKPOINTS = f"""
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
)
SELECT
    :target, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, {_metadata()}
FROM checkpoints WHERE thread_id = :source
"""  # noqa: S608
WRITES = """
INSERT INTO writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
)
SELECT
    :target, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
FROM writes WHERE thread_id = :source
"""
EVENTS = f"""
INSERT INTO events (
    thread_id, agent_thread_id, agent_path, checkpoint_ns, checkpoint_id, at, kind, key, data
)
SELECT
    :target, {_renamed("agent_thread_id")}, agent_path, checkpoint_ns, checkpoint_id, at, kind,
    key, data
FROM events WHERE thread_id = :source ORDER BY id
"""  # noqa: S608
