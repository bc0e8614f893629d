"""The answer of an agent: its report, or its last reply, by one rule for all. Pure.

docs/delegation.md has the rule as a table. An agent that is a function, a Runnable or a graph has
one reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.delegation.request import Status
from echelons.guards.gate import HALT_KEY
from echelons.identity.lineage import (
    ASIDE_KEY,
    CONTINUED_KEY,
    END_KEY,
    REFUSED_KEY,
    REPORT_KEY,
    RETURNED_KEY,
    Identity,
    derive_message_id,
)
from echelons.models.notices import build_aside
from echelons.models.replies import MAX_PAUSES, ReplyEnd, read_reply_end
from echelons.nodes.planning.repeated_calls import mark_refused
from echelons.tree.names import REPORT

WITHDRAWN_REPORT = "not reported: a message has come in meanwhile; read it below and report again"
"""The answer to a report that was made before its agent had read a message."""
EMPTY_ANSWER_REASON = "empty: it has answered nothing"
_EMPTY_END_REASON = "empty: its last reply has no text; this is what it said before"
_GO_ON = (
    "Go on from where it stopped, as briefly as you can: both parts together are your answer. If "
    "you are cut off once more, your answer counts as partial."
)


def read_final_answer(
    reported: Mapping[str, Any], messages: Sequence[BaseMessage]
) -> Mapping[str, Any]:
    """Return the answer of an agent as a report, with its status, and its end under `"end"`.

    Args:
        reported: The report of the segment; empty without one.
        messages: The messages of the request, its task first.
    """
    if reported:
        return _complete_report(reported, messages)
    last = messages[-1] if messages else None
    if not isinstance(last, AIMessage):
        return _EMPTY
    end, text = read_reply_end(last), read_final_text(messages)
    if end.kind in ("complete", "empty") and END_KEY in last.response_metadata:
        # Of what a function or a graph has returned, the kind alone is kept.
        end = ReplyEnd(last.response_metadata[END_KEY])
    if end.kind == "refused":
        return {"status": Status.UNABLE, "reason": end.reason, END_KEY: end.kind}
    if end.kind in ("filtered", "length", "paused"):
        text = text if text.strip() else _find_last_text(messages)
        is_partial = text.strip() or end.kind == "filtered"
        status = Status.PARTIAL if is_partial else Status.UNABLE
        return {"status": status, "result": text, "reason": end.reason, END_KEY: end.kind}
    if end.kind == "complete":
        return {"status": Status.FULFILLED, "result": text}
    return _use_last_text(messages, end.why, text)


def _complete_report(
    reported: Mapping[str, Any], messages: Sequence[BaseMessage]
) -> Mapping[str, Any]:
    """Return a report, with the text beside it where it has no result."""
    has_end = HALT_KEY in reported or reported["status"] != Status.FULFILLED
    if has_end or str(reported.get("result", "")).strip():
        return reported
    return _use_last_text(messages)


def _use_last_text(
    messages: Sequence[BaseMessage], why: str = "", text: str = ""
) -> Mapping[str, Any]:
    """Return the answer of an agent whose end has no text.

    `why` is its provider's word for it, `text` that of the parts that the end has continued.
    """
    text = text if text.strip() else _find_last_text(messages)
    report = {**_EMPTY}
    if text:
        report |= {"status": Status.PARTIAL, "result": text, "reason": _EMPTY_END_REASON}
    return {**report, "reason": f"{report['reason']} ({why})"} if why else report


_EMPTY: Mapping[str, Any] = {
    "status": Status.UNABLE,
    "reason": EMPTY_ANSWER_REASON,
    END_KEY: "empty",
}


def read_final_text(messages: Sequence[BaseMessage]) -> str:
    """Return the text of the last reply, with the parts before it that it went on from."""
    last = messages[-1] if messages else None
    if not isinstance(last, AIMessage):
        return ""
    parts = [str(last.text)]
    for message in reversed(messages[:-1]):
        if isinstance(message, AIMessage) and CONTINUED_KEY in message.response_metadata:
            parts.insert(0, str(message.text))
        elif not (isinstance(message, HumanMessage) and ASIDE_KEY in message.response_metadata):
            break
    return _join_parts([part for part in parts if part.strip()]) if parts[1:] else parts[0]


def _join_parts(parts: Sequence[str]) -> str:
    text = ""
    for part in parts:
        # A part may end within a sentence, whose next word may come without a space.
        glues = text[-1:].isalnum() and part[:1].isalnum()
        text = f"{text} {part}" if glues else f"{text}{part}"
    return text


def _find_last_text(messages: Sequence[BaseMessage]) -> str:
    """Return the last text of an agent since its task; empty without one."""
    for message in reversed(messages):
        if isinstance(message, AIMessage) and str(message.text).strip():
            return str(message.text)
        if isinstance(message, HumanMessage) and ASIDE_KEY not in message.response_metadata:
            break
    return ""


def build_continued_update(
    reply: AIMessage, before: Sequence[BaseMessage], identity: Identity
) -> dict[str, Any] | None:
    """Return the update after which a model goes on with its reply; `None` for a reply that ends.

    A paused reply is sent back as it is, and one that was cut at the length limit is gone on with
    once in a request. The replies are counted in the stored conversation.

    Args:
        reply: The reply, without calls.
        before: The messages of the segment before it.
        identity: The agent.
    """
    kind = reply.response_metadata.get(END_KEY)
    if kind not in ("paused", "length"):
        return None
    count = sum(
        message.response_metadata.get(END_KEY) == kind
        for message in _iterate_request(before)
        if CONTINUED_KEY in message.response_metadata
    )
    if count >= (MAX_PAUSES if kind == "paused" else 1):
        return None
    metadata = {**reply.response_metadata, CONTINUED_KEY: True}
    continued = reply.model_copy(update={"response_metadata": metadata})
    if kind == "paused":
        return {"messages": [continued]}
    place = derive_message_id(identity.thread_id, f"length/{reply.id}")
    return {"messages": [continued, build_aside("length", _GO_ON, place)]}


def _iterate_request(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages since the task."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, HumanMessage) and ASIDE_KEY not in message.response_metadata:
            return [*messages[place + 1 :]]
    return [*messages]


def build_refused_update(
    reply: AIMessage, answers: Sequence[ToolMessage], identity: Identity
) -> dict[str, Any] | None:
    """Return the update that ends a segment with a refusal that has calls, which are not run.

    `None` for any other reply: one without calls is the end itself.
    """
    if reply.response_metadata.get(END_KEY) != "refused":
        return None
    last = AIMessage(
        str(reply.text),
        id=derive_message_id(identity.thread_id, f"refused/{reply.id}"),
        name=identity.agent,
        additional_kwargs={"refusal": read_reply_end(reply).why},
        response_metadata={RETURNED_KEY: True, END_KEY: "refused"},
    )
    return {"messages": [reply, *answers, last]}


def is_paused(messages: Sequence[BaseMessage]) -> bool:
    """Return whether the last message is a reply that is to be continued, as it is."""
    metadata = messages[-1].response_metadata if messages else {}
    return metadata.get(END_KEY) == "paused" and CONTINUED_KEY in metadata


def find_waiting_report(messages: Sequence[BaseMessage]) -> ToolMessage | None:
    """Return the answer to a report that waits for the other calls of its message, if one does."""
    for message in reversed(messages):
        # A tool may have added other messages beside its result.
        if isinstance(message, AIMessage):
            return None
        if isinstance(message, ToolMessage) and REPORT_KEY in message.response_metadata:
            return message
    return None


def settle_report(
    waiting: ToolMessage, messages: Sequence[BaseMessage]
) -> tuple[dict[str, Any], ToolMessage | None]:
    """Return the update of a report whose other calls have ended, or the answer that refuses it.

    Args:
        waiting: The answer to the report.
        messages: The messages of the segment; the last ones are the results of the calls.
    """
    failed: list[str] = []
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            break
        if not isinstance(message, ToolMessage):
            continue
        if message.status == "error" or REFUSED_KEY in message.response_metadata:
            failed.insert(0, message.name or "a tool")
    if not failed:
        return {"response": dict(waiting.response_metadata[REPORT_KEY])}, None
    names = ", ".join(dict.fromkeys(failed))
    return {}, refuse_report(
        waiting,
        f"not reported: {names}, which you called beside it, did not succeed. Read the result, "
        "then report what has come of your task",
    )


def refuse_report(waiting: ToolMessage, why: str) -> ToolMessage:
    """Return the answer to a waiting report that is not taken."""
    metadata = {key: value for key, value in waiting.response_metadata.items() if key != REPORT_KEY}
    update = {"content": f"Error: {why}", "status": "error", "response_metadata": metadata}
    return mark_refused(waiting.model_copy(update=update))


def build_report_answer(call_id: str, report: Mapping[str, Any] | None = None) -> ToolMessage:
    """Return the answer to a report; one that waits for other calls keeps the report."""
    answer = ToolMessage("reported", tool_call_id=call_id, name=REPORT)
    if report is not None:
        answer.response_metadata = {REPORT_KEY: dict(report)}
    return answer
