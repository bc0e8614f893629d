"""What a level answers without a model call: results joined, requests relayed, segments ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langgraph.types import interrupt

from echelons.delegation.calls import (
    FanOutCall,
    RelayedRequest,
    build_request,
    iterate_requests,
    load_candidates,
    load_fan_out,
    request_diff,
)
from echelons.delegation.join import join_call_responses, settle_responses
from echelons.delegation.notice import MARK_KEY, create_mark
from echelons.delegation.questions import AgentQuestion, build_question_id
from echelons.delegation.request import DelegationRequest, DelegationResponse, Status
from echelons.guards.gate import HALT_KEY, Halt, Pause
from echelons.identity.lineage import (
    ADDRESSEE_KEY,
    FORWARDED_KEY,
    NOTICES_KEY,
    REQUEST_CONTEXT_KEY,
    REQUESTS_KEY,
    RETURNED_KEY,
    SIDE_BY_SIDE_KEY,
    UNANSWERED_KEY,
    Identity,
    derive_message_id,
    derive_request_id,
)
from echelons.nodes.planning.final_answer import find_waiting_report, settle_report
from echelons.nodes.planning.tool_calls import find_unanswered
from echelons.nodes.request_queue import QueuedRequest, build_tool_message
from echelons.tree.agent_path import AgentPath
from echelons.tree.names import CALL_SUBORDINATE


def build_halt_update(
    halt: Halt | Pause, messages: Sequence[BaseMessage], identity: Identity
) -> dict[str, Any]:
    """Return the update that ends a halted segment.

    Raises:
        GraphInterrupt: The run is paused. Nothing ends; the node starts again after the pause.
    """
    while isinstance(halt, Pause):
        interrupt(halt.marker)
    _, calls = find_unanswered(messages)
    return _build_end_update(
        halt, messages, [build_not_run_message(call, halt) for call in calls], identity
    )


def build_late_reply_update(
    halt: Halt, messages: Sequence[BaseMessage], reply: AIMessage, identity: Identity
) -> dict[str, Any]:
    """Return the update that stores a reply that came too late, without running its calls."""
    calls = (*reply.tool_calls, *reply.invalid_tool_calls)
    new = [reply, *(build_not_run_message(call, halt) for call in calls)]
    return _build_end_update(halt, [*messages, reply], new, identity)


def find_answer(
    messages: Sequence[BaseMessage], direct_tools: Collection[str], identity: Identity
) -> tuple[dict[str, Any] | None, ToolMessage | None]:
    """Return the update of an answer that needs no model call, or a report's refusal.

    The answer is a report that has waited for other calls, or the results of direct tools.
    """
    if waiting := find_waiting_report(messages):
        update, refused = settle_report(waiting, messages)
        return update or None, refused
    if direct_tools:
        return build_direct_update(messages, direct_tools, identity), None
    return None, None


def build_direct_update(
    messages: Sequence[BaseMessage], direct_tools: Collection[str], identity: Identity
) -> dict[str, Any] | None:
    """Return the update that ends a segment with the results of tools that are its answer.

    `None` unless all calls of the last message are of such tools, and none has failed: the model
    reads an error, and can try again.
    """
    results: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = message
            continue
        if not isinstance(message, AIMessage) or message.invalid_tool_calls or not results:
            return None
        answers = [results.get(call["id"] or "") for call in message.tool_calls]
        if not {call["name"] for call in message.tool_calls} <= {*direct_tools}:
            return None
        if any(answer is None or answer.status == "error" for answer in answers):
            return None
        last = AIMessage(
            "\n\n".join(str(answer.text) for answer in answers if answer),
            id=derive_message_id(identity.thread_id, f"{RETURNED_KEY}/{message.id}"),
            name=identity.agent,
            response_metadata={RETURNED_KEY: True},
        )
        return {"messages": [last]}
    return None


def build_not_run_message(
    call: Mapping[str, Any], halt: Halt, was_begun: bool = False
) -> ToolMessage:
    """Return the tool message of a call that does not run, or that was cut short."""
    what = "cut short, and what came of it is not known" if was_begun else "not run"
    return ToolMessage(
        f"{what}: {halt.reason}",
        tool_call_id=call["id"] or "",
        name=call["name"] or "unknown",
        status="error",
        response_metadata={NOTICES_KEY: True},
    )


def _build_end_update(
    halt: Halt, messages: Sequence[BaseMessage], new: Sequence[BaseMessage], identity: Identity
) -> dict[str, Any]:
    position = f"{HALT_KEY}/{identity.request_id}/{len(messages)}"
    last = AIMessage(
        f"Not finished ({halt.reason}).",
        id=derive_message_id(identity.thread_id, position),
        name=identity.agent,
        response_metadata={HALT_KEY: {"kind": halt.kind, "reason": halt.reason}},
    )
    update: dict[str, Any] = {"messages": [*new, last]}
    # A root has no superior to report to, and a stored report would end its later turns too.
    if identity.request_id:
        update["response"] = build_halt_report(halt, messages)
    return update


def read_halt(message: BaseMessage) -> Halt | None:
    """Return the order that a segment's last message names, `None` for any other message."""
    match message.response_metadata.get(HALT_KEY):
        case {
            "kind": "limit"
            | "budget"
            | "stopped"
            | "timeout"
            | "refused"
            | "repeated"
            | "dismissed" as kind,
            "reason": str(reason),
        }:
            return Halt(kind, reason.removeprefix(f"{kind}: "))
    return None


