"""Puts the mail of an agent into its thread: before a model call, or after a last reply. Pure.

A correction is mail, too: it tells a model that its answer is not of the agent's contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from echelons.delegation.contract import Contract
from echelons.delegation.spawned_agents import GIVEN
from echelons.errors import InvalidInput
from echelons.guards.gate import Halt
from echelons.identity.lineage import (
    MAIL_KEY,
    REFUSED_KEY,
    SPAWNED_KEY,
    Identity,
    derive_message_id,
)
from echelons.messaging.mail import BUDGET, CONTRACT, Mail, render_mail
from echelons.nodes.planning.cut_reply import build_cut_message, mark_cut
from echelons.nodes.planning.final_answer import is_paused, read_final_text
from echelons.nodes.planning.refused_calls import OUTPUT, mark_refused
from echelons.nodes.planning.segment_end import build_late_reply_update
from echelons.nodes.planning.spawn_plan import build_given_agent
from echelons.nodes.planning.tool_calls import ParsedReply, find_unanswered
from echelons.text.input_limits import shorten_repr
from echelons.tree.names import ASK, ASK_SUPERIOR, PATH_SEPARATOR, REPORT

_NOT_ASKED = "not asked: a message has come in meanwhile; read it below and ask again"
WITHDRAWN_END = {
    REPORT: "not reported: a message has come in meanwhile; read it below and report again",
    ASK: _NOT_ASKED,
    ASK_SUPERIOR: _NOT_ASKED,
}
"""The answers to reports and questions that were made before their agent had read a message."""


def build_mail_messages(mail: Sequence[Mail], identity: Identity) -> list[BaseMessage]:
    """Return mail as messages for the model."""
    return [_build_mail_message(each, identity) for each in mail]


def build_budget_warnings(
    warnings: Iterable[tuple[str, str]], identity: Identity
) -> list[BaseMessage]:
    """Return what an agent is told of its budget, each with an id, as messages for its model."""
    mail = Mail(0, BUDGET, "", "", "budget")
    return [
        HumanMessage(
            render_mail(BUDGET, text, "budget"),
            id=derive_message_id(identity.thread_id, f"budget/{identity.turn}/{place}"),
            response_metadata={MAIL_KEY: mail.to_metadata()},
        )
        for place, text in warnings
    ]


def _build_mail_message(mail: Mail, identity: Identity) -> BaseMessage:
    path = PATH_SEPARATOR.join(identity.path)
    own = derive_message_id(identity.thread_id, f"mail/{path}/{mail.number}")
    metadata: dict[str, Any] = {MAIL_KEY: mail.to_metadata()}
    to = mail.to
    if mail.kind == "spawn":
        spec = build_given_agent(mail.text, own, identity)
        to, metadata[SPAWNED_KEY] = spec.name, {GIVEN: {spec.name: spec.stored()}}
    text = render_mail(mail.sender, mail.text, mail.kind, to)
    return HumanMessage(text, id=own, response_metadata=metadata)


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
    answered = {each.tool_call_id for each in parsed.answers}
    why = "not run: your report was not accepted; make the call again if you need it"
    rest = [
        mark_refused(
            ToolMessage(why, tool_call_id=call["id"], name=call["name"], status="error"), OUTPUT
        )
        for call in reply.tool_calls
        if call["id"] not in answered
    ]
    return {"messages": [reply, *parsed.answers, *rest]}


def leave_out(known: Sequence[Mail], mail: Sequence[Mail]) -> list[Mail]:
    """Return mail without the messages that are known already."""
    numbers = {each.number for each in known}
    return [each for each in mail if each.number not in numbers]


def has_intervention(mail: Sequence[Mail]) -> bool:
    """Return whether mail has an intervention in it."""
    return any(each.kind == "intervention" for each in mail)


def settle_late_mail(
    update: dict[str, Any], late: Sequence[Mail], identity: Identity
) -> tuple[dict[str, Any], Sequence[Mail]]:
    """Return the update for a reply during which mail has come in, and the mail that it tells of.

    An intervention cuts the reply off, before any of its calls runs. Other mail gives one more
    model call where the reply would end the segment, and else waits for the next.
    """
    messages = update["messages"]
    reply, calls = find_unanswered(messages)
    # Nothing may stand between a paused reply and its continuation.
    ends = not (calls or is_paused(messages))
    ends = ends and bool(update.get("response") or messages[-1] is reply)
    # Whatever follows the reply leads back to the model.
    if not ends and reply and has_intervention(late):
        kept = messages[: messages.index(reply)]
        said = mark_cut(build_cut_message(reply))
        return {"messages": [*kept, said, *build_mail_messages(late, identity)]}, late
    if not ends or not late:
        return update, ()
    left = {key: each for key, each in update.items() if key != "response"}
    answered = map(_withdraw_end, messages)
    return {**left, "messages": [*answered, *build_mail_messages(late, identity)]}, late


def _withdraw_end(message: BaseMessage) -> BaseMessage:
    if isinstance(message, ToolMessage) and message.status != "error":
        withdrawn = WITHDRAWN_END.get(message.name or "")
        return message.model_copy(update={"content": withdrawn}) if withdrawn else message
    return message


def _build_correction(why: str, reply: AIMessage, identity: Identity) -> BaseMessage:
    """Return the message that tells a model why its answer is not of the agent's contract."""
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
