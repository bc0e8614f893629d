"""What our database has besides LangGraph's two tables: events, indexes and views.

LangGraph's ``checkpoints`` and ``writes`` stay as they are, so other tools can read the
file. The views make threads readable to SQL, sqlite-utils and Datasette.
"""

from __future__ import annotations

_FIELD = "json_extract(CAST(metadata AS TEXT), '$.{}')"
# The very expression of LangGraph's metadata filter, or SQLite would not use the index.
_THREAD = _FIELD.format("agent_thread_id")

# Made of the constants above, never of anything given.
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    agent_thread_id TEXT NOT NULL,
    agent_path TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (thread_id, agent_thread_id, kind, key)
);
CREATE INDEX IF NOT EXISTS questions ON events (thread_id, key) WHERE kind = 'question';
CREATE INDEX IF NOT EXISTS checkpoints_by_agent_thread ON checkpoints ({_THREAD});
CREATE VIEW IF NOT EXISTS threads AS
SELECT
    thread_id,
    {_THREAD} AS agent_thread_id,
    {_FIELD.format("agent")} AS agent,
    {_FIELD.format("agent_path")} AS agent_path,
    {_FIELD.format("superior_thread_id")} AS superior_thread_id,
    max({_FIELD.format("thread_name")}) AS thread_name,
    count(*) AS checkpoints,
    max(checkpoint_id) AS latest_checkpoint_id
FROM checkpoints
WHERE {_THREAD} IS NOT NULL
GROUP BY thread_id, agent_thread_id;
CREATE VIEW IF NOT EXISTS delegations AS
SELECT
    thread_id,
    agent_thread_id AS superior_thread_id,
    agent_path AS superior_path,
    json_extract(data, '$.sub_agent_thread_id') AS sub_agent_thread_id,
    json_extract(data, '$.arguments.subordinate') AS subordinate,
    json_extract(data, '$.arguments.message') AS task,
    at
FROM events
WHERE kind = 'delegation';
"""  # noqa: S608
