"""Events: a conversation as a list of JSON objects.

One event per message, tool call, delegation and question, per answer, approval and order that a
person gives, and per alert and report of a monitor. Pure functions: the SQLite checkpointer
stores the events of messages once, in the transaction of the messages, and the others with what the
ledger keeps of them; `ThreadStore` builds events from the current messages, on any saver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from echelons.delegation.calls import (
    is_built_in_call,
    iterate_requests,
    load_sent_requests,
    load_specifications,
)
from echelons.delegation.questions import AgentQuestion, read_question_value
from echelons.identity.lineage import (
    ADDED_KEY,
    ASIDE_KEY,
    CUT_KEY,
    END_KEY,
    THREADS_KEY,
    WARNING_KEY,
    is_from_model,
)
from echelons.models.notices import list_notices
from echelons.text.error_lines import sanitize_value
from echelons.tree.names import ASK, PATH_SEPARATOR

_LEFT_OUT = ("model", "version", "task")
"""Fields of a request that its delegation event does not repeat."""


class EventKind(StrEnum):
    """The kind of an event."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    DELEGATION = "delegation"
    QUESTION = "question"
    ANSWER = "answer"
    APPROVAL = "approval"
    ORDER = "order"
    ALERT = "alert"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class ThreadEvent:
    """One event of a thread.

    Attributes:
        kind: The kind of event.
        key: Id of the message, call or question; unique for its kind in a thread.
        data: The event as JSON. A message has `role` and `content`, the reply of a model also its
            `usage` (`None` if it reports none) and the name of the `model`, one of the mailbox
            `mail` with its sender, one that an intervention has cut off `cut`, a reply that did not
            end whole its `end`, the answer to a call
            the `warning` that it ends with; a call `intent`,
            `arguments`, `call_id` and, for a delegation, `sub_agent_thread_id` and the `request`
            as it was sent, without its task, and the `kind` of a subordinate that was made at run
            time; a question `value` and, if it has them, `choices`,
            `urgent`, `deadline`, `default` and `addressee`, and `later` if no agent waits for its
            answer. An answer has the id of its `question`, its `value`, and who gave it (`by`,
            empty if the deadline had passed); an approval `decisions` instead of the value, each
            with its `tool` and `type`, without arguments; an order its `order` (`stop`, `pause`,
            `resume`), the `path` that it is for, and `by`. A call that makes several requests has
            one event as a call, and one delegation for each request. An alert has the path that it
            is `about`, its `reason` and what was decided (`decision`), a report its `text`; the
            reply in which a monitor makes them has `monitor`.
        paired_with: Of a call, the key of the message that answers it, empty while it is open; of
            that message, the key of the call. Not stored: it is known once both are.
    """

    kind: EventKind
    key: str
    data: Mapping[str, Any]
    paired_with: str = ""


@dataclass(frozen=True, slots=True)
class UserAction:
    """The input of a person for an agent: an answer, decisions on its calls, or an order.

    Attributes:
        kind: Which of these.
        data: The data of its event.
        at: When it was given, ISO 8601, UTC.
        agent_thread_id: The agent's thread; of an order, the root's.
        checkpoint_id: The checkpoint of the root after which it was given.
    """

    kind: EventKind
    data: Mapping[str, Any]
    at: str
    agent_thread_id: str
    checkpoint_id: str

    @property
    def text(self) -> str:
        """It in a few words."""
        return describe_user_action(self.kind, self.data)


def describe_user_action(kind: EventKind, data: Mapping[str, Any]) -> str:
    """Return an answer, an approval or an order in a few words.

    Examples:
        >>> decisions = [{"tool": "pay", "type": "reject"}, {"tool": "mail", "type": "approve"}]
        >>> describe_user_action(EventKind.APPROVAL, {"decisions": decisions})
        'reject pay, approve mail'
    """
    if kind is EventKind.APPROVAL:
        return ", ".join(
            f"{decision.get('type')} {decision.get('tool')}" for decision in data["decisions"]
        )
    return str(data["order"] if kind is EventKind.ORDER else data.get("value"))


class WriteLocation(NamedTuple):
    """The location of a write: LangGraph's coordinates and the agent's, as columns of an event."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    agent_thread_id: str
    agent_path: str

    @property
    def agent(self) -> str:
        """Name of the agent whose thread it is."""
        return self.agent_path.rpartition(PATH_SEPARATOR)[2]

    @classmethod
    def from_config(cls, config: RunnableConfig, checkpoint_id: str) -> WriteLocation:
        """Return the location of a write under a run's config."""
        configurable, metadata = config["configurable"], config.get("metadata") or {}
        return cls(
            str(configurable["thread_id"]),
            str(configurable.get("checkpoint_ns", "")),
            checkpoint_id,
            str(metadata.get("agent_thread_id", "")),
            str(metadata.get("agent_path", "")),
        )


