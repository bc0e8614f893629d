"""The messages that a reply sends: to whom each goes, and what its sender is answered. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage, ToolMessage

from echelons.delegation.request import DelegationRequest
from echelons.identity.lineage import MAIL_KEY, Identity
from echelons.messaging.mail import USER, OutgoingMail
from echelons.messaging.sibling_messages import SiblingMessage, SiblingRule, decide_message
from echelons.nodes.planning.refused_calls import mark_refused
from echelons.tree.names import PATH_SEPARATOR, SEND_MESSAGE

SUPERIOR = "superior"
"""Whom a message names that is for the sender's superior, an agent or the user."""
SENT = "sent"
HELD = "your superior has it, and decides whether it is passed on"


@dataclass(frozen=True, slots=True)
class MessageCall:
    """A call that sends a message.

    Attributes:
        call_id: Id of the call.
        to: `SUPERIOR`, or the name of an agent beside the sender.
        text: What it says.
    """

    call_id: str
    to: str
    text: str


@dataclass(frozen=True, slots=True)
class RoutedMessage:
    """A message with its way.

    Attributes:
        call: The call that sends it.
        mail: What is delivered; nothing if it is refused, or is for the user.
        answer: What its sender is answered, if all of the mail can be delivered.
        is_refused: Whether the answer is a refusal.
    """

    call: MessageCall
    mail: Sequence[OutgoingMail]
    answer: str = SENT
    is_refused: bool = False

    def build_answer(self, error: str) -> ToolMessage:
        """Return the answer to the call, given why the mail cannot be delivered, if so."""
        failed = error or (self.answer if self.is_refused else "")
        answer = ToolMessage(
            f"Error: {failed}" if failed else self.answer,
            tool_call_id=self.call.call_id,
            name=SEND_MESSAGE,
            status="error" if failed else "success",
            # The user has no mailbox: the message is an event, and stays in the thread.
            artifact=None if failed or self.mail else {"to": USER, "text": self.call.text},
        )
        return mark_refused(answer) if failed else answer


def route_message(call: MessageCall, identity: Identity, rule: SiblingRule) -> RoutedMessage:
    """Return a message with its way.

    Args:
        call: The call that sends it.
        identity: Its sender.
        rule: That of the sender's superior about messages between its subordinates.
    """
    sender, above = PATH_SEPARATOR.join(identity.path), identity.path[:-1]
    if not identity.request_id:
        return RoutedMessage(call, ())
    superior = PATH_SEPARATOR.join(above)
    if call.to == SUPERIOR:
        return RoutedMessage(call, (OutgoingMail(superior, sender, call.text),))
    receiver = PATH_SEPARATOR.join((*above, call.to))
    decision = decide_message(rule, SiblingMessage(identity.agent, call.to, call.text))
    if decision == "refuse":
        why = f"your superior does not allow messages to {call.to}; tell your superior instead"
        return RoutedMessage(call, (), why, is_refused=True)
    if decision == "hold":
        held = OutgoingMail(superior, sender, call.text, "held", receiver)
        return RoutedMessage(call, (held,), HELD)
    copy = OutgoingMail(superior, sender, call.text, "copy", receiver)
    return RoutedMessage(call, (OutgoingMail(receiver, sender, call.text), copy))


def list_spawned_siblings(
    request: DelegationRequest | None, messages: Iterable[BaseMessage], identity: Identity
) -> frozenset[str]:
    """Return the names of the agents made at run time that an agent knows beside itself.

    Args:
        request: The request that it works on.
        messages: Its conversation: it can answer who has written to it.
        identity: The agent.
    """
    above = PATH_SEPARATOR.join((*identity.path[:-1], ""))
    noted = (each.response_metadata.get(MAIL_KEY) for each in messages)
    senders = (str(each.get("from", "")) for each in noted if each)
    beside = (each.removeprefix(above) for each in senders if each.startswith(above))
    told = request.siblings if request else ()
    return frozenset((*told, *(name for name in beside if PATH_SEPARATOR not in name)))


def build_answers(sent: Sequence[RoutedMessage], errors: Sequence[str]) -> list[ToolMessage]:
    """Return the answers to the calls, given why each cannot be delivered, if so."""
    return [each.build_answer(error) for each, error in zip(sent, errors, strict=True)]
