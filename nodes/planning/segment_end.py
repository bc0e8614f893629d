"""Ends a segment without a model call: every open call answered, and a final message or a report.

`reason` calls this when the gate halts it, when the results of tools are the answer, and when there
are questions to the superior or some that the user left open; `act` when the gate halts a call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import interrupt

from echelons.delegation.request import Status
from echelons.guards.gate import HALT_KEY, Halt, Pause
from echelons.identity.lineage import (
    NOTICES_KEY,
    RETURNED_KEY,
    UNANSWERED_KEY,
    Identity,
    derive_message_id,
)
from echelons.messaging.agent_question import AgentQuestion
from echelons.nodes.planning.final_answer import find_waiting_report, settle_report
from echelons.nodes.planning.tool_calls import find_unanswered


def build_halt_update(
    verdict: Halt | Pause, messages: Sequence[BaseMessage], identity: Identity
) -> dict[str, Any]:
    """Return the update that ends a halted segment.

    Raises:
        GraphInterrupt: The run is paused. Nothing ends; the node starts again after the pause.
    """
    while isinstance(verdict, Pause):
        interrupt(verdict.marker)
    _, calls = find_unanswered(messages)
    return _build_end_update(
        verdict, messages, [build_not_run_message(call, verdict) for call in calls], identity
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
    said = (str(message.text) for message in reversed(messages) if isinstance(message, AIMessage))
    result = next(filter(None, said), "") if halt.status == "partial" else ""
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
    found: list[AgentQuestion] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        if (asked := message.response_metadata.get(UNANSWERED_KEY)) is not None:
            found.insert(0, AgentQuestion.load(asked))
    return {"response": build_question_report(found)} if found else None
