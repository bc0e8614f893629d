"""Encodes and decodes entries of the effect journal: JSON, with values serialized by the saver.

A tool's result and a human's answer go through the saver's own serializer, so that its
allowlist applies to them too. Pure.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, TypeAlias

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.types import Command

from echelons.checkpoints.ledger import Value
from echelons.effects.journal import Call, Entry, State
from echelons.errors import LedgerDamaged

Stored: TypeAlias = dict[str, Any]


def stored(serde: SerializerProtocol, call: Call, entry: Entry) -> Stored:
    """Return an unfinished entry as JSON.

    Raises:
        NotStorable: An answer to the task cannot be stored.
    """
    value = _head(call, entry)
    if entry.answers:
        value["answers"] = _packed(serde, list(entry.answers))
    if entry.ours:
        value["ours"] = list(entry.ours)
    if entry.asked is not None:
        value["asked"] = entry.asked
    if entry.lost:
        value["lost"] = entry.lost
    if entry.state is State.SUSPENDED:
        value |= {"waits_for": list(entry.waits_for), "heard": entry.heard}
    return value


def stored_result(serde: SerializerProtocol, call: Call, entry: Entry, result: Any) -> Stored:
    """Return a finished entry as JSON, with its result or the reason why it cannot be stored."""
    try:
        return {**_head(call, entry), "result": _packed(serde, _parts(result))}
    except Exception as error:  # noqa: BLE001  whatever the serializer raises, the call is done
        return lost(call, entry, f"it could not be stored ({type(error).__name__}: {error})")


def lost(call: Call, entry: Entry, why: str) -> Stored:
    """Return a finished entry without its result as JSON, with the reason."""
    return {**_head(call, entry), "lost": why[:1000]}


def load(serde: SerializerProtocol, name: str, found: Value) -> Entry:
    """Return a stored entry.

    Raises:
        LedgerDamaged: The value is no entry.
        CheckpointTampered: A value in it is damaged, or may not be loaded.
    """
    value = found.value
    try:
        result, answers = value.get("result"), value.get("answers")
        return Entry(
            state=State(value["state"]),
            at=str(value["at"]),
            version=found.version,
            result=_whole(_unpacked(serde, result)) if result else None,
            lost=str(value.get("lost", "")),
            answers=tuple(_unpacked(serde, answers)) if answers else (),
            ours=tuple(int(each) for each in value.get("ours", ())),
            asked=None if value.get("asked") is None else int(value["asked"]),
            waits_for=tuple(str(each) for each in value.get("waits_for", ())),
            heard=int(value.get("heard", 0)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerDamaged(name, f"it is no entry of the effect journal ({error!r})") from error


def _head(call: Call, entry: Entry) -> Stored:
    return {
        "state": str(entry.state),
        "at": entry.at,
        "tool": call.tool,
        "agent_path": call.path,
        "call_id": call.call_id,
        "arguments": call.digest,
        "request": call.request_id,
    }


def _packed(serde: SerializerProtocol, value: Any) -> list[str]:
    kind, data = serde.dumps_typed(value)
    return [kind, b64encode(data).decode("ascii")]


def _unpacked(serde: SerializerProtocol, packed: list[str]) -> Any:
    kind, data = packed
    return serde.loads_typed((kind, b64decode(data, validate=True)))


def _parts(result: Any) -> list[Any]:
    """Return a result with its commands as lists: a checkpoint must not hold a `Command`."""
    if isinstance(result, list):
        return ["list", [_parts(each) for each in result]]
    if isinstance(result, Command):
        return ["command", result.graph, result.update, result.resume, result.goto]
    return ["value", result]


def _whole(parts: Any) -> Any:
    kind, *rest = parts
    if kind == "list":
        return [_whole(each) for each in rest[0]]
    if kind == "command":
        graph, update, resume, goto = rest
        return Command(graph=graph, update=update, resume=resume, goto=goto or ())
    return rest[0]
