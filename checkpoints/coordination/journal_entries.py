"""Encodes and decodes entries of the effect journal: JSON, with values serialized by the saver.

A tool's result and a human's answer go through the saver's own serializer, so that its
allowlist applies to them too. Pure.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.types import Command

from echelons.checkpoints.coordination.records import Record, Records
from echelons.checkpoints.ledger import VersionedValue
from echelons.effects.journal import CallQuestion, CallState, EffectCall, JournalEntry
from echelons.errors import LedgerDamaged

EntryJson: TypeAlias = dict[str, Any]
_Serialized: TypeAlias = tuple[str, str]
"""The type tag of a value, and its bytes in base64."""


@dataclass(frozen=True, slots=True)
class StoredCall:
    """An entry as it is stored, with the call that it is for."""

    state: CallState
    at: str
    tool: str = ""
    agent_path: str = ""
    arguments: str | None = None
    request: str = ""
    call_id: str = ""
    result: _Serialized | None = None
    lost: str = ""
    answers: _Serialized | None = None
    ours: tuple[int, ...] = ()
    asked: int | None = None
    waits_for: tuple[str, ...] = ()
    heard: int = 0
    told: tuple[CallQuestion, ...] = ()
    cut: str = ""


EFFECT: Final = Records[StoredCall]("effect", StoredCall, raw=2)
"""An entry of the effect journal, by the position of its call."""


def entry_to_json(serde: SerializerProtocol, call: EffectCall, entry: JournalEntry) -> EntryJson:
    """Return an unfinished entry as JSON.

    Raises:
        NotStorable: An answer to the task cannot be stored.
    """
    value = _build_header(call, entry)
    if entry.answers or entry.ours or entry.told:
        value |= _build_answers(serde, entry)
    if entry.asked is not None:
        value["asked"] = entry.asked
    if entry.lost:
        value["lost"] = entry.lost
    if entry.cut:
        value["cut"] = entry.cut
    if entry.state is CallState.SUSPENDED:
        value |= {"waits_for": list(entry.waits_for), "heard": entry.heard}
    return value


def result_to_json(
    serde: SerializerProtocol, call: EffectCall, entry: JournalEntry, result: Any
) -> EntryJson:
    """Return a finished entry as JSON, with its result or the reason why it cannot be stored."""
    try:
        value = {**_build_header(call, entry), "result": _serialize(serde, _split_commands(result))}
        return {**value, **_build_answers(serde, entry)} if call.is_wrapped else value
    except Exception as error:  # noqa: BLE001  whatever the serializer raises, the call is done
        return lost_result_to_json(
            serde, call, entry, f"it could not be stored ({type(error).__name__}: {error})"
        )


def lost_result_to_json(
    serde: SerializerProtocol, call: EffectCall, entry: JournalEntry, why: str
) -> EntryJson:
    """Return a finished entry without its result as JSON, with the reason.

    It keeps the answers: if a human lets the call run again, it runs as it was approved.
    """
    kept = _build_answers(serde, entry)
    return {**_build_header(call, entry), **kept, "lost": why[:1000]}


def load_entry(
    serde: SerializerProtocol, name: str, found: VersionedValue[StoredCall] | Record[StoredCall]
) -> JournalEntry:
    """Return a stored entry with its values.

    Raises:
        LedgerDamaged: A value in it is none.
        CheckpointTampered: A value in it is damaged, or may not be loaded.
    """
    stored = found.value
    try:
        result = stored.result and _restore_commands(_deserialize(serde, stored.result))
        answers = tuple(_deserialize(serde, stored.answers)) if stored.answers else ()
    except (TypeError, ValueError, LookupError, RecursionError) as error:
        raise LedgerDamaged(name, str(error), EFFECT.name) from error
    return JournalEntry(
        state=stored.state,
        at=stored.at,
        version=found.version,
        result=result,
        lost=stored.lost,
        answers=answers,
        ours=stored.ours,
        asked=stored.asked,
        waits_for=stored.waits_for,
        heard=stored.heard,
        told=stored.told,
        cut=stored.cut,
    )


def _build_header(call: EffectCall, entry: JournalEntry) -> EntryJson:
    return {
        "state": str(entry.state),
        "at": entry.at,
        "tool": call.tool,
        "agent_path": call.path,
        "call_id": call.call_id,
        "arguments": call.digest,
        "request": call.request_id,
    }


def _build_answers(serde: SerializerProtocol, entry: JournalEntry) -> EntryJson:
    value: EntryJson = {}
    if entry.answers:
        value["answers"] = _serialize(serde, list(entry.answers))
    if entry.ours:
        value["ours"] = list(entry.ours)
    if entry.told:
        value["told"] = [asdict(each) for each in entry.told]
    return value


def _serialize(serde: SerializerProtocol, value: Any) -> list[str]:
    kind, data = serde.dumps_typed(value)
    return [kind, b64encode(data).decode("ascii")]


def _deserialize(serde: SerializerProtocol, packed: _Serialized) -> Any:
    kind, data = packed
    return serde.loads_typed((kind, b64decode(data, validate=True)))


def _split_commands(result: Any) -> list[Any]:
    """Return a result with its commands as lists: a checkpoint must not hold a `Command`."""
    if isinstance(result, list):
        return ["list", [_split_commands(each) for each in result]]
    if isinstance(result, Command):
        return ["command", result.graph, result.update, result.resume, result.goto]
    return ["value", result]


def _restore_commands(parts: Any) -> Any:
    kind, *rest = parts
    if kind == "list":
        return [_restore_commands(each) for each in rest[0]]
    if kind == "command":
        graph, update, resume, goto = rest
        return Command(graph=graph, update=update, resume=resume, goto=goto or ())
    return rest[0]
