"""The rows of LangGraph's tables: validated, and agents, parents and usage queried in SQL."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS
from langgraph.types import Interrupt, Send

from echelons.checkpoints.queries import AgentThread, OneCheckpoint, select_latest
from echelons.checkpoints.thread_events import EventKind, ThreadEvent, WriteLocation
from echelons.errors import CheckpointTampered
from echelons.langgraph_internals import DELTA_COUNTERS_KEY
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import RESERVED_TOOLS
from echelons.tree.usage_report import StoredCall

CHECKPOINT_INDEX = -100
"""The index in the seal of a checkpoint, where that of a write has the write's; LangGraph's
indexes begin at -4."""

SealPlace = tuple[str, str, str, str, int]


class CheckpointRow(NamedTuple):
    """A row of the table `checkpoints`, in the order of its columns."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str | None
    type: str
    checkpoint: bytes
    metadata: bytes

    @property
    def seal_place(self) -> SealPlace:
        """Key of its seal."""
        return self.thread_id, self.checkpoint_ns, self.checkpoint_id, "", CHECKPOINT_INDEX

    @property
    def description(self) -> str:
        """Description of the row for error messages."""
        inside = f" in {self.checkpoint_ns!r}" if self.checkpoint_ns else ""
        return f"checkpoint {self.checkpoint_id!r} of thread {self.thread_id!r}{inside}"


