"""Puts the mail of an agent into its thread: before a model call, or after a last reply. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from echelons.delegation.spawned_agents import GIVEN
from echelons.features.mail.cut import build_cut_message, mark_cut
from echelons.identity.lineage import (
    MAIL_KEY,
    SPAWNED_KEY,
    Identity,
    derive_message_id,
)
from echelons.messaging.mail import Mail, render_mail
from echelons.nodes.planning.final_answer import WITHDRAWN_REPORT, is_paused
from echelons.nodes.planning.spawn_plan import build_given_agent
from echelons.nodes.planning.tool_calls import find_unanswered
from echelons.tree.names import ASK, ASK_SUPERIOR, PATH_SEPARATOR, REPORT

_NOT_ASKED = "not asked: a message has come in meanwhile; read it below and ask again"
_WITHDRAWN = {REPORT: WITHDRAWN_REPORT, ASK: _NOT_ASKED, ASK_SUPERIOR: _NOT_ASKED}
"""The answers to reports and questions that were made before their agent had read a message."""


def build_mail_messages(mail: Sequence[Mail], identity: Identity) -> list[BaseMessage]:
    """Return mail as messages for the model."""
    return [_build_mail_message(each, identity) for each in mail]


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
        withdrawn = _WITHDRAWN.get(message.name or "")
        return message.model_copy(update={"content": withdrawn}) if withdrawn else message
    return message