def build_halt_report(halt: Halt, messages: Sequence[BaseMessage]) -> dict[str, Any]:
    """Return the report of a halted agent, with its last text if limits leave a result."""
    texts = (str(message.text) for message in reversed(messages) if isinstance(message, AIMessage))
    result = next(filter(None, texts), "") if halt.status == "partial" else ""
    return {
        "status": halt.status,
        "result": result,
        "reason": halt.reason,
        HALT_KEY: halt.kind,
    }


def build_question_report(questions: Sequence[AgentQuestion]) -> dict[str, Any]:
    """Return the report of a segment that ends with questions to its superior."""
    return {
        "status": str(Status.NEEDS_INPUT),
        "result": "\n".join(question.text for question in questions),
        "questions": [question.stored() for question in questions],
    }


def build_unanswered_update(messages: Sequence[BaseMessage]) -> dict[str, Any] | None:
    """Return the update that ends a segment whose last calls the user has not answered in time.

    `None` if there is no such call: the superior is asked what the user was.
    """
    questions: list[AgentQuestion] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        if (stored := message.response_metadata.get(UNANSWERED_KEY)) is not None:
            questions.insert(0, AgentQuestion.load(stored))
    return {"response": build_question_report(questions)} if questions else None


@dataclass(frozen=True, slots=True)
class JoinedState:
    """A level's state after the finished calls with several requests have been answered.

    Attributes:
        state: The state.
        added: The messages in it that are not stored yet: answers, and mail.
        finished_parts: The ids of the requests that they are made of, to be deleted from `parts`.
        new_mark: The mark of the thread's notices, if an earlier version has begun the segment.
    """

    state: Mapping[str, Any]
    added: Sequence[BaseMessage] = ()
    finished_parts: Mapping[str, None] = field(default_factory=dict)
    new_mark: str = ""

    @property
    def mark(self) -> str:
        """The mark of the notices in the agent's thread."""
        return str(self.state[MARK_KEY])

    def rebase_update(self, update: dict[str, Any]) -> dict[str, Any]:
        """Return an update of the joined state as an update of the original state."""
        if self.new_mark and update:
            update = {**update, MARK_KEY: self.new_mark}
        if not self.added:
            return update
        whole = {**update, "messages": [*self.added, *update.get("messages", ())]}
        if self.finished_parts:
            whole["parts"] = {**self.finished_parts, **update.get("parts", {})}
        return whole

    def add_messages(self, messages: Sequence[BaseMessage]) -> JoinedState:
        """Return the state with further messages, which the model reads last."""
        state = {**self.state, "messages": [*self.state["messages"], *messages]}
        return replace(self, state=state, added=[*self.added, *messages])

    def replace_message(self, message: BaseMessage) -> JoinedState:
        """Return the state with a message in place of that with its id."""
        messages = [
            message if other.id == message.id else other for other in self.state["messages"]
        ]
        added = [*self.added, message]
        return replace(self, state={**self.state, "messages": messages}, added=added)


def join_parts(state: Mapping[str, Any], identity: Identity) -> JoinedState:
    """Return a level's state with an answer to each call whose requests have all ended."""
    new_mark = "" if state.get(MARK_KEY) else create_mark()
    if new_mark:
        state = {**state, MARK_KEY: new_mark}
    parts: Mapping[str, Any] = state.get("parts") or {}
    if not parts:
        return JoinedState(state, new_mark=new_mark)
    message, calls = find_unanswered(state["messages"])
    if message is None:
        return JoinedState(state, new_mark=new_mark)
    answers = [
        answer
        for call in calls
        if (parted := load_fan_out(message, call["id"] or ""))
        and (answer := build_joint_answer(parted, message, parts, identity))
    ]
    whole = {**state, "messages": [*state["messages"], *answers], "parts": {}}
    return JoinedState(whole, answers, dict.fromkeys(parts), new_mark)


