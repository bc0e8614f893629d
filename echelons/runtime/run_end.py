"""The end of a run: its result, and what is stored before the lease of the thread is released."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from langgraph.types import Command

from echelons.checkpoints.coordination import turns
from echelons.checkpoints.coordination.turns import Turn
from echelons.checkpoints.ledger import Transaction, build_key
from echelons.checkpoints.queries import LedgerQuery, ReadPlan
from echelons.checkpoints.threads import answer_outbox
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.threads.thread_status import read_last_text, read_thread_status

CLOSED_EPOCH = 0
"""An epoch that no run has, stored while no run takes answers."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The result of a run.

    Attributes:
        text: The root's last message, if the turn is finished.
        questions: Questions that it waits for.
        finished: Whether the turn has ended.
        replayed: Whether nothing was run, as the turn had been submitted before.
        queued: Whether answers were left to the run that holds the thread.
    """

    text: str = ""
    questions: tuple[Question, ...] = ()
    finished: bool = False
    replayed: bool = False
    queued: bool = False


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The state of a run at the end of its stream.

    Attributes:
        text: The root's last message in it; `None` if there is none.
        delivered: The questions whose answers it has delivered.
        paused: Whether it was asked to stop.
        withdrawn: Questions of stopped agents that it has continued for.
    """

    text: str | None = None
    delivered: Collection[str] = ()
    paused: bool = False
    withdrawn: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Continue:
    """The next input of a run that does not end yet.

    Attributes:
        graph_input: The input of the graph.
        withdrawn: Questions of stopped agents that it continues for.
    """

    graph_input: Command[Any] | None = None
    withdrawn: Collection[str] = ()


def read_run_end(thread_id: str) -> ReadPlan[RunEnd]:
    """Return the result of the last run of a thread, read from its checkpoints."""
    standing = yield from read_thread_status(thread_id)
    text = (yield from read_last_text(standing)) if standing.finished else ""
    return RunEnd(text, standing.questions, standing.finished)


def settle_run(turn: Turn, progress: RunProgress) -> ReadPlan[RunEnd | Continue]:
    """End the run, or return its next input if answers have arrived meanwhile.

    The run also continues if an agent with a pending question was stopped meanwhile, as its
    superior can continue. This is one transaction, so that an answer either finds a run that
    will deliver it, or has to wait for the thread.

    Raises:
        LeaseLost: Another run holds the thread now.
        StorageError: Something of the turn was not stored.
    """
    turn.check_failures()
    standing = yield from read_thread_status(turn.thread_id)
    withdrawn = standing.pending_work.withdrawn - frozenset(progress.withdrawn)
    text = ""
    if standing.finished:
        text = (yield from read_last_text(standing)) if progress.text is None else progress.text

    def close_run(open_: Transaction) -> RunEnd | Continue:
        open_.require_lease(turn.fence)
        # A paused run may not have reached the tools that its answers are for: they stay due.
        delivered = () if progress.paused else progress.delivered
        due = answer_outbox.take_due_answers(
            open_, turn.thread_id, standing.question_ids, delivered
        )
        if (due or withdrawn) and not progress.paused:
            return Continue(Command(resume=due) if due else None, withdrawn)
        if standing.finished:
            turns.finish_turn(open_, turn.thread_id, turn.id, text)
        _store_open_epoch(open_, turn, CLOSED_EPOCH)
        return RunEnd(text, standing.questions, standing.finished)

    return (yield LedgerQuery(lambda ledger: ledger.commit(close_run)))  # type: ignore[no-any-return]


def open_for_answers(open_: Transaction, turn: Turn) -> None:
    """Let other processes leave answers to a run from now on.

    This comes after its own answers are stored: an answer that is left to a run which then ends
    at a conflict would never be delivered.

    Raises:
        LeaseLost: Another run holds the thread now.
    """
    open_.require_lease(turn.fence)
    _store_open_epoch(open_, turn, turn.fence.epoch)


def is_open_for_answers(open_: Transaction, thread_id: str) -> bool:
    """Return whether the run that holds a thread still takes answers."""
    mark, holder = open_.get(_open_key(thread_id)), open_.get_last_holder(build_key(thread_id))
    return mark is not None and holder is not None and mark.value == holder.epoch


def _store_open_epoch(open_: Transaction, turn: Turn, epoch: int) -> None:
    name = _open_key(turn.thread_id)
    found = open_.get(name)
    open_.compare_and_set(name, found.version if found else None, epoch)


def _open_key(thread_id: str) -> str:
    return build_key(thread_id, "open")
