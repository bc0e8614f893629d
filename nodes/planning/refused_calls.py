"""Marks refused calls, and ends an agent that makes the same refused call again and again. Pure.

A refused call is answered without anything being run for it: it is invalid, was cut off, or
delegates what may not be delegated. The refusals are counted in the stored conversation, so
that a resume or a crash does not reset the count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage

from echelons.guards.gate import Halt
from echelons.identity.lineage import NOTICES_KEY, REFUSED_KEY
from echelons.text.input_limits import shorten_repr

RefusedCall: TypeAlias = tuple[str | None, Any]
"""The name and the arguments of a refused call."""

MAX_REASON = 300
"""Characters of the last refusal in the reason with which an agent ends."""
CUT_OFF = "cut_off"
"""The mark of a call that was cut off: how much of its arguments is left differs each time."""
OUTPUT = "output"
"""The mark of a report whose result is not of the agent's contract."""
REFUSED = "refused"
"""The mark of every other refused call."""


def mark_refused(
    answer: ToolMessage, mark: str = REFUSED, *, is_notice: bool = True
) -> ToolMessage:
    """Return the answer to a call, marked as a refusal, and as a notice if all of it is one."""
    metadata = {**answer.response_metadata, REFUSED_KEY: mark}
    if is_notice:
        metadata.setdefault(NOTICES_KEY, True)
    return answer.model_copy(update={"response_metadata": metadata})


def build_error_update(call: ToolCall, why: str) -> dict[str, Any]:
    """Return the update that answers a call of a built-in tool with an error."""
    answer = ToolMessage(
        f"Error: {why}", tool_call_id=call["id"] or "", name=call["name"], status="error"
    )
    return {"messages": [mark_refused(answer)]}


def find_refusal_halt(messages: Sequence[BaseMessage], limit: int | None) -> Halt | None:
    """Return the order that ends an agent whose call was refused too often in a row.

    Only replies are counted whose calls were all refused, from the last one back to a call that
    was run, or to the task. `limit` is the number of refusals; `None` for no limit.
    """
    replies = list(_iter_refused_replies(messages))
    if limit is None or len(replies) < limit:
        return None
    for call, why in replies[0]:
        count = sum(any(call == other for other, _ in reply) for reply in replies)
        if count >= limit:
            return Halt(
                "refused",
                f"the same call of {shorten_repr(call[0])} was refused {count} times in a row, "
                f"as often as max_refusals allows; the last answer was: {why}",
            )
    return None


def _iter_refused_replies(
    messages: Sequence[BaseMessage],
) -> Iterator[list[tuple[RefusedCall, str]]]:
    """Yield the calls of each reply, latest first, and their answers, while all were refused."""
    answers: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answers[message.tool_call_id] = message
            continue
        if not isinstance(message, AIMessage):
            return
        reply: list[tuple[RefusedCall, str]] = []
        calls: list[Mapping[str, Any]] = [*message.tool_calls, *message.invalid_tool_calls]
        for call in calls:
            answer = answers.get(call["id"])
            mark = answer and answer.response_metadata.get(REFUSED_KEY)
            if not (answer and mark):
                return
            args = None if mark == CUT_OFF else call["args"]
            why = " ".join(answer.text.split())
            reply.append(((call["name"], args), why[:MAX_REASON]))
        if not reply:
            return
        yield reply
        answers = {}
