"""`Mail`: messages to agents at work, idle or paused, where they are read, and who may send."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

from echelons.errors import invalid_value
from echelons.text.input_limits import measure_size, read_text, shorten_repr

if TYPE_CHECKING:
    from echelons.guards.gate import Gate


MailKind: TypeAlias = Literal[
    "message",
    "intervention",
    "copy",
    "held",
    "answer",
    "correction",
    "spawn",
    "alert",
    "stopped",
    "budget",
    "length",
    "repeated",
    "notice",
]
"""The kind of a piece of mail. An intervention also cuts off the reply that is under way; `"copy"`
shows a superior what one of its subordinates has sent another, `"held"` what was not delivered; an
`"answer"` is that to a question of the receiver, a `"correction"` says why an answer of its own
is not accepted. `"spawn"` gives the receiver a subordinate after the profile that it names. An
`"alert"` is that of a monitor of the receiver; `"stopped"` is one for which the agent that it is
about was stopped. `"budget"` tells the receiver what is left of its budget; `"length"` that its
reply was cut off at the length limit; `"repeated"` that it makes the same call again and again. A
`"notice"` is anything else that the library itself has to say."""
MAIL_BYTES = 64 * 1024
"""Maximum size of a message in bytes of UTF-8: a model reads it."""
MAX_UNREAD = 1000
"""Maximum number of unread messages of one receiver."""
MAX_SENT = 20
"""Maximum number of messages of one agent to another in a turn: two could write to each other for
ever."""
USER = "the user"
"""The sender of what people and code send; agents are named by their paths."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A message to an agent.

    Attributes:
        number: Its number among those that the receiver was sent, from 1.
        sender: Path of the agent that sent it; `USER` for people and code.
        text: Its content.
        at: When it was sent, ISO 8601, UTC.
        kind: Its kind.
        to: Path of the agent that a copied or held message is for, or that an alert is about; else
            empty.
    """

    number: int
    sender: str
    text: str
    at: str
    kind: MailKind = "message"
    to: str = ""

    def to_metadata(self) -> dict[str, Any]:
        """Return what is noted with the message in the receiver's thread."""
        noted = {"kind": self.kind, "from": self.sender, "number": self.number, "at": self.at}
        return {**noted, "to": self.to} if self.to else noted


@dataclass(frozen=True, slots=True)
class OutgoingMail:
    """A message that an agent sends.

    Attributes:
        path: Path of the agent whose mailbox it goes to.
        sender: Path of the agent that sends it.
        text: Its content.
        kind: Its kind.
        to: Path of the agent that a copied or held message is for; else empty.
    """

    path: str
    sender: str
    text: str
    kind: MailKind = "message"
    to: str = ""


def render_mail(sender: str, text: str, kind: MailKind = "message", to: str = "") -> str:
    r"""Return a message as text for a model: quoted, since it may hold anything.

    Examples:
        >>> render_mail("head/flights", 'Two seats are "left".')
        'Message from head/flights: "Two seats are \\"left\\"."'
    """
    if kind == "notice":
        return " ".join(text.split())
    quoted = json.dumps(text, ensure_ascii=False)
    return f"{_INTRODUCTIONS[kind].format(sender=sender, to=to)}: {quoted}"


_INTRODUCTIONS: Final[Mapping[MailKind, str]] = {
    "message": "Message from {sender}",
    "intervention": "Intervention by {sender}, which goes before what you were told so far",
    "copy": "Copy of a message from {sender} to {to}",
    "held": "Message from {sender} to {to}, held back; pass it on if it should be",
    "answer": "Answer of {sender}, after the question that you asked",
    "correction": "Your answer is not accepted by {sender}; give another. What is wrong",
    "alert": "Alert by your monitor {sender} about {to}; you decide what follows",
    "stopped": "Alert by your monitor {sender} about {to}, which was stopped for it",
    "budget": "Warning from {sender}; come to an end before it is used up",
    "length": "Your reply was cut off by {sender}",
    "repeated": "Warning from {sender}",
    "notice": "",
    "spawn": "A new subordinate from {sender}, {to}, made after",
}


