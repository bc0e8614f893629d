"""`DismissalGuard`: dismissed agents do not start work, and may dismiss no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from echelons.checkpoints.coordination.branches import get_root_checkpoint
from echelons.checkpoints.inherited_config import is_embedded
from echelons.checkpoints.ledger import Transaction
from echelons.checkpoints.thread_events import WriteLocation
from echelons.checkpoints.tree_control.dismissal_ledger import (
    DismissalLog,
    commit_dismissal,
    find_dismissal,
)
from echelons.features.feature import GateScope
from echelons.guards.dismissals import NO_DISMISSALS, Dismissal, Dismissals
from echelons.guards.gate import Halt, Step, StepGuard
from echelons.tree.names import PATH_SEPARATOR


class DismissalGuard(StepGuard):
    """The dismissals that one run sees."""

    name: ClassVar[str] = "dismissal"

    def __init__(self, run: GateScope) -> None:
        turn = run.turn
        self.dismissals: Dismissals = NO_DISMISSALS
        # Keys of dismissals that the branch does not see, as it began before them.
        self.hidden = turn.hidden_dismissals if turn else frozenset[str]()
        # A tree that a tool runs reports none.
        has_listener = turn and turn.answer_mark and not is_embedded(run.configurable)
        self._listener = turn.note_dismissals if turn and has_listener else None
        self._run = run
        self._log = DismissalLog(run.thread_id)

    def refresh(self, open_: Transaction) -> Callable[[], object] | None:
        """Read the dismissals that are new."""
        self.dismissals, new = self._log.refresh(open_, self.hidden)
        return partial(self._listener, new) if new and self._listener else None

    def find_order(self, path: str, step: Step | None) -> Halt | None:
        """Return the dismissal of an agent; one that may finish its request begins no other."""
        if self.dismissals is NO_DISMISSALS:
            return None
        dismissal = self.dismissals.find(path)
        if dismissal is None or (dismissal.graceful and step is not Step.SUBORDINATE):
            return None
        return Halt("dismissed", dismissal.why, finishes=dismissal.graceful)

    def read_order(self, open_: Transaction, path: str, *, is_fresh: bool) -> Halt | None:
        """Return the dismissal that an agent is under in an open transaction."""
        if is_fresh:
            dismissal = self.dismissals.find(path)
        else:
            dismissal = find_dismissal(open_, self._run.thread_id, path, self.hidden)
        return Halt("dismissed", dismissal.why) if dismissal and not dismissal.graceful else None

    def dismiss(self, name: str, config: Mapping[str, Any]) -> Sequence[str]:
        """Dismiss a subordinate of an agent, and all below it, for good.

        Return the tool calls of theirs that were under way, each in a few words.
        """
        run, superior = self._run, str(config["metadata"].get("agent_path", ""))
        path, after = (
            f"{superior}{PATH_SEPARATOR}{name}",
            get_root_checkpoint(config["configurable"]),
        )
        where = WriteLocation(run.thread_id, "", after, run.identity.thread_id, path)
        fence = run.turn.fence if run.turn else None
        # Not within the lock of the gate, which its listeners take.
        new = Dismissal(path, by=superior)
        done = commit_dismissal(run.ledger, where, new, self.hidden, fence)
        return [str(call) for call in done.cut_calls]
