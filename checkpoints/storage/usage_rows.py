"""The calls of models and tools that events tell of, found in SQL without their texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from echelons.checkpoints.thread_events import EventKind, ThreadEvent, WriteLocation
from echelons.errors import CheckpointTampered
from echelons.tree.names import RESERVED_TOOLS
from echelons.tree.usage_report import StoredCall

_FIELDS = (
    "$.usage.input_tokens",
    "$.usage.output_tokens",
    "$.usage.input_token_details.cache_read",
    "$.model",
    "$.intent",
    "$.is_built_in",
)
_EXTRACTED = ", ".join(
    f"iif(json_valid(data), json_extract(data, '{path}'), NULL)" for path in _FIELDS
)

# Built from constants, never from input. A message that no model wrote has no `usage`, and one
# whose model reports none has `null`; SQLite's `json_type` distinguishes them.
SELECT_CALL_ROWS = f"""
SELECT id, thread_id, checkpoint_ns, checkpoint_id, agent_thread_id, agent_path, at, key, kind,
    iif(json_valid(data), json_type(data, '$.usage'), 'damaged') AS held, {_EXTRACTED}
FROM events
WHERE kind IN ('message', 'tool_call') AND (?1 IS NULL OR thread_id = ?1)
    AND (kind = 'tool_call' OR held IS NOT NULL)
ORDER BY id
"""  # noqa: S608
"""Selects each reply of a model and each call of a tool, of a thread or of all."""

# A graph just below the root has the root's checkpoint as its only parent.
SELECT_ROOT_CHECKPOINTS = """
SELECT checkpoint_ns,
    coalesce(min(iif(json_valid(held), json_extract(held, '$.parents.""'), '')), '')
FROM (
    SELECT checkpoint_ns, CAST(metadata AS TEXT) AS held FROM checkpoints
    WHERE thread_id = ? AND checkpoint_ns <> '' AND instr(checkpoint_ns, '|') = 0
) GROUP BY checkpoint_ns
"""
"""Selects the root's checkpoint at which each graph just below the root ran."""


class CallRow(NamedTuple):
    """A stored call, and the step in which it was made.

    Attributes:
        call: The call.
        checkpoint_ns: Namespace of the step.
        checkpoint_id: The checkpoint at which the step was run.
        reply_id: Id of the reply; of a call of a tool, that of its event.
    """

    call: StoredCall
    checkpoint_ns: str
    checkpoint_id: str
    reply_id: str = ""


def load_call_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[CallRow]:
    """Yield the calls in rows of `SELECT_CALL_ROWS`.

    Raises:
        CheckpointTampered: A row is not valid.
    """
    for number, *texts, kind, held, read, written, cached, model, tool, is_built_in in rows:
        where = f"event {number}"
        if not {str}.issuperset(map(type, texts)) or held == "damaged":
            raise CheckpointTampered(where, "it is no event of a thread")
        thread_id, namespace, checkpoint_id, agent_thread_id, path, at, key = texts
        if kind == EventKind.TOOL_CALL:
            # Earlier versions did not note it, and had no `ask`.
            if is_built_in or tool in RESERVED_TOOLS:
                continue
            call = StoredCall("tool", "reported", thread_id, agent_thread_id, path, at)
        elif held == "null" or (held == "object" and read is None and written is None):
            call = StoredCall(
                "model", "unknown", thread_id, agent_thread_id, path, at, str(model or "")
            )
        else:
            tokens: tuple[Any, ...] = read, written, 0 if cached is None else cached
            if held != "object" or {*map(type, tokens)} != {int} or min(tokens) < 0:
                raise CheckpointTampered(where, "its usage are no numbers of tokens")
            call = StoredCall(
                "model", "reported", thread_id, agent_thread_id, path, at, str(model or ""), *tokens
            )
        yield CallRow(call, namespace, checkpoint_id, key)


def build_call_row(
    number: int, location: WriteLocation, at: str, event: ThreadEvent
) -> tuple[Any, ...] | None:
    """Return what `SELECT_CALL_ROWS` would select of an event; `None` for nothing."""
    if event.kind is not EventKind.TOOL_CALL and "usage" not in event.data:
        return None
    usage: Mapping[str, Any] = event.data.get("usage") or {}
    held, details = "object" if usage else "null", usage.get("input_token_details") or {}
    tokens = usage.get("input_tokens"), usage.get("output_tokens"), details.get("cache_read")
    names = event.data.get("model"), event.data.get("intent"), event.data.get("is_built_in")
    return (number, *location, at, event.key, event.kind, held, *tokens, *names)
