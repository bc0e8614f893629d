"""The events of a run, translated from LangGraph's stream.

The command line and notebooks show these. `EventTranslator` is pure except for its record of
the tasks that have started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.checkpoints.coordination.orders import GivenOrder
from echelons.checkpoints.storage.serde import to_json_text
from echelons.checkpoints.thread_events import EventKind, describe_user_action
from echelons.checkpoints.threads.answer_outbox import StoredAnswer, describe_answer
from echelons.checkpoints.threads.pending_work import Question
from echelons.delegation.calls import is_typed_call, load_fan_out, load_sent_requests
from echelons.delegation.join import RaceEntry
from echelons.delegation.mail import Mail, load_mail
from echelons.delegation.questions import AgentQuestion, read_question_value
from echelons.delegation.request import DelegationResponse, Usage
from echelons.guards.dismissals import Dismissal
from echelons.guards.gate import is_pause
from echelons.identity.lineage import (
    ADDRESSEE_KEY,
    ASIDE_KEY,
    CUT_KEY,
    END_KEY,
    THREADS_KEY,
    WARNING_KEY,
)
from echelons.langgraph_internals import SEVERAL_WRITES_KEY
from echelons.nodes.messages import read_message_usage
from echelons.nodes.request_queue import QueuedRequest
from echelons.text.content_blocks import describe_content
from echelons.text.error_lines import Redactor, find_server, read_error_text, redact_secrets
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import (
    ASK,
    ASK_LATER,
    CALL_SUBORDINATE,
    PATH_SEPARATOR,
    RUN,
    SEND_MESSAGE,
    SPAWN_SUBORDINATE,
)

HOOK_NODES = frozenset({"before_agent", "before_model", "after_model", "after_agent"})
"""The hooks of a middleware that are nodes."""
INTERNAL_CALL_KEY = "lc_internal_call"
"""Metadata key by which LangChain's middleware mark their own calls of a model."""
STREAM_MODES = ("tasks", "messages", "custom")
"""The stream modes of LangGraph: starts and ends of tasks, chunks of replies, and what tools write.
"""

