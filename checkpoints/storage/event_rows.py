"""The location, metadata and events of a write, stored beside LangGraph's rows.

`SqliteCheckpointer` stores them in the transaction of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from sqlite3 import Cursor
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import EXCLUDED_METADATA_KEYS, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.constants import START

from echelons.checkpoints.clock import Clock
from echelons.checkpoints.delta_channels import MESSAGES
from echelons.checkpoints.ledger import RecordKind
from echelons.checkpoints.storage.serde import to_sanitized_json
from echelons.checkpoints.thread_events import (
    EventKind,
    ThreadEvent,
    UserAction,
    WriteLocation,
    build_question_event,
    build_thread_events,
)
from echelons.delegation.request import omit_result, restore_result
from echelons.errors import CheckpointTampered, LedgerDamaged, get_error_name
from echelons.guards.gate import is_pause
from echelons.identity.failures import get_failure_log
from echelons.identity.lineage import STORED_KEYS_KEY
from echelons.langgraph_internals import (
    DELTA_COUNTERS_KEY,
    INPUT,
    NULL_TASK_ID,
    DeltaSnapshot,
)
from echelons.text.error_lines import read_error_text, sanitize_value

LANGGRAPH_METADATA_KEYS = CheckpointMetadata.__annotations__.keys() | {
    "thread_id",
    "graph_id",
    "assistant_id",
}
"""Metadata keys of LangGraph and its server, kept even if a caller's `configurable` has them."""

INPUT_SOURCES = ("input", "update", "fork")
"""LangGraph's sources of the checkpoints that may hold an input in full."""

_NEVER_FROM_CALLER = EXCLUDED_METADATA_KEYS | {DELTA_COUNTERS_KEY}
"""Metadata keys that are not stored if a caller's config has them; a checkpoint may have none."""
_COPIED_KEY = "model"
"""Key of `configurable` that LangChain's `ensure_config` copies into the metadata."""

_NUL = "\x00"
"""The character that LangGraph strips from metadata, because PostgreSQL has no such texts."""

_INSERT_EVENT = (
    "INSERT OR IGNORE INTO events (thread_id, checkpoint_ns, checkpoint_id, agent_thread_id,"
    " agent_path, at, kind, key, data) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9"
    # A question is copied into every level above; the first write is that of the asking agent.
    " WHERE ?7 <> 'question' OR NOT EXISTS"
    " (SELECT 1 FROM events WHERE thread_id = ?1 AND kind = 'question' AND key = ?8)"
)

FIND_QUESTION = (
    "SELECT agent_path FROM events WHERE thread_id = ? AND kind = 'question' AND key = ?"
)
"""Finds who has asked a question, if it was ever asked under a root's thread."""

FIND_LAST_TASK = (
    "SELECT max(id) FROM events WHERE thread_id = ? AND kind = 'message'"
    " AND instr(agent_path, '/') = 0 AND json_extract(data, '$.role') = 'human'"
    " AND json_extract(data, '$.mail') IS NULL"
)
"""Finds the number of the event of the last task that a root was given."""

SELECT_EVENTS = "SELECT id, agent_thread_id, agent_path, at, kind, key, data FROM events"
"""Selects the rows that `load_event` takes."""

# In the order of the rows: an index would have to be sorted.
READ_EVENTS = f"{SELECT_EVENTS} NOT INDEXED WHERE thread_id = ? AND id > ? ORDER BY id"


class StoredEvent(NamedTuple):
    """An event of a root's thread as it is stored: its number, agent and time, and the event."""

    number: int
    agent_thread_id: str
    agent_path: str
    at: str
    event: ThreadEvent


SELECT_USER_ACTIONS = (
    "SELECT id, agent_thread_id, agent_path, at, kind, key, data, checkpoint_id FROM events"
    " WHERE thread_id = ? AND kind IN ('answer', 'approval', 'order') ORDER BY id"
)
"""Selects the rows that `load_user_action` takes."""


def load_user_action(row: tuple[Any, ...]) -> UserAction:
    """Return what a person gave an agent from its row.

    Raises:
        CheckpointTampered: The row is not valid.
    """
    *columns, checkpoint_id = row
    stored = load_event(tuple(columns))
    event = stored.event
    return UserAction(event.kind, event.data, stored.at, stored.agent_thread_id, str(checkpoint_id))


def load_event(row: tuple[Any, ...]) -> StoredEvent:
    """Return the event in a row.

    Raises:
        CheckpointTampered: The row is not valid.
    """
    number, agent, path, at, kind, key, data = row
    where = f"event {number}"
    try:
        if not {str}.issuperset(map(type, (agent, path, at, key, data))):
            raise CheckpointTampered(where, "its ids or its time are no texts")
        event_kind = EventKind(kind)
        _EVENT_SHAPES[event_kind].decode(where, data)
    except (ValueError, LedgerDamaged) as error:
        raise CheckpointTampered(where, getattr(error, "why", str(error))) from None
    return StoredEvent(number, agent, path, at, ThreadEvent(event_kind, key, load_event_data(data)))


@dataclass(frozen=True, slots=True)
class _UsageData:
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _MessageData:
    role: str
    content: str | list[str | dict[str, Any]]
    usage: _UsageData | None = None
    tool_call_id: str = ""
    status: str = ""
    mail: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _CallData:
    intent: str
    arguments: dict[str, Any]
    call_id: str = ""
    sub_agent_thread_id: str = ""
    request: dict[str, Any] | None = None
    is_built_in: bool = False


@dataclass(frozen=True, slots=True)
class _QuestionData:
    value: Any


