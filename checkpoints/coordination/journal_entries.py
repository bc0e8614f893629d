"""Encodes and decodes entries of the effect journal: JSON, with values serialized by the saver.

A tool's result and a human's answer go through the saver's own serializer, so that its
allowlist applies to them too. Pure.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, TypeAlias

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.types import Command

from echelons.checkpoints.ledger import VersionedValue
from echelons.effects.journal import CallState, EffectCall, JournalEntry
from echelons.errors import LedgerDamaged

EntryJson: TypeAlias = dict[str, Any]


def entry_to_json(serde: SerializerProtocol, call: EffectCall, entry: JournalEntry) -> EntryJson:
    """Return an unfinished entry as JSON.

    Raises:
        NotStorable: An answer to the task cannot be stored.
    """
    value = _build_header(call, entry)
    if entry.answers:
        value["answers"] = _serialize(serde, list(entry.answers))
    if entry.ours:
        value["ours"] = list(entry.ours)
    if entry.asked is not None:
        value["asked"] = entry.asked
    if entry.lost:
        value["lost"] = entry.lost
    if entry.state is CallState.SUSPENDED:
        value |= {"waits_for": list(entry.waits_for), "heard": entry.heard}
    return value


def result_to_json(
    serde: SerializerProtocol, call: EffectCall, entry: JournalEntry, result: Any
) -> EntryJson:
    """Return a finished entry as JSON, with its result or the reason why it cannot be stored."""
    try:
        return {**_build_header(call, entry), "result": _serialize(serde, _split_commands(result))}
    except Exception as error:  # noqa: BLE001  whatever the serializer raises, the call is done
        return lost_result_to_json(
            call, entry, f"it could not be stored ({type(error).__name__}: {error})"
        )


def lost_result_to_json(call: EffectCall, entry: JournalEntry, why: str) -> EntryJson:
    """Return a finished entry without its result as JSON, with the reason."""
    return {**_build_header(call, entry), "lost": why[:1000]}


def entry_from_json(serde: SerializerProtocol, name: str, found: VersionedValue) -> JournalEntry:
    """Return a stored entry.

    Raises:
        LedgerDamaged: The value is no entry.
        CheckpointTampered: A value in it is damaged, or may not be loaded.
    """
    value = found.value
    try:
        result, answers = value.get("result"), value.get("answers")
        return JournalEntry(
            state=CallState(value["state"]),
            at=str(value["at"]),
            version=found.version,
            result=_restore_commands(_deserialize(serde, result)) if result else None,
            lost=str(value.get("lost", "")),
            answers=tuple(_deserialize(serde, answers)) if answers else (),
            ours=tuple(int(each) for each in value.get("ours", ())),
            asked=None if value.get("asked") is None else int(value["asked"]),
            waits_for=tuple(str(each) for each in value.get("waits_for", ())),
            heard=int(value.get("heard", 0)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerDamaged(name, f"it is no entry of the effect journal ({error!r})") from error


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


def _serialize(serde: SerializerProtocol, value: Any) -> list[str]:
    kind, data = serde.dumps_typed(value)
    return [kind, b64encode(data).decode("ascii")]


def _deserialize(serde: SerializerProtocol, packed: list[str]) -> Any:
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