_CALLING_TOOLS = frozenset({CALL_SUBORDINATE, SPAWN_SUBORDINATE})


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
    MAIL = "mail"
    INTERVENTION = "intervention"
    ANSWER = "answer"
    APPROVAL = "approval"
    ORDER = "order"
    WARNING = "warning"
    ALERT = "alert"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of an agent.

    Attributes:
        path: The `AgentPath` of the agent: `head/experiences/restaurants`.
        kind: The kind of event.
        content: Its text: a task, a chunk or the whole of a reply, a tool's name and
            result, a question, an error, what a tool has written to the stream, a message of the
            mailbox that the agent has read, an answer, decisions, an order, a warning, the reason
            of a monitor's alert, its report.
        reasoning: The reasoning of the model, where it is available.
        usage: Tokens and calls of the reply; zero for other kinds.
        thread_id: The agent's thread.
        call_id: The call of its superior that the agent works on, so that parallel calls of one
            agent are distinguished; empty for the root.
        data: Other facts as plain values: a call's arguments, the model name in a reply. A
            question has an `id`, its `value` and, if it has them, the `schema` of its answer, and
            its `choices`, `urgent`, `deadline`, `default` and `addressee`, and `later` if its agent
            does not wait for the answer. An answer has the id of its `question` and its `value`, an
            approval the `decisions` on the calls instead, without arguments, an order its `order`:
            `stop`, `pause`, `resume` or `dismiss`, which may be `graceful`; each has who gave it
            (`by`, empty for the default that a passed deadline takes) and when (`at`). A
            task that is not new to its agent, as the run was resumed, has `resumed`; one that
            the agent passes on has the path of the agent that it is for (`to`). A
            delegation and its responses share an `id`, and the `request` as it was sent; the
            delegation has the `thread_id` on which its subordinate begins; a response has its
            `status`, the answering `agent`, the `attempt`, and whether it is `final` or the next
            candidate follows. What a tool has written with LangGraph's
            `get_stream_writer` is the `value`, any object. A message of the mailbox, and
            an intervention, has its sender (`from`), when it was sent (`at`), its `number` and its
            `kind`. A reply that an intervention has cut off has `cut`. A warning has the `id` of
            the call whose answer has it. An alert has the path that it is `about`, and its
            superior's `decision`: `tell`, `stop` or `ignore`.
    """

    __stored_as__ = "echelons.runtime.events.RunEvent"

    path: str
    kind: RunEventKind
    content: str = ""
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    thread_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    call_id: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", AgentPath(self.path))

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
            "call_id": self.call_id,
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
    """Translates the parts of one LangGraph stream into events."""

    def __init__(self, redact: Redactor = redact_secrets) -> None:
        self._redact = redact
        # Each with its input.
        self._tasks: dict[str, tuple[_TaskOrigin, Any]] = {}
        # The agent that works in a namespace of LangGraph.
        self._origins: dict[tuple[str, ...], _TaskOrigin] = {}
        self._begun: set[str] = set()
        # The call that is worked on, by the thread of its subordinate.
        self._calls: dict[str, str] = {}
        # Each by its id, until it is stored where it is found: only then it can be answered.
        self._questions: dict[str, RunEvent | None] = {}
        self._decided_races: set[str] = set()
        self.noted_calls: dict[str, Usage] = {}

    def translate_part(self, part: tuple[tuple[str, ...], str, Any]) -> Iterator[RunEvent]:
        """Yield the events of a part of the stream."""
        namespace, mode, payload = part
        if mode == "messages":
            chunk, metadata = payload
            yield from _token_events(chunk, metadata, self._calls)
            return
        for event in self._translate(namespace, mode, payload):
            call = self._calls.get(event.thread_id)
            yield replace(event, call_id=call) if call else event

    def _translate(self, namespace: tuple[str, ...], mode: str, payload: Any) -> Iterator[RunEvent]:
        if mode == "custom":
            # A graph that streams no tasks of its own writes for the one around it.
            while namespace and namespace not in self._origins:
                namespace = namespace[:-1]
            origin = self._origins[namespace]
            data = {"value": payload}
            yield RunEvent(
                origin.path,
                RunEventKind.CUSTOM,
                str(payload),
                thread_id=origin.thread_id,
                data=data,
            )
        elif "input" in payload:
            yield from self._translate_start(namespace, payload)
        else:
            yield from self._translate_end(namespace, payload)

    def add_usage(self, usage: Usage, part: tuple[tuple[str, ...], str, Any]) -> Usage:
        """Return some usage with that of the `MESSAGE` events of a part, which are not made."""
        namespace, mode, payload = part
        if mode != "tasks":
            return usage
        if "input" in payload:
            self._origins[namespace] = origin = _TaskOrigin("", "", payload["name"])
            self._tasks[payload["id"]] = origin, payload["input"]
        elif (task := self._tasks.pop(payload["id"], None)) and payload["name"] != "delegate":
            for message, used in self._read_messages(namespace, payload, task[1]):
                if isinstance(message, AIMessage):
                    usage += used
        return usage

    def _read_messages(
        self, namespace: tuple[str, ...], payload: Mapping[str, Any], state: Any
    ) -> Iterator[tuple[BaseMessage, Usage]]:
        """Yield the messages of a task's result with their usage, zero if it did not write them."""
        # A foreign graph, or one in a tool or a function, hands replies on: from the input of a
        # task to its result, and to the tasks around it. A reply is counted where it was written:
        # in a task whose input did not have it, and that has no task within.
        has_tasks_within = (*namespace, f"{payload['name']}:{payload['id']}") in self._origins
        # A node of a level is never given what it writes, and may have been given a long thread.
        # A hook of a middleware may change what it was given.
        is_hook = _is_hook(payload["name"])
        earlier = [*_list_messages(state)] if is_hook or _is_foreign(namespace) else ()
        # A message gets its id when it is stored.
        earlier_ids: set[int | str] = {id(message) for message in earlier}
        if earlier:
            earlier_ids |= {message.id for message in earlier if message.id}
        for message in _list_messages(payload["result"]):
            is_earlier = has_tasks_within or id(message) in earlier_ids or message.id in earlier_ids
            if is_hook and is_earlier:
                continue
            usage = Usage() if is_earlier else read_message_usage(message)
            if self.noted_calls and usage.model_calls:
                self.noted_calls.pop(message.id or "", None)
            yield message, usage

    def _translate_start(
        self, namespace: tuple[str, ...], payload: Mapping[str, Any]
    ) -> Iterator[RunEvent]:
        metadata = payload.get("metadata") or {}
        origin = _TaskOrigin(
            str(metadata.get("agent_path", "")),
            str(metadata.get("agent_thread_id", "")),
            payload["name"],
            _queued_request(payload["input"]),
        )
        self._origins[namespace] = origin
        self._tasks[payload["id"]] = origin, payload["input"]
        if order := origin.stored_request:
            self._calls[order["thread_id"]] = order["call_id"]
        segment = f"{origin.thread_id}/{metadata.get('request_id', '')}"
        # A segment begins with its first node; a delegation graph below it is no beginning.
        first = origin.node in ("reason", "run") or _is_hook(origin.node)
        if first and segment not in self._begun:
            self._begun.add(segment)
            state = payload["input"]
            messages = state.get("messages") if isinstance(state, dict) else None
            tasks = (
                message
                for message in reversed(messages or ())
                if isinstance(message, HumanMessage) and ASIDE_KEY not in message.response_metadata
            )
            task = next(tasks, None)
            text = describe_content(task.content) if task else ""
            # A resumed segment has more in its state than its task.
            data: dict[str, Any] = {}
            if messages and messages[-1] is not task:
                data["resumed"] = True
            before: Mapping[str, Any] = task.response_metadata if task else {}
            if below := before.get(ADDRESSEE_KEY):
                data["to"] = PATH_SEPARATOR.join((origin.path, *below))
            yield RunEvent(
                origin.path, RunEventKind.TASK, text, thread_id=origin.thread_id, data=data
            )

    def _translate_end(
        self, namespace: tuple[str, ...], payload: Mapping[str, Any]
    ) -> Iterator[RunEvent]:
        task = self._tasks.pop(payload["id"], None)
        if task is None:
            return
        origin, state = task
        if payload["interrupts"]:
            yield from self._translate_questions(namespace, origin, payload["interrupts"])
        if (error := payload["error"]) is not None:
            text, server = read_error_text(error), find_server(error)
            text = self._redact(f"{text} ({server})" if server else text)
            yield RunEvent(origin.path, RunEventKind.ERROR, text, thread_id=origin.thread_id)
        # The subordinate's node reports the responses of a delegation, and `delegate` repeats them.
        if origin.node != "delegate":
            for message, usage in self._read_messages(namespace, payload, state):
                yield from _message_events(origin, message, usage)
            if origin.stored_request:
                order = QueuedRequest.load(origin.stored_request)
                if order.race_entry and _is_last_place(order.race_entry, payload["result"]):
                    self._decided_races.add(order.race_entry.race)
                yield from _response_events(origin, order, payload["result"])

    def _translate_questions(
        self,
        namespace: tuple[str, ...],
        origin: _TaskOrigin,
        interrupts: Iterable[Mapping[str, Any]],
    ) -> Iterator[RunEvent]:
        for interrupt in interrupts:
            if is_pause(interrupt["value"]):
                continue
            # A question passes through every level; the first task that reports it asks it.
            if interrupt["id"] not in self._questions:
                self._questions[interrupt["id"]] = _question_event(origin, interrupt)
            question = self._questions[interrupt["id"]]
            if question and self._is_found(namespace):
                self._questions[interrupt["id"]] = None
                yield question

    def _is_found(self, namespace: tuple[str, ...]) -> bool:
        """Return whether a question that is stored in a namespace can be answered there."""
        # Not within a foreign graph, whose tasks are found only once they are interrupted, and not
        # within a race that others have won.
        for depth, part in enumerate(namespace):
            if part.startswith(f"{RUN}:") and depth + 1 < len(namespace):
                return False
            origin = self._origins.get(namespace[: depth + 1])
            request = origin.stored_request if origin else None
            race = RaceEntry.load(request["part"]).race if request and "part" in request else None
            if race in self._decided_races:
                return False
        return True