class WriteRow(NamedTuple):
    """A row of the table `writes`, in the order of its columns."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    task_id: str
    task_path: str
    idx: int
    channel: str
    type: str
    value: bytes

    @property
    def seal_place(self) -> SealPlace:
        """Key of its seal."""
        return self.thread_id, self.checkpoint_ns, self.checkpoint_id, self.task_id, self.idx

    @property
    def description(self) -> str:
        """Description of the row for error messages."""
        inside = f" in {self.checkpoint_ns!r}" if self.checkpoint_ns else ""
        return (
            f"write {self.idx} of task {self.task_id!r} to {self.channel!r} at checkpoint "
            f"{self.checkpoint_id!r} of thread {self.thread_id!r}{inside}"
        )


StoredRow = CheckpointRow | WriteRow


def _build_insert(how: str, table: str, columns: Sequence[str]) -> str:
    # Made of the names above, never of anything given.
    values = ", ".join("?" * len(columns))
    return f"INSERT OR {how} INTO {table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608


PUT_CHECKPOINT = _build_insert("REPLACE", "checkpoints", CheckpointRow._fields)
REPLACE_WRITE = _build_insert("REPLACE", "writes", WriteRow._fields)
KEEP_WRITE = _build_insert("IGNORE", "writes", WriteRow._fields)


def load_checkpoint_tuple(
    row: CheckpointRow, writes: list[PendingWrite], serde: SerializerProtocol
) -> CheckpointTuple:
    """Return the `CheckpointTuple` of a row and its pending writes."""
    place = {"thread_id": row.thread_id, "checkpoint_ns": row.checkpoint_ns}
    config: RunnableConfig = {"configurable": {**place, "checkpoint_id": row.checkpoint_id}}
    parent_config: RunnableConfig | None = None
    if row.parent_checkpoint_id:
        parent_config = {"configurable": {**place, "checkpoint_id": row.parent_checkpoint_id}}
    return CheckpointTuple(
        config, load_checkpoint(row, serde), load_metadata(row), parent_config, writes
    )


def load_checkpoint(row: CheckpointRow, serde: SerializerProtocol) -> Checkpoint:
    """Return the checkpoint in a row.

    Raises:
        CheckpointTampered: The row is not valid.
    """
    if not _TEXT_TYPES.issuperset(map(type, row[:3])):
        raise CheckpointTampered(row.description, "its ids are no texts")
    if row.parent_checkpoint_id is not None and type(row.parent_checkpoint_id) is not str:
        raise CheckpointTampered(row.description, "the id of the checkpoint before it is no text")
    held = _load_value(row, row.type, row.checkpoint, serde)
    types = tuple(map(type, map(held.get, _CHECKPOINT_FIELDS))) if type(held) is dict else ()
    if types != _CHECKPOINT_TYPES:
        raise CheckpointTampered(row.description, "it does not hold what a checkpoint holds")
    if held["id"] != row.checkpoint_id:
        raise CheckpointTampered(row.description, f"it holds checkpoint {held['id']!r}")
    values, versions, seen = held["channel_values"], held["channel_versions"], held["versions_seen"]
    if not _VERSION_TYPES.issuperset(map(type, versions.values())):
        raise CheckpointTampered(row.description, "its channels have versions that are none")
    if not {dict}.issuperset(map(type, seen.values())):
        raise CheckpointTampered(row.description, "what its nodes have seen is nothing")
    if not _TEXT_TYPES.issuperset(map(type, chain(values, versions, seen))):
        raise CheckpointTampered(row.description, "its channels have names that are no texts")
    sends = values.get(TASKS) or []
    if type(sends) is not list or not {Send}.issuperset(map(type, sends)):
        raise CheckpointTampered(row.description, "it holds sends that are none")
    return cast("Checkpoint", held)


def load_metadata(row: CheckpointRow) -> CheckpointMetadata:
    """Return the metadata in a row.

    Raises:
        CheckpointTampered: It is not a JSON object with the values that LangGraph expects.
    """
    try:
        # Decoded here: `json.loads` would guess the encoding of bytes.
        stored: Any = row.metadata
        held = _decode_json(stored.decode() if type(stored) is bytes else stored)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointTampered(row.description, f"its metadata is no JSON ({error})") from None
    if type(held) is not dict:
        raise CheckpointTampered(row.description, "its metadata is no JSON object")
    parents, counters = held.get("parents", {}), held.get(DELTA_COUNTERS_KEY, {})
    if type(counters) in _SCALAR_TYPES:
        # Of a caller's config, which earlier versions stored; LangGraph then counts from 0.
        del held[DELTA_COUNTERS_KEY]
        counters = {}
    for key, value in (("parents", parents), (DELTA_COUNTERS_KEY, counters)):
        if type(value) is not dict:
            raise CheckpointTampered(row.description, f"{key!r} in its metadata is no JSON object")
    # Other programs may leave it out; LangGraph counts from it.
    if type(held.setdefault("step", -1)) is not int:
        raise CheckpointTampered(row.description, "'step' in its metadata is no whole number")
    for counts in counters.values():
        match counts:
            case [int(), int()]:
                pass
            case _:
                why = f"{DELTA_COUNTERS_KEY!r} in its metadata has no pairs of numbers"
                raise CheckpointTampered(row.description, why)
    return cast("CheckpointMetadata", held)


def load_write(row: WriteRow, serde: SerializerProtocol) -> PendingWrite:
    """Return the write in a row.

    Raises:
        CheckpointTampered: The row is not valid.
    """
    if not _TEXT_TYPES.issuperset(map(type, (*row[:5], row.channel))) or type(row.idx) is not int:
        raise CheckpointTampered(row.description, "its ids are no texts, or its index is no number")
    held = _load_value(row, row.type, row.value, serde)
    if row.channel == TASKS:
        fits = isinstance(held, Send)
    elif row.channel == INTERRUPT:
        # LangGraph's conformance suite stores a mapping there.
        many = isinstance(held, list) and all(isinstance(item, Interrupt) for item in held)
        fits = many or isinstance(held, dict)
    else:
        fits = row.channel != ERROR or isinstance(held, str)
    if not fits:
        why = f"it holds {type(held).__name__}, which is none of these"
        raise CheckpointTampered(row.description, why)
    return row.task_id, row.channel, held


_CHECKPOINT_FIELDS = ("v", "id", "ts", "channel_values", "channel_versions", "versions_seen")
_CHECKPOINT_TYPES = (int, str, str, dict, dict, dict)
"""The fields of every checkpoint, and their types. Compared by type, which is fastest."""
_TEXT_TYPES = {str}
_VERSION_TYPES = {str, int, float}
_SCALAR_TYPES = {str, int, float, bool}
# As `json.loads`, which looks at the type of what it is given first.
_decode_json = json.JSONDecoder().decode


def _load_value(row: StoredRow, tag: Any, stored: Any, serde: SerializerProtocol) -> Any:
    try:
        return serde.loads_typed((tag, stored))
    except CheckpointTampered as error:
        raise CheckpointTampered(row.description, error.why) from None


ROOT_NAMESPACE = ""
"""The namespace of a thread's outermost graph."""
MAX_CACHED_MAPS = 4096
"""Number of checkpoints whose maps are cached, so that writing needs no reading."""

