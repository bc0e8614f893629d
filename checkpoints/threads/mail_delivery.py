"""A plan that sends an agent a message from outside of its tree's run.

Used by sessions and the command line; any process with the saver and the thread's id can run it.
"""

from __future__ import annotations

from collections.abc import Collection

from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.coordination.change_signals import get_signals
from echelons.checkpoints.coordination.control_orders import read_orders
from echelons.checkpoints.coordination.mailbox import StoredMail, add_mail, check_room
from echelons.checkpoints.ledger import Ledger, Transaction
from echelons.checkpoints.queries import AllCheckpoints, LedgerQuery, OneCheckpoint, ReadPlan
from echelons.checkpoints.threads.pending_work import has_work_left
from echelons.checkpoints.tree_control.dismissal_ledger import read_dismissals
from echelons.errors import ThreadNotFound, UnknownPath, message_refused
from echelons.guards.gate import Halt
from echelons.identity.lineage import Identity
from echelons.messaging.mail import USER, MailKind, check_mail_text
from echelons.tree.names import RUN

NO_MODEL = "it is no Agent, and has no model that could read it"


def post_mail(
    thread_id: str,
    path: str,
    text: str,
    known: Collection[str] = (),
    kind: MailKind = "message",
) -> ReadPlan[str]:
    """Send an agent a message, whether it is at work or not; return its path.

    Args:
        thread_id: The root's thread.
        path: Path of the agent.
        text: The message.
        known: Paths of the tree. An agent that has ever begun may be named, too.
        kind: Its kind.

    Raises:
        InvalidInput: The text is refused.
        ThreadNotFound: The thread has never run, and nothing is known of its tree.
        UnknownPath: There is no such agent.
        ControlError: It was stopped in this turn, or is no agent; it was dismissed; it has too many
            unread messages.
    """
    text = check_mail_text(text)
    saved: CheckpointTuple | None = yield OneCheckpoint(thread_id)
    identity = Identity.from_metadata(saved.metadata) if saved else None
    if path not in known:
        if identity is None and not known:
            raise ThreadNotFound(thread_id)
        begun: list[CheckpointTuple] = yield AllCheckpoints(thread_id, {"agent_path": path})
        if not begun:
            every: list[CheckpointTuple] = yield AllCheckpoints(thread_id)
            paths = {str(row.metadata.get("agent_path", "")) for row in every} - {""}
            raise UnknownPath(path, sorted(paths.union(known)))
        if any(RUN in row.checkpoint["versions_seen"] for row in begun):
            raise message_refused(path, NO_MODEL)
    if dismissal := (yield from read_dismissals(thread_id)).find(path):
        raise dismissal.build_error(path)
    after = str(saved.config["configurable"]["checkpoint_id"]) if saved else ""
    running = identity if saved and has_work_left(saved) else None

    def add(open_: Transaction, at: str) -> None:
        if running:
            orders = read_orders(open_, thread_id, running.turn)
            order = orders.find_order(path)
            if isinstance(order, Halt):
                raise message_refused(path, f"{order.why}; send it in the next turn")
        check_room(open_, thread_id, path)
        add_mail(open_, thread_id, path, StoredMail(USER, text, at, after, kind))

    def add_and_signal(ledger: Ledger) -> None:
        at = ledger.get_time().isoformat()
        ledger.commit(lambda open_: add(open_, at))
        get_signals(ledger).notify()

    yield LedgerQuery(add_and_signal)
    return path
