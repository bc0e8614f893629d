"""The end of a run: its result, and what is stored before the lease of the thread is released."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from langgraph.types import Command

from echelons.checkpoints.coordination import turns
from echelons.checkpoints.coordination.turns import Turn
from echelons.checkpoints.ledger import Transaction, key
from echelons.checkpoints.queries import InLedger, Plan
from echelons.checkpoints.threads import answer_outbox
from echelons.checkpoints.threads.pending_work import Question
from echelons.checkpoints.threads.thread_status import last_words, standing_of

SHUT = 0
"""An epoch that no run has, stored while no run takes answers."""


@dataclass(frozen=True, slots=True)
class Ending:
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
class Progress:
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
class GoOn:
    """The next input of a run that does not end yet.

    Attributes:
        given: The input of the graph.
        withdrawn: Questions of stopped agents that it continues for.
    """

    given: Command[Any] | None = None
    withdrawn: Collection[str] = ()


def ending_of(thread_id: str) -> Plan[Ending]:
    """Return the result of the last run of a thread, read from its checkpoints."""
    standing = yield from standing_of(thread_id)
    text = (yield from last_words(standing)) if standing.finished else ""
    return Ending(text, standing.questions, standing.finished)


def settled(turn: Turn, progress: Progress) -> Plan[Ending | GoOn]:
    """End the run, or return its next input if answers have arrived meanwhile.

    The run also continues if an agent with a pending question was stopped meanwhile, as its
    superior can continue. This is one transaction, so that an answer either finds a run that
    will deliver it, or has to wait for the thread.

    Raises:
        LeaseLost: Another run holds the thread now.
        StorageError: Something of the turn was not stored.
    """
    turn.check()
    standing = yield from standing_of(turn.thread_id)
    withdrawn = standing.waiting.withdrawn - frozenset(progress.withdrawn)
    text = ""
    if standing.finished:
        text = (yield from last_words(standing)) if progress.text is None else progress.text

    def close(open_: Transaction) -> Ending | GoOn:
        open_.require(turn.fence)
        # A paused run may not have reached the tools that its answers are for: they stay due.
        delivered = () if progress.paused else progress.delivered
        due = answer_outbox.due(open_, turn.thread_id, standing.pending, delivered)
        if (due or withdrawn) and not progress.paused:
            return GoOn(Command(resume=due) if due else None, withdrawn)
        if standing.finished:
            turns.finish(open_, turn.thread_id, turn.id, text)
        _mark(open_, turn, SHUT)
        return Ending(text, standing.questions, standing.finished)

    return (yield InLedger(lambda ledger: ledger.commit(close)))  # type: ignore[no-any-return]


def take_answers(open_: Transaction, turn: Turn) -> None:
    """Let other processes leave answers to a run from now on.

    This comes after its own answers are stored: an answer that is left to a run which then ends
    at a conflict would never be delivered.

    Raises:
        LeaseLost: Another run holds the thread now.
    """
    open_.require(turn.fence)
    _mark(open_, turn, turn.fence.epoch)


def is_open(open_: Transaction, thread_id: str) -> bool:
    """Return whether the run that holds a thread still takes answers."""
    mark, holder = open_.get(_key(thread_id)), open_.last_holder(key(thread_id))
    return mark is not None and holder is not None and mark.value == holder.epoch


def _mark(open_: Transaction, turn: Turn, epoch: int) -> None:
    name = _key(turn.thread_id)
    found = open_.get(name)
    open_.compare_and_set(name, found.version if found else None, epoch)


def _key(thread_id: str) -> str:
    return key(thread_id, "open")