def load_mail(rendered: str, metadata: Mapping[str, Any]) -> Mail:
    """Return a message from its text for a model, and what is noted with it.

    Examples:
        >>> sent = Mail(1, "head/flights", "Two seats are left.", "2026-11-23T07:00:00+00:00")
        >>> load_mail(render_mail(sent.sender, sent.text), sent.to_metadata()) == sent
        True
    """
    text = rendered
    if metadata["kind"] != "notice":
        text = json.JSONDecoder().raw_decode(rendered, rendered.index('"'))[0]
    return Mail(
        number=metadata["number"],
        sender=metadata["from"],
        text=text,
        at=metadata["at"],
        kind=metadata["kind"],
        to=metadata.get("to", ""),
    )


def check_mail_text(text: object) -> str:
    """Return the text of a message.

    Raises:
        InvalidInput: It is no text, or empty; it has more than `MAIL_BYTES`; it has a lone
            surrogate.
    """
    content = read_text(text)
    if not content or not content.strip():
        raise invalid_value("a message", shorten_repr(text), "it says nothing; give some words")
    measure_size(content, "a message", MAIL_BYTES)
    return content


LOG = logging.getLogger(__name__)

SiblingDecision: TypeAlias = Literal["copy", "hold", "refuse"]
"""What becomes of a message: delivered, with a copy for the superior's model; shown to the
superior's model alone; or refused."""


@dataclass(frozen=True, slots=True)
class SiblingMessage:
    """A message from one subordinate of an agent to another.

    Attributes:
        sender: Name of the one that sends it.
        receiver: Name of the one that it is for.
        text: Its content.
    """

    sender: str
    receiver: str
    text: str


SiblingRule: TypeAlias = SiblingDecision | Callable[[SiblingMessage], SiblingDecision]
"""A decision about all messages, or a function that decides about each."""


def decide_message(rule: SiblingRule, message: SiblingMessage) -> SiblingDecision:
    """Return the decision about a message; a function that fails holds it.

    Examples:
        >>> decide_message(lambda each: "refuse", SiblingMessage("a", "b", "Hello."))
        'refuse'
    """
    if not callable(rule):
        return rule
    try:
        decision: object = rule(message)
    except Exception as error:  # noqa: BLE001  it is the user's, and no reason to lose the message
        LOG.warning("the rule sibling_messages failed, so the message is held: %r", error)
        return "hold"
    if decision in get_args(SiblingDecision):
        return cast("SiblingDecision", decision)
    LOG.warning("the rule sibling_messages returned %r, so the message is held", decision)
    return "hold"


UNSTORED = "nothing of this run is stored, so no message can be delivered"


class Mailboxes:
    """The mailboxes of the agents of one run; the methods take the config of an agent's node.

    These are those of a run without a ledger that others could write to: always empty.
    """

    has_mail: bool = False
    """Whether any agent of the thread was ever sent a message; nothing else is called otherwise."""

    def begin_reply(self, config: Mapping[str, Any], cut: Callable[[Sequence[Any]], None]) -> None:
        """Let interventions cut off the reply that the agent begins, with its chunks so far."""

    def end_reply(self, config: Mapping[str, Any], *, has_failed: bool) -> None:
        """Note that the reply has ended; if it has failed, others may read its messages."""

    def read(self, config: Mapping[str, Any]) -> Sequence[Mail]:
        """Return the unread messages of the agent, oldest first."""
        return ()

    async def aread(self, config: Mapping[str, Any]) -> Sequence[Mail]:
        """Async version of `read`."""
        return ()

    def note_read(self, mail: Sequence[Mail], config: Mapping[str, Any]) -> None:
        """Let messages count as read once the writes of the node's task are stored."""

    async def anote_read(self, mail: Sequence[Mail], config: Mapping[str, Any]) -> None:
        """Async version of `note_read`."""

    def post(
        self, groups: Sequence[Sequence[OutgoingMail]], config: Mapping[str, Any]
    ) -> list[str]:
        """Send groups with the writes of the task; return why each is not sent, or ""."""
        return [UNSTORED if group else "" for group in groups]

    async def apost(
        self, groups: Sequence[Sequence[OutgoingMail]], config: Mapping[str, Any]
    ) -> list[str]:
        """Async version of `post`."""
        return self.post(groups, config)

    def keep_question(
        self, question: Mapping[str, Any], call_id: str, config: Mapping[str, Any]
    ) -> str:
        """Keep a question for the user, once for each call; return its id, or ""."""
        return ""


NO_MAILBOXES = Mailboxes()


def get_mailboxes(gate: Gate) -> Mailboxes:
    """Return the mailboxes of a run."""
    mailboxes: Mailboxes = gate.guards.get("mail", NO_MAILBOXES)
    return mailboxes