def build_joint_answer(
    fan_out: FanOutCall, message: AIMessage, parts: Mapping[str, Any], identity: Identity
) -> ToolMessage | None:
    """Return the answer to a call with several requests, `None` while one is still open.

    Raises:
        UnreadableRecord: A stored response is damaged.
    """
    thread, head = identity.thread_id, message.id or ""
    ids = [derive_request_id(thread, head, part.call_id) for part in fan_out.parts]
    ended = [parts[request_id] for request_id in ids if parts.get(request_id)]
    if len(ended) < len(ids):
        return None
    load = DelegationResponse.load
    responses = [load(entry["response"]) for entry in ended]
    attempts = [[load(one) for one in entry.get("attempts", ())] for entry in ended]
    places = [entry["place"] or len(ended) + 1 for entry in ended]
    request = DelegationRequest(
        id=derive_request_id(thread, head, fan_out.call_id),
        origin=identity.agent,
        current=identity.agent,
        task="",
        path=AgentPath(identity.agent),
    )
    answers: list[tuple[int, int, DelegationResponse]] = []
    for group in fan_out.tasks:
        members = [n for n, part in enumerate(fan_out.parts) if part.group == group]
        candidates = load_candidates(message, fan_out.parts[members[0]].call_id)
        # A request that names a subordinate has one response only.
        answer = responses[members[0]]
        if candidates:
            # For want of width some candidates were tried in sequence: they count like the others.
            every = [attempt for n in members for attempt in attempts[n] or [responses[n]]]
            answer = settle_responses(request, every, candidates.required, candidates.abilities)
        answers.append((min(places[n] for n in members), group, answer))
    # The winner of a race comes first; without a race the order of the requests stays.
    in_order = [answer for *_, answer in sorted(answers, key=lambda entry: entry[:2])]
    tool = next(call["name"] for call in message.tool_calls if call["id"] == fan_out.call_id)
    order = QueuedRequest(request, fan_out.call_id, thread, continues=False)
    joined = join_call_responses(request, fan_out.join, in_order, responses)
    whole = build_tool_message(order, joined, tool)
    if beside := message.response_metadata.get(SIDE_BY_SIDE_KEY):
        # An answer with the ids of the conversations of one subordinate, in call order.
        ids = [
            f'{response.path.parts[1]} answers="{build_question_id(response.thread_id)}"'
            for part, response in zip(fan_out.parts, responses, strict=True)
            if part.call_id in beside and response.thread_id and not response.awaits_answer
        ]
        if not ids:
            return whole
        line = f"To continue a conversation, in the order of the requests: {', '.join(ids)}"
        held = whole.response_metadata
        metadata = {**held, NOTICES_KEY: [*held.get(NOTICES_KEY, ()), line]}
        return whole.model_copy(update={"response_metadata": metadata})
    return whole


RELAY_CALL_ID = "forward"
RELAYED_RESPONSE_KEY = "passed"
"""Key of a level's response under which it relays a subordinate's response."""


def is_relay_message(message: BaseMessage) -> bool:
    """Return whether a level wrote a message to relay a request."""
    return bool(message.response_metadata and message.response_metadata.get(FORWARDED_KEY))


def build_relay_call(forward: RelayedRequest, identity: Identity) -> AIMessage:
    """Return the message with which a level calls the next agent on the route."""
    request, name, reset = forward.request, forward.next_agent, forward.reset
    args = {"message": request.task, "subordinate": name, "reset": reset}
    message = AIMessage(
        "",
        id=derive_message_id(identity.thread_id, f"forward/{identity.request_id}"),
        name=identity.agent,
        tool_calls=[ToolCall(name=CALL_SUBORDINATE, args=args, id=RELAY_CALL_ID, type="tool_call")],
    )
    [(call, _)] = iterate_requests(message, message.tool_calls)
    sent = build_request(call, None, message, identity.agent, identity.thread_id)
    note = request_diff(forward.build_next_request(sent.id).stored(), sent)
    metadata = {FORWARDED_KEY: True, REQUESTS_KEY: {RELAY_CALL_ID: note}}
    return message.model_copy(update={"response_metadata": metadata})


def build_addressed_call(messages: Sequence[BaseMessage], identity: Identity) -> AIMessage | None:
    """Return the message that passes a level's task on to the agent that a user has addressed.

    `None` if the task is for the agent itself, or has been passed on already.
    """
    if not messages or ADDRESSEE_KEY not in messages[-1].response_metadata:
        return None
    task, metadata = messages[-1], messages[-1].response_metadata
    name, *below = metadata[ADDRESSEE_KEY]
    args: dict[str, Any] = {"message": str(task.text), "subordinate": name}
    if context := metadata.get(REQUEST_CONTEXT_KEY):
        args["context"] = context
    # Providers refuse a conversation in which two calls have the same id.
    message_id = derive_message_id(identity.thread_id, f"addressed/{task.id}")
    return AIMessage(
        "",
        id=message_id,
        name=identity.agent,
        tool_calls=[ToolCall(name=CALL_SUBORDINATE, args=args, id=message_id, type="tool_call")],
        response_metadata={
            FORWARDED_KEY: True,
            **({REQUESTS_KEY: {message_id: {"addressee": below}}} if below else {}),
        },
    )


def build_relay_answer(
    messages: Sequence[BaseMessage], identity: Identity
) -> dict[str, Any] | None:
    """Return the update that ends a level which has relayed a request; `None` before its call."""
    if not any(is_relay_message(message) for message in messages if isinstance(message, AIMessage)):
        return None
    answer = next(message for message in reversed(messages) if isinstance(message, ToolMessage))
    response = DelegationResponse.load(answer.artifact)
    last = AIMessage(
        response.result or response.reason,
        id=derive_message_id(identity.thread_id, f"forwarded/{identity.request_id}"),
        name=identity.agent,
        response_metadata={FORWARDED_KEY: True},
    )
    relayed = {"status": str(response.status), RELAYED_RESPONSE_KEY: response.stored()}
    return {"messages": [last], "response": relayed}