@dataclass(frozen=True, slots=True)
class _AnswerData:
    question: str
    value: Any = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class _ApprovalData:
    question: str
    decisions: list[dict[str, Any]]
    by: str = ""


@dataclass(frozen=True, slots=True)
class _OrderData:
    order: str
    path: str
    by: str = ""


@dataclass(frozen=True, slots=True)
class _AlertData:
    about: str
    reason: str
    decision: str


@dataclass(frozen=True, slots=True)
class _ReportData:
    text: str


_EVENT_SHAPES: Mapping[EventKind, RecordKind[Any]] = {
    kind: RecordKind(kind, shape)
    for kind, shape in (
        (EventKind.MESSAGE, _MessageData),
        (EventKind.TOOL_CALL, _CallData),
        (EventKind.DELEGATION, _CallData),
        (EventKind.QUESTION, _QuestionData),
        (EventKind.ANSWER, _AnswerData),
        (EventKind.APPROVAL, _ApprovalData),
        (EventKind.ORDER, _OrderData),
        (EventKind.ALERT, _AlertData),
        (EventKind.REPORT, _ReportData),
    )
}


def filter_metadata(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return the part of a run's metadata that is stored, as `get_checkpoint_metadata` builds it.

    A caller's `configurable` is left out, because it may contain secrets. LangGraph's server
    merges it into the metadata, so it is removed again, except for the ids that the server reads.
    LangChain does the same with one key, on the way through its Runnables.
    """
    configurable = config["configurable"]
    around: Mapping[str, Any] = config.get("metadata") or {}
    fields: Mapping[str, Any] = metadata
    copied = _COPIED_KEY in configurable and _COPIED_KEY in around
    left_out = copied and _COPIED_KEY not in str(around.get(STORED_KEYS_KEY)).split()
    kept: dict[str, Any] = {}
    # One loop each, and types compared before `isinstance`: this is part of every checkpoint.
    for key, value in fields.items():
        if key in LANGGRAPH_METADATA_KEYS or key not in configurable:
            is_nul_text = type(value) is str and _NUL in value
            kept[key] = str(value).replace(_NUL, "") if is_nul_text else value
    for key, value in around.items():
        if key in kept or key in _NEVER_FROM_CALLER or key[:2] == "__":
            continue
        if type(value) is str:
            kept[key] = value.replace(_NUL, "") if _NUL in value else value
        elif isinstance(value, (str, int, float)):
            kept[key] = value
    if left_out:
        kept.pop(_COPIED_KEY, None)
    return kept


def build_input_events(location: WriteLocation, checkpoint: Checkpoint) -> Iterable[ThreadEvent]:
    """Return the events of an input that a checkpoint holds in full."""
    # The first input of a delta channel is stored as a snapshot, without a write.
    held = checkpoint["channel_values"].get(MESSAGES)
    messages = held.value if isinstance(held, DeltaSnapshot) else ()
    return build_thread_events(messages, location.agent, location.agent_thread_id, is_input=True)


def build_write_events(
    location: WriteLocation, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
) -> Iterator[ThreadEvent]:
    """Yield the events of a task's writes."""
    for channel, value in writes:
        if channel == MESSAGES:
            messages = value if isinstance(value, (list, tuple)) else [value]
            # A level writes its own replies one at a time, so most need no look at their task.
            replies = [message for message in messages if isinstance(message, AIMessage)]
            is_input = (
                bool(replies) and (len(messages) > 1 or replies[0].name != location.agent)
            ) and is_input_task(location.checkpoint_id, task_id, task_path)
            yield from build_thread_events(
                messages, location.agent, location.agent_thread_id, is_input=is_input
            )
        elif channel == INTERRUPT:
            interrupts = (interrupt for interrupt in value if not is_pause(interrupt.value))
            yield from (
                build_question_event(interrupt.id, interrupt.value) for interrupt in interrupts
            )


def is_input_task(checkpoint_id: str, task_id: str, task_path: str) -> bool:
    """Return whether a task has written what a run was given, as LangGraph stores it."""
    if task_path.endswith(START) or task_id == NULL_TASK_ID:
        return True
    try:
        return task_id == str(uuid5(UUID(checkpoint_id), INPUT))
    except ValueError:
        return False


def redact_error(error: Any, config: RunnableConfig) -> Any:
    """Return the error of a failed task as LangGraph shows it, without secrets."""
    if not isinstance(error, BaseException):
        return error
    # Not its `repr`, in which line ends are escaped and exceptions of a group repeated.
    text = get_failure_log(config).redact(read_error_text(error))
    return f"{get_error_name(error)}({text!r})"


def insert_events(
    cursor: Cursor, location: WriteLocation, events: Iterable[ThreadEvent], clock: Clock
) -> None:
    """Insert the events of an agent's thread; none for a graph outside of a tree."""
    if not location.agent_thread_id:
        return
    rows = [
        (
            *location,
            clock().isoformat(),
            event.kind,
            sanitize_value(event.key),
            _dump_data(event.data),
        )
        for event in events
    ]
    if rows:
        cursor.executemany(_INSERT_EVENT, rows)


def _dump_data(data: Mapping[str, Any]) -> str:
    if "artifact" in data:
        data = {**data, "artifact": omit_result(data["artifact"], data["content"])}
    return to_sanitized_json(data)


def load_event_data(text: str) -> dict[str, Any]:
    """Return the data of an event from its row."""
    data: dict[str, Any] = json.loads(text)
    if "artifact" in data and "content" in data:
        data["artifact"] = restore_result(data["artifact"], data["content"])
    return data