CheckpointPlace = tuple[str, str, str]
"""Thread id, namespace and checkpoint id."""
Parents = Mapping[str, str]


class ParentMap:
    """Cache of the parent maps of the checkpoints that were stored last."""

    def __init__(self) -> None:
        self._maps: OrderedDict[CheckpointPlace, Parents] = OrderedDict()

    def shorten(self, thread_id: str, parents: Parents) -> Parents:
        """Return the part of a map to store: all of it, unless the nearest parent has the rest."""
        if len(parents) < 2:
            return parents
        nearest = max(parents, key=len)
        grandparents = self._maps.get((thread_id, nearest, parents[nearest]))
        if grandparents is None or {**grandparents, nearest: parents[nearest]} != parents:
            return parents
        return {nearest: parents[nearest]}

    def remember(self, place: CheckpointPlace, parents: Parents) -> None:
        """Cache the map of a checkpoint that was committed."""
        self._maps[place] = parents
        if len(self._maps) > MAX_CACHED_MAPS:
            self._maps.popitem(last=False)

    def clear(self) -> None:
        """Clear the cache: checkpoints may have been deleted."""
        self._maps.clear()


def complete_parents(parents: Parents, lookup: Callable[[str, str], Parents]) -> dict[str, str]:
    """Return a stored map, completed with the parents above those in it.

    Args:
        parents: The stored map.
        lookup: Returns the stored map of the checkpoint with a namespace and id; an empty one if
            there is none.
    """
    complete = dict(parents)
    while complete and ROOT_NAMESPACE not in complete:
        highest = min(complete, key=len)
        # A damaged map may lead back down.
        higher = lookup(highest, complete[highest])
        new = {name: parent for name, parent in higher.items() if name < highest}
        if not new:
            break
        complete = {**new, **complete}
    return complete


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
    superiors: dict[str, tuple[str, str]] = {}
    for row in rows:
        namespace, checkpoint_id, thread_id, path, superior = row
        if thread_id is None:
            continue  # of a graph around the tree
        if not {str}.issuperset(map(type, row)):
            where = f"checkpoint {checkpoint_id!r} of thread {root!r}"
            raise CheckpointTampered(where, "its metadata names no agent")
        places.append((thread_id, OneCheckpoint(root, namespace, checkpoint_id)))
        superiors[thread_id] = path, superior
    begun = {thread_id: (at, calls) for thread_id, at, calls in times}
    return {
        thread_id: AgentThread(*superiors[thread_id], latest, str(at or ""), bool(calls))
        for thread_id, latest in select_latest(places).items()
        for at, calls in [begun.get(thread_id, ("", True))]
    }


SELECT_SHARING_ROOTS = """
SELECT DISTINCT thread_id FROM checkpoints
WHERE json_extract(CAST(metadata AS TEXT), '$.agent_thread_id') IN (SELECT value FROM json_each(?))
ORDER BY thread_id
"""
"""Selects the roots' threads in which some agents' threads stand."""

_FIELDS = (
    "$.usage.input_tokens",
    "$.usage.output_tokens",
    "$.usage.input_token_details.cache_read",
    "$.model",
    "$.intent",
    "$.is_built_in",
)
_EXTRACTED_USAGE = ", ".join(
    f"iif(json_valid(data), json_extract(data, '{path}'), NULL)" for path in _FIELDS
)

# Built from constants, never from input. A message that no model wrote has no `usage`, and one
# whose model reports none has `null`; SQLite's `json_type` distinguishes them.
SELECT_CALL_ROWS = f"""
SELECT id, thread_id, checkpoint_ns, checkpoint_id, agent_thread_id, agent_path, at, key, kind,
    iif(json_valid(data), json_type(data, '$.usage'), 'damaged') AS held, {_EXTRACTED_USAGE},
    id IN (SELECT event_id FROM inherited_calls)
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
    for number, *texts, kind, held, read, written, cached, model, tool, is_built_in, copied in rows:
        where = f"event {number}"
        if not {str}.issuperset(map(type, texts)) or held == "damaged":
            raise CheckpointTampered(where, "it is no event of a thread")
        thread_id, namespace, checkpoint_id, agent_thread_id, path, at, key = texts
        path = AgentPath(path)
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
        if copied:
            call = replace(call, inherited=True)
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
    return (number, *location, at, event.key, event.kind, held, *tokens, *names, False)
