"""Events: a conversation as a list of JSON objects.

One event per message, tool call, delegation and question. Pure functions: the SQLite
checkpointer stores their events once, in the transaction of the messages; `ThreadStore`
builds events from the current messages, on any saver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from echelons.delegation.calls import iterate_requests
from echelons.delegation.request_builder import load_sent_requests
from echelons.identity.lineage import CUT_KEY, MAIL_KEY, THREADS_KEY
from echelons.messaging.agent_question import read_question_value
from echelons.text.sanitize import sanitize_value

_LEFT_OUT = ("model", "version", "task")
"""Fields of a request that its delegation event does not repeat."""


class EventKind(StrEnum):
    """The kind of an event."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    DELEGATION = "delegation"
    QUESTION = "question"


@dataclass(frozen=True, slots=True)
class ThreadEvent:
    """One event of a thread.

    Attributes:
        kind: The kind of event.
        key: Id of the message, call or question; unique for its kind in a thread.
        data: The event as JSON. A message has `role` and `content`, a reply with `usage` also the
            name of its `model`, one of the mailbox `mail` with its sender, one that an
            intervention has cut off `cut`; a call `intent`,
            `arguments`, `call_id` and, for a delegation, `sub_agent_thread_id` and the `request`
            as it was sent, without its task; a question `value` and, if it has them, `choices`,
            `urgent`, `deadline`, `default` and `addressee`. A call that makes several requests has
            one event as a call, and one delegation for each request.
        paired_with: Of a call, the key of the message that answers it, empty while it is open; of
            that message, the key of the call. Not stored: it is known once both are.
    """

    kind: EventKind
    key: str
    data: Mapping[str, Any]
    paired_with: str = ""


def build_thread_events(
    messages: Iterable[Any], agent: str, thread_id: str
) -> Iterator[ThreadEvent]:
    """Yield the events of an agent's messages, in order; other values are skipped.

    Their data are as in the messages: values that a caller wrote into a state directly were not
    sanitized by any node.

    Raises:
        UnreadableRecord: The request records in a message are damaged.
    """
    for message in messages:
        if isinstance(message, BaseMessage):
            yield ThreadEvent(EventKind.MESSAGE, message.id or "", _describe_message(message))
            if isinstance(message, AIMessage):
                yield from _build_call_events(message, agent, thread_id)


def pair_events(events: Iterable[ThreadEvent]) -> tuple[ThreadEvent, ...]:
    """Return the events of a whole thread, sanitized, with each call and its answer paired."""
    found = [
        ThreadEvent(event.kind, sanitize_value(event.key), sanitize_value(event.data))
        for event in events
    ]
    calls: dict[str, tuple[str, list[int]]] = {}
    caller = ""
    for place, event in enumerate(found):
        if event.kind in (EventKind.TOOL_CALL, EventKind.DELEGATION):
            call_id = event.data["call_id"]
            # Some models use the id of an earlier call again.
            if call_id not in calls or calls[call_id][0] != caller:
                calls[call_id] = (caller, [])
            calls[call_id][1].append(place)
        elif event.data.get("tool_call_id") in calls:
            _, asked = calls.pop(event.data["tool_call_id"])
            found[place] = replace(event, paired_with=found[asked[0]].key)
            for each in asked:
                found[each] = replace(found[each], paired_with=event.key)
        else:
            caller = event.key
    return tuple(found)


def build_question_event(interrupt_id: str, value: Any) -> ThreadEvent:
    """Return the event of a question to the user."""
    question = read_question_value(value)
    data = {"value": question.text, **question.facts} if question else {"value": value}
    return ThreadEvent(EventKind.QUESTION, interrupt_id, data)


def _describe_message(message: BaseMessage) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.type, "content": message.content}
    if MAIL_KEY in message.response_metadata and message.type == "human":
        said["mail"] = message.response_metadata[MAIL_KEY]
    if isinstance(message, AIMessage) and message.usage_metadata:
        said["usage"] = {**message.usage_metadata}
        said["model"] = message.response_metadata.get("model_name", "")
    if CUT_KEY in message.response_metadata:
        said["cut"] = message.response_metadata[CUT_KEY]
    if isinstance(message, ToolMessage):
        said |= {"tool_call_id": message.tool_call_id, "status": message.status}
        if message.artifact is not None:
            said["artifact"] = message.artifact
    return said


def _build_call_events(message: AIMessage, agent: str, thread_id: str) -> Iterator[ThreadEvent]:
    threads: Mapping[str, str] = message.response_metadata.get(THREADS_KEY) or {}
    begun: dict[str, dict[str, Any]] = {}
    for call_id, request in load_sent_requests(message, agent, thread_id).items():
        fields = {key: each for key, each in request.stored().items() if key not in _LEFT_OUT}
        begun[call_id] = {"sub_agent_thread_id": threads[call_id], "request": fields}
    for call in message.tool_calls:
        call_id = call["id"] or ""
        kind = EventKind.DELEGATION if call_id in begun else EventKind.TOOL_CALL
        fields = {"intent": call["name"], "arguments": call["args"], "call_id": call_id}
        yield ThreadEvent(kind, f"{message.id}/{call_id}", {**fields, **begun.get(call_id, {})})
    for part, parted in iterate_requests(message, message.tool_calls):
        if parted:
            intent = f"{parted.join.name} of {len(parted.parts)}"
            fields = {"intent": intent, "arguments": part.arguments, "call_id": parted.call_id}
            key = f"{message.id}/{part.call_id}"
            yield ThreadEvent(EventKind.DELEGATION, key, {**fields, **begun.get(part.call_id, {})})
