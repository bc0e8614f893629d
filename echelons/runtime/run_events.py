"""The events of a run, translated from LangGraph's stream.

The command line and notebooks show these. `EventTranslator` is pure except for its record of
the tasks that have started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.checkpoints.storage.json_text import to_json_text
from echelons.delegation.calls import load_fan_out
from echelons.delegation.request import DelegationResponse, Usage
from echelons.delegation.request_builder import load_sent_requests
from echelons.guards.gate import is_pause
from echelons.langgraph_internals import SEVERAL_WRITES_KEY
from echelons.nodes.delegating.queued_request import QueuedRequest
from echelons.nodes.messages import read_message_usage
from echelons.text.content_blocks import describe_content
from echelons.text.error_lines import find_server, read_error_text
from echelons.text.redaction import Redactor, redact_secrets
from echelons.tree.names import CALL_SUBORDINATE, PATH_SEPARATOR

STREAM_MODES = ("tasks", "messages", "custom")
"""The stream modes of LangGraph: starts and ends of tasks, chunks of replies, and what tools write.
"""


class RunEventKind(StrEnum):
    """The kind of an event."""

    __stored_as__ = "echelons.runtime.events.Kind"

    TASK = "task"
    TOKEN = "token"  # noqa: S105  a chunk of a reply, no secret
    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    DELEGATION = "delegation"
    RESPONSE = "response"
    QUESTION = "question"
    ERROR = "error"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of an agent.

    Attributes:
        path: Path of the agent: `head/experiences/restaurants`.
        kind: What happened.
        content: Its text: a task, a chunk or the whole of a reply, a tool's name and
            result, a question, an error, what a tool has written to the stream.
        reasoning: The reasoning of the model, where it is available.
        usage: Tokens and calls of the reply; zero for other kinds.
        thread_id: The agent's thread.
        data: Other facts as plain values: a call's arguments, the model name in a reply. A
            question has an `id`, its `value` and, if it has one, the `schema` of its answer. A
            task that is not new to its agent, as the run was resumed, has `resumed`. A
            delegation and its responses share an `id`, and the `request` as it was sent; a
            response has its `status`, the answering `agent`, the `attempt`, and whether it is
            `final` or the next candidate follows. What a tool has written with LangGraph's
            `get_stream_writer` is the `value`, any object.
    """

    __stored_as__ = "echelons.runtime.events.RunEvent"

    path: str
    kind: RunEventKind
    content: str = ""
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    thread_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the event as plain JSON values."""
        is_custom = self.kind is RunEventKind.CUSTOM
        data = json.loads(to_json_text(self.data)) if is_custom else dict(self.data)
        return {
            "path": self.path,
            "kind": str(self.kind),
            "content": self.content,
            "reasoning": self.reasoning,
            "usage": self.usage.model_dump(),
            "thread_id": self.thread_id,
            "data": data,
        }


@dataclass(frozen=True, slots=True)
class _TaskOrigin:
    path: str
    thread_id: str
    node: str
    # As it is stored: most tasks end without a need of it.
    stored_request: Mapping[str, Any] | None = None


class EventTranslator:
    """Translates the parts of one LangGraph stream into events.

    Args:
        redact: Returns the text of an exception without secrets.
    """

    def __init__(self, redact: Redactor = redact_secrets) -> None:
        self._redact = redact
        self._tasks: dict[str, _TaskOrigin] = {}
        # The agent that works in a namespace of LangGraph.
        self._origins: dict[tuple[str, ...], _TaskOrigin] = {}
        self._begun: set[str] = set()
        # Each by its id, until the root has stored it: only then it can be answered.
        self._questions: dict[str, RunEvent | None] = {}

    def translate_part(self, part: tuple[tuple[str, ...], str, Any]) -> Iterator[RunEvent]:
        """Yield the events of a part of the stream."""
        namespace, mode, payload = part
        if mode == "messages":
            yield from _token_events(*payload)
        elif mode == "custom":
            # A graph that streams no tasks of its own writes for the one around it.
            while namespace and namespace not in self._origins:
                namespace = namespace[:-1]
            who = self._origins[namespace]
            data = {"value": payload}
            yield RunEvent(
                who.path, RunEventKind.CUSTOM, str(payload), thread_id=who.thread_id, data=data
            )
        elif "input" in payload:
            yield from self._translate_start(namespace, payload)
        else:
            yield from self._translate_end(namespace, payload)

    def _translate_start(
        self, namespace: tuple[str, ...], payload: Mapping[str, Any]
    ) -> Iterator[RunEvent]:
        metadata = payload.get("metadata") or {}
        who = _TaskOrigin(
            str(metadata.get("agent_path", "")),
            str(metadata.get("agent_thread_id", "")),
            payload["name"],
            _queued_request(payload["input"]),
        )
        self._tasks[payload["id"]] = self._origins[namespace] = who
        segment = f"{who.thread_id}/{metadata.get('request_id', '')}"
        # A segment begins with its first node; a delegation graph below it is no beginning.
        if who.node in ("reason", "run") and segment not in self._begun:
            self._begun.add(segment)
            state = payload["input"]
            messages = state.get("messages") if isinstance(state, dict) else None
            tasks = (each for each in reversed(messages or ()) if isinstance(each, HumanMessage))
            task = next(tasks, None)
            text = describe_content(task.content) if task else ""
            # A resumed segment has more in its state than its task.
            data = {"resumed": True} if messages and messages[-1] is not task else {}
            yield RunEvent(who.path, RunEventKind.TASK, text, thread_id=who.thread_id, data=data)

    def _translate_end(
        self, namespace: tuple[str, ...], payload: Mapping[str, Any]
    ) -> Iterator[RunEvent]:
        who = self._tasks.pop(payload["id"], None)
        if who is None:
            return
        for each in payload["interrupts"]:
            if is_pause(each["value"]):
                continue
            # A question passes through every level; the first task that reports it asks it.
            if each["id"] not in self._questions:
                self._questions[each["id"]] = _question_event(who, each)
            # It is found from the root downwards, so only now.
            if not namespace and (question := self._questions[each["id"]]):
                self._questions[each["id"]] = None
                yield question
        if (error := payload["error"]) is not None:
            text, server = read_error_text(error), find_server(error)
            text = self._redact(f"{text} ({server})" if server else text)
            yield RunEvent(who.path, RunEventKind.ERROR, text, thread_id=who.thread_id)
        # The subordinate's node reports the responses of a delegation, and `delegate` repeats them.
        if who.node != "delegate":
            for message in _written_messages(payload["result"]):
                yield from _message_events(who, message)
            if who.stored_request:
                yield from _response_events(
                    who, QueuedRequest.load(who.stored_request), payload["result"]
                )


def _question_event(who: _TaskOrigin, asked: Mapping[str, Any]) -> RunEvent:
    data = {"id": asked["id"], "value": asked["value"]}
    if isinstance(schema := asked.get("response_schema"), Mapping):
        data["schema"] = schema
    text = str(asked["value"])
    return RunEvent(who.path, RunEventKind.QUESTION, text, thread_id=who.thread_id, data=data)


def _token_events(chunk: BaseMessage, metadata: Mapping[str, Any]) -> Iterator[RunEvent]:
    if not isinstance(chunk, AIMessage) or not (chunk.text or _reasoning_text(chunk)):
        return
    # LangGraph sends whole messages too, which become MESSAGE events.
    if type(chunk) is AIMessage:
        return
    yield RunEvent(
        str(metadata.get("agent_path", "")),
        RunEventKind.TOKEN,
        str(chunk.text),
        _reasoning_text(chunk),
        thread_id=str(metadata.get("agent_thread_id", "")),
    )


def _message_events(who: _TaskOrigin, message: BaseMessage) -> Iterator[RunEvent]:
    if isinstance(message, AIMessage):
        yield RunEvent(
            who.path,
            RunEventKind.MESSAGE,
            str(message.text),
            _reasoning_text(message),
            read_message_usage(message),
            who.thread_id,
            {"model": str(message.response_metadata.get("model_name", ""))},
        )
        yield from _call_events(who, message)
    # A message that `reason` wrote or joined itself is no response of a subordinate.
    elif isinstance(message, ToolMessage) and who.stored_request is None:
        data = {"id": message.tool_call_id, "status": message.status, "name": message.name}
        content = str(message.text)
        yield RunEvent(
            who.path, RunEventKind.TOOL_RESULT, content, thread_id=who.thread_id, data=data
        )


def _call_events(who: _TaskOrigin, message: AIMessage) -> Iterator[RunEvent]:
    agent = who.path.rpartition(PATH_SEPARATOR)[2]
    begun = load_sent_requests(message, agent, who.thread_id)
    for call in message.tool_calls:
        asked = [(call["id"] or "", call["args"])]
        kind = (
            RunEventKind.DELEGATION if call["name"] == CALL_SUBORDINATE else RunEventKind.TOOL_CALL
        )
        if parted := load_fan_out(message, call["id"] or ""):
            asked = [(part.call_id, part.arguments) for part in parted.parts if part.subordinate]
            kind = RunEventKind.DELEGATION
        for each, arguments in asked:
            data = {"id": each, "arguments": arguments}
            if each in begun:
                data["request"] = begun[each].stored()
            yield RunEvent(who.path, kind, call["name"], thread_id=who.thread_id, data=data)


def _response_events(who: _TaskOrigin, order: QueuedRequest, result: Any) -> Iterator[RunEvent]:
    """Yield the responses of subordinates, final or followed by another candidate."""
    if not isinstance(result, dict):
        return
    following = _queued_request(result)
    next_ = QueuedRequest.load(following) if following else None
    if next_ and next_.request.id == order.request.id:
        tried = next_.earlier_responses
        yield _response_event(who, order, tried[-1], tried, final=False)
        return
    artifacts = [
        each.artifact for each in _written_messages(result) if isinstance(each, ToolMessage)
    ]
    entries = (result.get("parts") or {}).values()
    for stored in (*artifacts, *(each["response"] for each in entries)):
        whole = DelegationResponse.load(stored)
        others = (each for each in whole.subordinate_responses if each.agent != whole.agent)
        own = (each for each in others if each.thread_id == order.thread_id)
        yield _response_event(who, order, next(own, whole), [whole], final=True)


def _response_event(
    who: _TaskOrigin,
    order: QueuedRequest,
    response: DelegationResponse,
    cost: Iterable[DelegationResponse],
    *,
    final: bool,
) -> RunEvent:
    """Return the event of a response; `cost` are the responses that the request has cost so far."""
    data: dict[str, Any] = {
        "id": order.call_id,
        "agent": response.agent,
        "status": str(response.status),
        "reason": response.reason,
        "confidence": response.confidence,
        "attempt": order.request.attempts,
        "final": final,
        "request": order.request.stored(),
    }
    return RunEvent(
        f"{who.path}/{order.request.current}",
        RunEventKind.RESPONSE,
        response.result,
        usage=sum((each.usage for each in cost), Usage()),
        thread_id=order.thread_id,
        data=data,
    )


def _queued_request(state: Any) -> Mapping[str, Any] | None:
    """Return the first queued request of a delegation, as it is stored."""
    queue = state.get("queue") if isinstance(state, dict) else None
    return queue[0] if queue else None


def _written_messages(result: Any) -> Iterator[BaseMessage]:
    held = result.get("messages") if isinstance(result, dict) else None
    if isinstance(held, dict):  # several writes of one task: {"$writes": [...]}
        held = [each for write in held.get(SEVERAL_WRITES_KEY, ()) for each in write]
    yield from (each for each in held or () if isinstance(each, BaseMessage))


def _reasoning_text(message: AIMessage) -> str:
    if isinstance(message.content, str) and not message.additional_kwargs:
        return ""
    blocks = message.content_blocks
    return "".join(str(b.get("reasoning", "")) for b in blocks if b["type"] == "reasoning")
