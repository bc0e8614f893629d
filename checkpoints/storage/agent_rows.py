"""The threads of the agents under a root, found in SQL without loading a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from echelons.checkpoints.queries import AgentThread, OneCheckpoint, select_latest
from echelons.errors import CheckpointTampered

_KEYS = ("agent_thread_id", "agent_path", "superior_thread_id")
_EXTRACTED = ", ".join(f"iif(json_valid(held), json_extract(held, '$.{key}'), 0)" for key in _KEYS)

# Built from the names above, never from input. The columns beside a `max` are those of its row.
SELECT_AGENT_ROWS = f"""
SELECT checkpoint_ns, max(checkpoint_id), {_EXTRACTED}
FROM (
    SELECT checkpoint_ns, checkpoint_id, CAST(metadata AS TEXT) AS held
    FROM checkpoints WHERE thread_id = ?
) GROUP BY checkpoint_ns
"""  # noqa: S608
"""Selects the latest row of each namespace, with the identity that it has."""

# Mail of the kind "spawn" gives an agent a subordinate; a message with that word is only read.
SELECT_AGENT_TIMES = """
SELECT agent_thread_id, min(at), max(kind = 'delegation' OR instr(data, '"spawn"'))
FROM events WHERE thread_id = ? GROUP BY agent_thread_id
"""
"""Selects when each thread began, and whether it may have called subordinates or been given one."""


def load_agent_threads(
    root: str, rows: Iterable[tuple[Any, ...]], times: Iterable[tuple[Any, ...]]
) -> dict[str, AgentThread]:
    """Return the threads under a root's thread, by their ids.

    Args:
        root: The root's thread.
        rows: The result of `SELECT_AGENT_ROWS`.
        times: The result of `SELECT_AGENT_TIMES`.

    Raises:
        CheckpointTampered: A row is not valid.
    """
    places: list[tuple[str, OneCheckpoint]] = []
    known: dict[str, tuple[str, str]] = {}
    for row in rows:
        namespace, checkpoint_id, thread_id, path, superior = row
        if thread_id is None:
            continue  # of a graph around the tree
        if not {str}.issuperset(map(type, row)):
            where = f"checkpoint {checkpoint_id!r} of thread {root!r}"
            raise CheckpointTampered(where, "its metadata names no agent")
        places.append((thread_id, OneCheckpoint(root, namespace, checkpoint_id)))
        known[thread_id] = path, superior
    begun = {thread_id: (at, calls) for thread_id, at, calls in times}
    return {
        thread_id: AgentThread(*known[thread_id], latest, str(at or ""), bool(calls))
        for thread_id, latest in select_latest(places).items()
        for at, calls in [begun.get(thread_id, ("", True))]
    }
