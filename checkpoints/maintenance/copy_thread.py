"""The SQL that copies all rows of a root's thread to another id.

`thread_admin` executes it in one transaction.
"""

from __future__ import annotations

from sqlite3 import Cursor


def copy_thread_rows(cursor: Cursor, source: str, target: str) -> None:
    """Copy a root's thread to an unused id.

    The root's id is replaced in all columns. Subordinates' threads keep their ids, because their
    superiors' messages name them, and the copy has no name.
    """
    for statement in (COPY_CHECKPOINTS, COPY_WRITES, COPY_EVENTS):
        cursor.execute(statement, {"source": source, "target": target})


def _build_rename(column: str) -> str:
    return f"CASE {column} WHEN :source THEN :target ELSE {column} END"


def _build_metadata() -> str:
    text = "CAST(metadata AS TEXT)"
    ids = ("thread_id", "agent_thread_id", "superior_thread_id")
    # `json_replace` ignores missing keys.
    renamed = (f"'$.{key}', " + _build_rename(f"json_extract({text}, '$.{key}')") for key in ids)
    return f"CAST(json_replace({text}, {', '.join(renamed)}, '$.thread_name', '') AS BLOB)"


# Built from the names above, never from input.
COPY_CHECKPOINTS = f"""
INSERT INTO checkpoints (
    thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata
)
SELECT
    :target, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
    {_build_metadata()}
FROM checkpoints WHERE thread_id = :source
"""  # noqa: S608
COPY_WRITES = """
INSERT INTO writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
)
SELECT
    :target, checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value
FROM writes WHERE thread_id = :source
"""
COPY_EVENTS = f"""
INSERT INTO events (
    thread_id, agent_thread_id, agent_path, checkpoint_ns, checkpoint_id, at, kind, key, data
)
SELECT
    :target, {_build_rename("agent_thread_id")}, agent_path, checkpoint_ns, checkpoint_id, at, kind,
    key, data
FROM events WHERE thread_id = :source ORDER BY id
"""  # noqa: S608