def _is_last_place(entry: RaceEntry, result: Any) -> bool:
    """Return whether the end of a request in a race has decided it, or came after that."""
    parts = (result.get("parts") or {}) if isinstance(result, dict) else {}
    return any(0 < entry.enough <= part["place"] for part in parts.values())


def build_mail_event(path: str, thread_id: str, mail: Mail) -> RunEvent:
    """Return the event of a message that an agent has read."""
    is_intervention = mail.kind == "intervention"
    kind = RunEventKind.INTERVENTION if is_intervention else RunEventKind.MAIL
    return RunEvent(path, kind, mail.text, thread_id=thread_id, data=mail.to_metadata())


def build_answer_event(question: Question, answer: StoredAnswer) -> RunEvent:
    """Return the event of an answer that is delivered: an approval's if it is about tool calls."""
    kind, data = describe_answer(question, answer)
    path = question.path
    return build_action_event(kind, path, question.thread_id, {**data, "at": answer.at})


def build_order_event(order: GivenOrder) -> RunEvent:
    """Return the event of an order."""
    data = {"order": order.order, "path": order.path, "by": order.by, "at": order.at}
    return build_action_event(EventKind.ORDER, order.path, "", data)


def build_dismissal_event(new: Dismissal) -> RunEvent:
    """Return the event of a dismissal, which is an order, too."""
    data = GivenOrder("dismiss", new.path, new.by, new.at)
    event = build_order_event(data)
    return replace(event, data={**event.data, "graceful": new.graceful})


