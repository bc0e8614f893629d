"""Corrects answers that are not of their agent's contract: another try, or the end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.delegation.contract import Contract
from echelons.errors import InvalidInput
from echelons.guards.gate import Halt
from echelons.identity.lineage import MAIL_KEY, REFUSED_KEY, Identity, derive_message_id
from echelons.messaging.mail import CONTRACT, Mail, render_mail
from echelons.nodes.planning.final_answer import read_final_text
from echelons.nodes.planning.refused_calls import OUTPUT, mark_refused
from echelons.nodes.planning.segment_end import build_late_reply_update
from echelons.nodes.planning.tool_calls import ParsedReply
from echelons.text.input_limits import shorten_repr


def build_correction_update(
    contract: Contract,
    reply: AIMessage,
    parsed: ParsedReply,
    before: Sequence[BaseMessage],
    identity: Identity,
) -> dict[str, Any] | None:
    """Return the update for an answer that is not of the contract: another try, or the end.

    `None` for any other reply. An answer is a reply without calls, or the result of a report.

    Args:
        contract: The agent's, with an output.
        reply: The reply.
        parsed: Its calls.
        before: The messages of the segment before it.
        identity: The agent.
    """
    fault, is_text = parsed.output_fault, not (reply.tool_calls or reply.invalid_tool_calls)
    if is_text:
        try:
            contract.read_output(read_final_text([*before, reply]))
        except InvalidInput as error:
            fault = str(error)
    if not fault:
        return None
    assert contract.output is not None  # noqa: S101  it has a fault
    count = _count_corrections(before) + 1
    if count >= contract.attempts:
        why = (
            f"its answer was not of the type {contract.output.__name__} {count} times, as often as "
            f"its contract allows; the last fault was: {shorten_repr(fault)}"
        )
        return build_late_reply_update(Halt("refused", why), before, reply, identity)
    if is_text:
        return {"messages": [reply, _build_correction(fault, reply, identity)]}
    # No other call of the message runs: it was to be the end.
    answered = {answer.tool_call_id for answer in parsed.answers}
    why = "not run: your report was not accepted; make the call again if you need it"
    rest = [
        mark_refused(
            ToolMessage(why, tool_call_id=call["id"], name=call["name"], status="error"), OUTPUT
        )
        for call in reply.tool_calls
        if call["id"] not in answered
    ]
    return {"messages": [reply, *parsed.answers, *rest]}


def _build_correction(why: str, reply: AIMessage, identity: Identity) -> BaseMessage:
    """Return the message to a model on why its answer breaks the agent's contract."""
    mail = Mail(0, CONTRACT, why, "", "correction")
    return HumanMessage(
        render_mail(CONTRACT, why, "correction"),
        id=derive_message_id(identity.thread_id, f"correction/{reply.id}"),
        response_metadata={MAIL_KEY: mail.to_metadata()},
    )


def _count_corrections(messages: Sequence[BaseMessage]) -> int:
    """Return how many answers of the last messages were not of the agent's contract.

    It counts back to the task, over other mail and over the calls made in between.
    """
    count = 0
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            mail = message.response_metadata.get(MAIL_KEY)
            if mail is None:
                break
            count += mail.get("kind") == "correction"
        count += message.response_metadata.get(REFUSED_KEY) == OUTPUT
    return count
