"""The rows of LangGraph's two tables, and the validation of what they hold.

Pure functions: `verified_saver` passes the rows that it reads through here, `checkpointer`
writes them, `seals` binds them to their place. Every damage raises `CheckpointTampered`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple, PendingWrite
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS
from langgraph.types import Interrupt, Send

from echelons.errors import CheckpointTampered
from echelons.langgraph_internals import DELTA_COUNTERS_KEY

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
    above: RunnableConfig | None = None
    if row.parent_checkpoint_id:
        above = {"configurable": {**place, "checkpoint_id": row.parent_checkpoint_id}}
    return CheckpointTuple(config, load_checkpoint(row, serde), load_metadata(row), above, writes)


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
    for key, each in (("parents", parents), (DELTA_COUNTERS_KEY, counters)):
        if type(each) is not dict:
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
        many = isinstance(held, list) and all(isinstance(each, Interrupt) for each in held)
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