def build_action_event(
    kind: EventKind, path: str, thread_id: str, data: Mapping[str, Any]
) -> RunEvent:
    """Return the event of an answer, an approval or an order, from the data of a thread's event."""
    text = describe_user_action(kind, data)
    return RunEvent(path, RunEventKind(kind), text, thread_id=thread_id, data=data)


def _question_event(origin: _TaskOrigin, interrupt: Mapping[str, Any]) -> RunEvent:
    value, facts = interrupt["value"], dict[str, Any]()
    if question := read_question_value(value):
        value, facts = question.text, question.facts
    data = {"id": interrupt["id"], "value": value, **facts}
    if isinstance(schema := interrupt.get("response_schema"), Mapping):
        data["schema"] = schema
    text = str(value)
    return RunEvent(origin.path, RunEventKind.QUESTION, text, thread_id=origin.thread_id, data=data)


def _token_events(
    chunk: BaseMessage, metadata: Mapping[str, Any], calls: Mapping[str, str]
) -> Iterator[RunEvent]:
    if not isinstance(chunk, AIMessage) or not (chunk.text or _reasoning_text(chunk)):
        return
    # LangGraph sends whole messages too, which become MESSAGE events.
    if type(chunk) is AIMessage:
        return
    # What a middleware asks a model of its own, such as a summary, is nothing that the agent says.
    if INTERNAL_CALL_KEY in metadata or _is_hook(str(metadata.get("langgraph_node", ""))):
        return
    thread = str(metadata.get("agent_thread_id", ""))
    yield RunEvent(
        str(metadata.get("agent_path", "")),
        RunEventKind.TOKEN,
        str(chunk.text),
        _reasoning_text(chunk),
        thread_id=thread,
        call_id=calls.get(thread, ""),
    )


def _is_hook(node: str) -> bool:
    """Return whether a node runs a hook of a middleware, as in `create_agent`: `NAME.HOOK`."""
    return node.rpartition(".")[2] in HOOK_NODES


def _is_foreign(namespace: tuple[str, ...]) -> bool:
    """Return whether a namespace is within a node that runs what is no level of the tree."""
    return any(node.startswith((f"{RUN}:", "act:")) for node in namespace)


def _message_events(origin: _TaskOrigin, message: BaseMessage, usage: Usage) -> Iterator[RunEvent]:
    if isinstance(message, AIMessage):
        data = {"model": str(message.response_metadata.get("model_name", ""))}
        if CUT_KEY in message.response_metadata:
            data["cut"] = message.response_metadata[CUT_KEY]
        if END_KEY in message.response_metadata:
            data["end"] = message.response_metadata[END_KEY]
        yield RunEvent(
            origin.path,
            RunEventKind.MESSAGE,
            str(message.text),
            _reasoning_text(message),
            usage,
            origin.thread_id,
            data,
        )
        yield from _call_events(origin, message)
    elif isinstance(message, HumanMessage) and ASIDE_KEY in message.response_metadata:
        mail = load_mail(str(message.text), message.response_metadata[ASIDE_KEY])
        if mail.kind != "notice":
            yield build_mail_event(origin.path, origin.thread_id, mail)
    elif isinstance(message, ToolMessage) and WARNING_KEY in message.response_metadata:
        text, about = message.response_metadata[WARNING_KEY], {"id": message.tool_call_id}
        yield RunEvent(
            origin.path, RunEventKind.WARNING, text, thread_id=origin.thread_id, data=about
        )
    # A message that `reason` wrote or joined itself is no response of a subordinate.
    elif isinstance(message, ToolMessage) and origin.stored_request is None:
        facts = {"id": message.tool_call_id, "status": message.status, "name": message.name}
        content = str(message.text)
        yield RunEvent(
            origin.path, RunEventKind.TOOL_RESULT, content, thread_id=origin.thread_id, data=facts
        )
        artifact = message.artifact if message.name in (ASK, ASK_LATER) else None
        if isinstance(artifact, Mapping) and {*artifact} == {"id", "question"}:
            question = AgentQuestion.load(artifact["question"])
            later: dict[str, Any] = {"id": artifact["id"], "value": question.text, **question.facts}
            yield RunEvent(
                origin.path,
                RunEventKind.QUESTION,
                question.text,
                thread_id=origin.thread_id,
                data={**later, "later": True},
            )
        # A message of the root to the user, who has no mailbox.
        if message.name == SEND_MESSAGE and isinstance(sent := message.artifact, Mapping):
            notice = {"kind": "message", "from": origin.path, "to": sent["to"]}
            yield RunEvent(
                origin.path,
                RunEventKind.MAIL,
                sent["text"],
                thread_id=origin.thread_id,
                data=notice,
            )


