"""The mail of a root's thread, as it is stored.

Each receiver, named by its path, has a `Mailbox` with its counts, and each message a record of its
own. What was read is recorded for each checkpoint of the root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Transaction
from echelons.delegation.mail import MAX_UNREAD, MailKind
from echelons.errors import ControlError, QuestionClosed

Ranges = list[list[int]]
"""Numbers as ranges, each with its first and its last."""


@dataclass(frozen=True, slots=True)
class Mailbox:
    """The counts of one receiver."""

    sent: int = 0  # number of messages that it was sent
    read: Ranges = field(default_factory=list)  # those that it has read on any branch

    @property
    def unread(self) -> int:
        """The number of messages that no branch has read."""
        return self.sent - sum(last - first + 1 for first, last in self.read)


@dataclass(frozen=True, slots=True)
class StoredMail:
    """A message as it is stored."""

    sender: str  # path of the agent that sent it, or `USER`
    text: str
    at: str  # when it was sent, ISO 8601, UTC
    after: str = ""  # the checkpoint of the root after which it was sent; empty before the first
    kind: MailKind = "message"
    to: str = ""  # path of the agent that a copied or held message is for; else empty


@dataclass(frozen=True, slots=True)
class SentCounts:
    """How many messages an agent has sent in its latest turn with any."""

    turn: str = ""
    # The number of messages by the path of the receiver.
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaterQuestion:
    """A question to the user for whose answer nothing waits; an alert, too."""

    question: dict[str, Any]  # as JSON of an `AgentQuestion`
    path: str  # path of the asking agent
    agent_thread_id: str
    at: str  # when it was asked, ISO 8601, UTC
    after: str = ""  # the checkpoint of the root after which it was asked
    answered: bool = False
    reader: str = ""  # path of the agent that reads the answer, if it is another one; else empty


def _count_dropped(open_: Transaction, parts: tuple[str, ...]) -> None:
    """Count a deleted message as read: no branch will read it."""
    thread_id, path, number = parts
    _count_read(open_, thread_id, path, [int(number)])


MAILBOX: Final = Records[Mailbox]("mailbox", Mailbox)
"""The counts of a receiver of messages, by its path."""
MAIL: Final = Records[StoredMail]("mail", StoredMail, "value", drop=_count_dropped, omit=("to",))
"""A message to an agent, by the path of its receiver and its number."""
MAIL_READ: Final = Records[Ranges](
    "mail-read", Ranges, "key", merge=lambda one, other: add_numbers(one, iterate_numbers(other))
)
"""The numbers of the messages that an agent has read, by its path and a checkpoint of the root."""
MAIL_SENT: Final = Records[SentCounts]("mail-sent", SentCounts)
"""How many messages an agent has sent, by its path."""
STEERED: Final = Records[int]("steered", int)
"""The number of the latest intervention among the messages of a receiver, by its path."""
LATER: Final = Records[LaterQuestion]("later", LaterQuestion, "value")
"""A question for whose answer nothing waits, by its id."""


def check_room(open_: Transaction, thread_id: str, path: str, more: int = 1) -> None:
    """Check that an agent may be sent more messages.

    Raises:
        ControlError: It would have too many unread ones.
    """
    box = MAILBOX.get(open_, thread_id, path)
    if (box.unread if box else 0) + more > MAX_UNREAD:
        raise ControlError(
            "{path:short} has {limit} unread messages, and may have no more; it reads them before "
            "its next model call. Nothing was stored",
            code="mailbox_full",
            path=path,
            limit=MAX_UNREAD,
        )


def add_mail(open_: Transaction, thread_id: str, path: str, mail: StoredMail) -> int:
    """Add a message to the mailbox of an agent; return its number."""

    def count(box: Mailbox | None) -> Mailbox:
        return Mailbox(box.sent + 1, box.read) if box else Mailbox(1)

    number = MAILBOX.change(open_, count, thread_id, path).sent
    MAIL.add(open_, mail, thread_id, path, str(number))
    if mail.kind == "intervention":
        STEERED.put(open_, number, thread_id, path)
    return number


def answer_later_question(
    open_: Transaction, thread_id: str, question_id: str, mail: StoredMail
) -> None:
    """Close a question, and put its answer into the mailbox of the agent that reads it.

    Raises:
        QuestionClosed: It has been answered already.
        ControlError: The agent has too many unread messages.
    """
    question = LATER.get(open_, thread_id, question_id)
    if question is None or question.answered:
        raise QuestionClosed(question_id, [])
    if question.reader:
        # It has not asked.
        mail = replace(mail, kind="message")
    add_mail(open_, thread_id, question.reader or question.path, mail)
    LATER.put(open_, replace(question, answered=True), thread_id, question_id)


def mark_read(
    open_: Transaction, thread_id: str, path: str, after: str, numbers: Sequence[int]
) -> None:
    """Record that an agent has read messages after one checkpoint of its root."""
    MAIL_READ.change(open_, lambda old: add_numbers(old or [], numbers), thread_id, path, after)
    _count_read(open_, thread_id, path, numbers)


def add_numbers(ranges: Ranges, numbers: Iterable[int]) -> Ranges:
    """Return ranges with some numbers added.

    Examples:
        >>> add_numbers([[1, 3]], [4, 7, 6])
        [[1, 4], [6, 7]]
    """
    out: Ranges = []
    for first, last in sorted([*ranges, *([number, number] for number in numbers)]):
        if out and first <= out[-1][1] + 1:
            out[-1][1] = max(out[-1][1], last)
        else:
            out.append([first, last])
    return out


def iterate_numbers(ranges: Ranges) -> Iterable[int]:
    """Yield the numbers of ranges."""
    for first, last in ranges:
        yield from range(first, last + 1)


def _count_read(open_: Transaction, thread_id: str, path: str, numbers: Sequence[int]) -> None:
    """Count messages as read on some branch."""
    if box := MAILBOX.find(open_, thread_id, path):
        counted = Mailbox(box.value.sent, add_numbers(box.value.read, numbers))
        MAILBOX.store(open_, box, counted)
