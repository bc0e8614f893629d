"""`AnswerMark`: the mark of a run that answers may be left to it, and whether any were left.

A run that holds a thread delivers the answers that others leave to it. It can do so only when the
tree is idle, as LangGraph resumes an interrupted task only in a new invocation. So the gate of the
run holds the next step of each agent once an answer has been left, and the run becomes idle soon.
"""

from __future__ import annotations

from typing import Final

from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Fence, Transaction, build_key
from echelons.guards.gate import HeldAttempts

OPEN_EPOCH: Final = Records[int]("open", int)
"""The epoch of the run that answers may be left to."""
CLOSED_EPOCH = 0
"""An epoch that no run has, stored while no run takes answers."""


class AnswerMark:
    """The mark of one run; each answer that is left to the run gives it a new version."""

    def __init__(self, thread_id: str, fence: Fence) -> None:
        # Whether a step was held since answers were last taken.
        self.has_held = False
        self.held_attempts = HeldAttempts()
        self._thread_id = thread_id
        self._fence = fence
        self._version: int | None = None

    def open(self, open_: Transaction) -> None:
        """Let others leave answers to the run from now on.

        This comes after its own answers are stored: an answer that is left to a run which then ends
        at a conflict would never be delivered.

        Raises:
            LeaseLost: Another run holds the thread now.
        """
        open_.require_lease(self._fence)
        self._version = OPEN_EPOCH.put(open_, self._fence.epoch, self._thread_id)

    def close(self, open_: Transaction) -> None:
        """Let others leave no more answers to the run."""
        OPEN_EPOCH.put(open_, CLOSED_EPOCH, self._thread_id)

    def take(self, open_: Transaction) -> None:
        """Note that the answers left so far are taken, in the transaction that reads them."""
        mark = OPEN_EPOCH.find(open_, self._thread_id)
        self._version = mark.version if mark else None
        self.has_held = False

    def is_left_behind(self, open_: Transaction) -> bool:
        """Return whether answers wait that the run has not taken."""
        mark = OPEN_EPOCH.find(open_, self._thread_id)
        return mark is not None and mark.version != self._version


def mark_answers_left(open_: Transaction, thread_id: str) -> bool:
    """Announce answers to the run that holds a thread, in their transaction; return if it can."""
    epoch, holder = OPEN_EPOCH.get(open_, thread_id), open_.get_last_holder(build_key(thread_id))
    if holder is None or epoch != holder.epoch:
        return False
    # Its version grows; the value stays as earlier versions read it.
    OPEN_EPOCH.put(open_, holder.epoch, thread_id)
    return True