def _call_events(origin: _TaskOrigin, message: AIMessage) -> Iterator[RunEvent]:
    agent = origin.path.rpartition(PATH_SEPARATOR)[2]
    begun = load_sent_requests(message, agent, origin.thread_id)
    threads: Mapping[str, str] = message.response_metadata.get(THREADS_KEY) or {}
    for call in message.tool_calls:
        calls = [(call["id"] or "", call["args"])]
        kind = (
            RunEventKind.DELEGATION
            if call["name"] in _CALLING_TOOLS or is_typed_call(message, call)
            else RunEventKind.TOOL_CALL
        )
        if parted := load_fan_out(message, call["id"] or ""):
            calls = [(part.call_id, part.arguments) for part in parted.parts if part.subordinate]
            kind = RunEventKind.DELEGATION
        for call_id, arguments in calls:
            data = {"id": call_id, "arguments": arguments}
            if call_id in begun:
                data["request"] = begun[call_id].stored()
                data["thread_id"] = threads[call_id]
            yield RunEvent(origin.path, kind, call["name"], thread_id=origin.thread_id, data=data)


def _response_events(origin: _TaskOrigin, order: QueuedRequest, result: Any) -> Iterator[RunEvent]:
    """Yield the responses of subordinates, final or followed by another candidate."""
    if not isinstance(result, dict):
        return
    following = _queued_request(result)
    next_ = QueuedRequest.load(following) if following else None
    if next_ and next_.request.id == order.request.id:
        tried = next_.earlier_responses
        yield _response_event(origin, order, tried[-1], tried, final=False)
        return
    artifacts = [
        message.artifact for message in _list_messages(result) if isinstance(message, ToolMessage)
    ]
    entries = (result.get("parts") or {}).values()
    for stored in (*artifacts, *(entry["response"] for entry in entries)):
        whole = DelegationResponse.load(stored)
        others = (
            response for response in whole.subordinate_responses if response.agent != whole.agent
        )
        of_thread = (other for other in others if other.thread_id == order.thread_id)
        yield _response_event(origin, order, next(of_thread, whole), [whole], final=True)


def _response_event(
    origin: _TaskOrigin,
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
    if response.end:
        data["end"] = response.end
    return RunEvent(
        f"{origin.path}/{order.request.current}",
        RunEventKind.RESPONSE,
        response.result,
        usage=sum((answer.usage for answer in cost), Usage()),
        thread_id=order.thread_id,
        data=data,
    )


def _queued_request(state: Any) -> Mapping[str, Any] | None:
    """Return the first queued request of a delegation, as it is stored."""
    queue = state.get("queue") if isinstance(state, dict) else None
    return queue[0] if queue else None


def _list_messages(state: Any) -> Iterator[BaseMessage]:
    """Yield the messages of a state or of an update."""
    held = state.get("messages") if isinstance(state, dict) else None
    # Several writes of one task: {"$writes": [...]}.
    writes = held.get(SEVERAL_WRITES_KEY, ()) if isinstance(held, dict) else [held]
    for write in writes:
        messages = write if isinstance(write, (list, tuple)) else [write]
        yield from (message for message in messages if isinstance(message, BaseMessage))


def _reasoning_text(message: AIMessage) -> str:
    if isinstance(message.content, str) and not message.additional_kwargs:
        return ""
    blocks = message.content_blocks
    return "".join(str(b.get("reasoning", "")) for b in blocks if b["type"] == "reasoning")