def build_thread_events(
    messages: Iterable[Any], agent: str, thread_id: str, *, is_input: bool = False
) -> Iterator[ThreadEvent]:
    """Yield the events of an agent's messages, in order; other values are skipped.

    `is_input` says that they are an input: what models have written elsewhere has no usage here.

    Their data are as in the messages: values that a caller wrote into a state directly were not
    sanitized by any node.

    Raises:
        UnreadableRecord: The request records in a message are damaged.
    """
    for message in messages:
        if isinstance(message, BaseMessage):
            data = _describe_message(message)
            if not is_input and isinstance(message, AIMessage):
                data |= _describe_usage(message)
            yield ThreadEvent(EventKind.MESSAGE, message.id or "", data)
            if isinstance(message, AIMessage):
                yield from _build_call_events(message, agent, thread_id)


def pair_events(events: Iterable[ThreadEvent]) -> tuple[ThreadEvent, ...]:
    """Return the events of a whole thread, sanitized, with each call and its answer paired."""
    paired = [
        ThreadEvent(event.kind, sanitize_value(event.key), sanitize_value(event.data))
        for event in events
    ]
    calls: dict[str, tuple[str, list[int]]] = {}
    caller = ""
    for place, event in enumerate(paired):
        if event.kind in (EventKind.TOOL_CALL, EventKind.DELEGATION):
            call_id = event.data["call_id"]
            # Some models use the id of an earlier call again.
            if call_id not in calls or calls[call_id][0] != caller:
                calls[call_id] = (caller, [])
            calls[call_id][1].append(place)
        elif event.data.get("tool_call_id") in calls:
            _, places = calls.pop(event.data["tool_call_id"])
            paired[place] = replace(event, paired_with=paired[places[0]].key)
            for begun in places:
                paired[begun] = replace(paired[begun], paired_with=event.key)
        else:
            caller = event.key
    return tuple(paired)


def build_question_event(interrupt_id: str, value: Any) -> ThreadEvent:
    """Return the event of a question to the user."""
    question = read_question_value(value)
    data = {"value": question.text, **question.facts} if question else {"value": value}
    return ThreadEvent(EventKind.QUESTION, interrupt_id, data)


def build_later_question_event(question_id: str, stored: Mapping[str, Any]) -> ThreadEvent:
    """Return the event of a question for whose answer no agent waits, from its stored form."""
    question = AgentQuestion.load(stored)
    data = {"value": question.text, **question.facts, "later": True}
    return ThreadEvent(EventKind.QUESTION, question_id, data)


def _describe_message(message: BaseMessage) -> dict[str, Any]:
    data: dict[str, Any] = {"role": message.type, "content": message.content}
    if ASIDE_KEY in message.response_metadata and message.type == "human":
        data["mail"] = message.response_metadata[ASIDE_KEY]
    if CUT_KEY in message.response_metadata:
        data["cut"] = message.response_metadata[CUT_KEY]
    if END_KEY in message.response_metadata and message.type == "ai":
        data["end"] = message.response_metadata[END_KEY]
    if isinstance(message, ToolMessage):
        data |= {"tool_call_id": message.tool_call_id, "status": message.status}
        if WARNING_KEY in message.response_metadata:
            data["warning"] = message.response_metadata[WARNING_KEY]
        if notices := list_notices(message):
            data["notices"] = notices
        if message.artifact is not None:
            data["artifact"] = message.artifact
    return data


def _describe_usage(message: AIMessage) -> dict[str, Any]:
    """Return what a model reports of its reply; nothing if no model wrote the message."""
    if not is_from_model(message.response_metadata):
        return {}
    reported = message.usage_metadata
    # LangChain's cache gives a reply a cost alone.
    usage = {**reported} if reported and "input_tokens" in reported else None
    return {"usage": usage, "model": message.response_metadata.get("model_name", "")}


def _build_call_events(message: AIMessage, agent: str, thread_id: str) -> Iterator[ThreadEvent]:
    threads: Mapping[str, str] = message.response_metadata.get(THREADS_KEY) or {}
    begun: dict[str, dict[str, Any]] = {}
    for call_id, request in load_sent_requests(message, agent, thread_id).items():
        fields = {key: value for key, value in request.stored().items() if key not in _LEFT_OUT}
        begun[call_id] = {"sub_agent_thread_id": threads[call_id], "request": fields}
        if ADDED_KEY in message.response_metadata:
            spec = load_specifications(message, call_id).get(request.current)
            if isinstance(spec, Mapping):
                begun[call_id]["kind"] = spec.get("kind")
    for call in message.tool_calls:
        call_id = call["id"] or ""
        kind = EventKind.DELEGATION if call_id in begun else EventKind.TOOL_CALL
        fields = {"intent": call["name"], "arguments": call["args"], "call_id": call_id}
        if call["name"] == ASK and is_built_in_call(message, ASK):
            fields["is_built_in"] = True
        yield ThreadEvent(kind, f"{message.id}/{call_id}", {**fields, **begun.get(call_id, {})})
    for part, parted in iterate_requests(message, message.tool_calls):
        if parted:
            intent = f"{parted.join.name} of {len(parted.parts)}"
            fields = {"intent": intent, "arguments": part.arguments, "call_id": parted.call_id}
            key = f"{message.id}/{part.call_id}"
            yield ThreadEvent(EventKind.DELEGATION, key, {**fields, **begun.get(part.call_id, {})})
