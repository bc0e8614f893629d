"""`send_message`: its calls are answered when their reply is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import BaseMessage, ToolCall, ToolMessage
from pydantic import AfterValidator, BaseModel

from echelons.delegation.mail import (
    USER,
    OutgoingMail,
    SiblingMessage,
    SiblingRule,
    check_mail_text,
    decide_message,
)
from echelons.delegation.request import DelegationRequest
from echelons.errors import InvalidInput
from echelons.features.feature import BuiltIn
from echelons.identity.lineage import ASIDE_KEY, Identity, require_identity
from echelons.nodes.planning.call_arguments import mend_name, validate_arguments
from echelons.nodes.planning.repeated_calls import mark_refused
from echelons.prompts import fill_text, load_tool_texts
from echelons.run_context import get_context
from echelons.tree.names import PATH_SEPARATOR, SEND_MESSAGE

if TYPE_CHECKING:
    from echelons.nodes.planning.tool_calls import ReplyCalls


SUPERIOR = "superior"
"""Whom a message names that is for the sender's superior, an agent or the user."""
SENT = "sent"
HELD = "your superior has it, and decides whether it is passed on"


@dataclass(frozen=True, slots=True)
class RoutedMessage:
    """A message with its way.

    Attributes:
        call_id: Id of the call that sends it.
        text: Its content.
        mail: The messages to deliver; nothing if it is refused, or is for the user.
        answer: The answer to its sender, if all of the mail can be delivered.
        is_refused: Whether the answer is a refusal.
    """

    call_id: str
    text: str
    mail: Sequence[OutgoingMail]
    answer: str = SENT
    is_refused: bool = False

    def build_answer(self, error: str) -> ToolMessage:
        """Return the answer to the call, given why the mail cannot be delivered, if so."""
        failed = error or (self.answer if self.is_refused else "")
        answer = ToolMessage(
            f"Error: {failed}" if failed else self.answer,
            tool_call_id=self.call_id,
            name=SEND_MESSAGE,
            status="error" if failed else "success",
            # The user has no mailbox: the message is an event, and stays in the thread.
            artifact=None if failed or self.mail else {"to": USER, "text": self.text},
        )
        return mark_refused(answer) if failed else answer


def route_message(call: ToolCall, identity: Identity, rule: SiblingRule) -> RoutedMessage:
    """Return a message with its way.

    Args:
        call: The call that sends it.
        identity: The sender.
        rule: That of the sender's superior about messages between its subordinates.
    """
    wanted, call_id = SendMessageArgs.model_validate(call["args"]), call["id"] or ""
    to, text = wanted.to, wanted.message
    route = partial(RoutedMessage, call_id, text)
    sender, superiors = PATH_SEPARATOR.join(identity.path), identity.path[:-1]
    if not identity.request_id:
        return route(())
    superior = PATH_SEPARATOR.join(superiors)
    if to == SUPERIOR:
        return route((OutgoingMail(superior, sender, text),))
    receiver = PATH_SEPARATOR.join((*superiors, to))
    decision = decide_message(rule, SiblingMessage(identity.agent, to, text))
    if decision == "refuse":
        why = f"your superior does not allow messages to {to}; tell your superior instead"
        return route((), why, is_refused=True)
    if decision == "hold":
        return route((OutgoingMail(superior, sender, text, "held", receiver),), HELD)
    copy = OutgoingMail(superior, sender, text, "copy", receiver)
    return route((OutgoingMail(receiver, sender, text), copy))


def list_spawned_siblings(
    request: DelegationRequest | None, messages: Iterable[BaseMessage], identity: Identity
) -> frozenset[str]:
    """Return the names of the agents made at run time that an agent knows beside itself.

    Args:
        request: The request that it works on.
        messages: Its conversation: it can answer who has written to it.
        identity: The agent.
    """
    prefix = PATH_SEPARATOR.join((*identity.path[:-1], ""))
    noted = (message.response_metadata.get(ASIDE_KEY) for message in messages)
    senders = (str(mail.get("from", "")) for mail in noted if mail)
    beside = (sender.removeprefix(prefix) for sender in senders if sender.startswith(prefix))
    siblings = request.siblings if request else ()
    return frozenset((*siblings, *(name for name in beside if PATH_SEPARATOR not in name)))


def build_answers(sent: Sequence[RoutedMessage], errors: Sequence[str]) -> list[ToolMessage]:
    """Return the answers to the calls, given why each cannot be delivered, if so."""
    return [message.build_answer(error) for message, error in zip(sent, errors, strict=True)]


MAX_SHOWN_SIBLINGS = 32
"""Most names of agents beside it that an agent's model is shown."""


def _check_message(text: str) -> str:
    try:
        return check_mail_text(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from error


class SendMessageArgs(BaseModel):
    """Arguments of `send_message`."""

    to: str
    message: Annotated[str, AfterValidator(_check_message)]


class SendMessage(BuiltIn):
    """The tool that sends a message to the superior, or to an agent beside the sender.

    Args:
        siblings: Names of the agents with the same superior, the sender's own included.
        is_needed: Whether the model is shown the tool by default.
    """

    name, arguments = SEND_MESSAGE, SendMessageArgs
    is_executed = False

    def __init__(self, siblings: tuple[str, ...] = (), *, is_needed: bool = True) -> None:
        self._siblings = siblings
        self.is_needed = is_needed

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it."""
        properties = {"to": {"type": "string"}, "message": {"type": "string"}}
        schema = self._describe(properties, ["to", "message"])
        beside = ""
        if len(self._siblings) > 1:
            shown = ", ".join(self._siblings[:MAX_SHOWN_SIBLINGS])
            more = " and others" if len(self._siblings) > MAX_SHOWN_SIBLINGS else ""
            beside = fill_text(load_tool_texts(SEND_MESSAGE)["siblings"], names=f"{shown}{more}")
        to = schema["function"]["parameters"]["properties"]["to"]
        to["description"] = fill_text(to["description"], siblings=beside)
        return schema

    def mend_names(self, arguments: Mapping[str, Any], reply: ReplyCalls) -> dict[str, Any] | None:
        """Return the arguments with the name of the receiver that is meant."""
        names = (*self._siblings, SUPERIOR)
        return mend_name(arguments, "to", names, lambda: _list_spawned_siblings(reply))

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Take a message; return why it is refused, if it is."""
        wanted, tools = validate_arguments(SendMessageArgs, call["args"]), reply.tools
        if isinstance(wanted, str):
            return wanted
        others = [name for name in self._siblings if name != tools.name]
        if wanted.to not in (SUPERIOR, *others):
            beside = _list_spawned_siblings(reply)
            if wanted.to not in beside:
                shown = [*self._siblings, *sorted(beside)][:MAX_SHOWN_SIBLINGS]
                names = ", ".join((SUPERIOR, *(name for name in shown if name != tools.name)))
                return f"no agent beside you is called {wanted.to!r}; name one of: {names}"
        return ""


def _list_spawned_siblings(reply: ReplyCalls) -> frozenset[str]:
    """Return the names of the agents beside the sender that were made at run time."""
    config = reply.scope.config
    identity = require_identity(config)
    return list_spawned_siblings(get_context(config).request, reply.thread, identity)
