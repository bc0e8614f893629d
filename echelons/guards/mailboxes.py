"""`Mailboxes`: where the agents of a run read their mail; `checkpoints` has those of a ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from echelons.guards.gate import Gate
    from echelons.messaging.mail import Mail, OutgoingMail

UNSTORED = "nothing of this run is stored, so no message can be delivered"


class Mailboxes:
    """The mailboxes of the agents of one run; the methods take the config of an agent's node.

    These are those of a run without a ledger that others could write to: always empty.
    """

    has_mail: bool = False
    """Whether any agent of the thread was ever sent a message; nothing else is called otherwise."""
    interventions: Mapping[str, int] = {}
    """The number of the latest intervention of each agent that had one, by path."""

    def begin_reply(self, config: Mapping[str, Any], cut: Callable[[Sequence[Any]], None]) -> None:
        """Let interventions cut off the reply that the agent begins, with its chunks so far."""

    def take_cut(self, namespace: str, path: str) -> Callable[[Sequence[Any]], None] | None:
        """Return what cuts off a reply of an agent, if an intervention has come since it began."""
        return None

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
