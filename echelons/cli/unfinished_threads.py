"""Root threads of a database with unfinished work, for the commands that continue them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from echelons.cli.database import find_root, list_roots, root_label
from echelons.errors import (
    NoQuestionPending,
    QuestionClosed,
    QuestionError,
    no_open_thread,
    thread_not_named,
)

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.pending_work import Question
    from echelons.checkpoints.threads.store import RootThread


class RootState(StrEnum):
    """Whether a root thread has work left."""

    FINISHED = "finished"
    ASKING = "asking"
    UNFINISHED = "unfinished"
    DAMAGED = "damaged"


OPEN_STATES = (RootState.ASKING, RootState.UNFINISHED)
"""States of a turn that has not ended, whose agents can be stopped or paused."""


@dataclass(frozen=True, slots=True)
class RootStatus:
    """A root thread, its state and its open questions; one that is running is unfinished, too.

    Of a damaged one, `root.damage` says what is wrong.
    """

    root: RootThread
    state: RootState
    questions: tuple[Question, ...]

    def select_questions(self, addressee: str) -> RootStatus:
        """Return the status with only the questions for one human."""
        chosen = tuple(each for each in self.questions if each.addressee == addressee)
        return replace(self, questions=chosen)


def _read_root_status(saver: SqliteCheckpointer, root: RootThread) -> RootStatus:
    from echelons.checkpoints.queries import OneCheckpoint, run_plan
    from echelons.checkpoints.threads.answer_outbox import read_open_questions
    from echelons.checkpoints.threads.pending_work import is_finished

    asked = tuple(run_plan(saver, read_open_questions(root.id)))
    # A turn may be finished with questions that nobody waits for.
    if run_plan(saver, is_finished(OneCheckpoint(root.id))):
        return RootStatus(root, RootState.FINISHED, asked)
    return RootStatus(root, RootState.ASKING if asked else RootState.UNFINISHED, asked)


def list_root_statuses(saver: SqliteCheckpointer, thread: str | None) -> list[RootStatus]:
    """Return the status of the named root thread, or of all, latest first.

    Raises:
        CheckpointTampered: The named one is damaged; in the list of all it is shown as damaged.
    """
    from echelons.checkpoints.threads.store import DAMAGE

    found: list[RootStatus] = []
    for root in list_roots(saver) if thread is None else [find_root(saver, thread)]:
        if root.damage and thread is None:
            found.append(RootStatus(root, RootState.DAMAGED, ()))
            continue
        try:
            found.append(_read_root_status(saver, root))
        except DAMAGE as error:
            if thread is not None:
                raise
            shown = replace(root, damage=str(error))
            found.append(RootStatus(shown, RootState.DAMAGED, ()))
    return found


def explain_closed_question(
    saver: SqliteCheckpointer, found: Iterable[RootStatus], question: str
) -> None:
    """Raise why a question takes no answer, if it was ever asked in one of some threads.

    Raises:
        QuestionClosed: It has been answered or withdrawn.
        ControlError: It was withdrawn, as the agent that has asked was dismissed.
    """
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.answer_outbox import check_answers

    for each in found:
        if not each.root.damage:
            try:
                run_plan(saver, check_answers(root_label(each.root), each.root.id, {question: ""}))
            except QuestionClosed:
                raise
            except NoQuestionPending:
                pass
            except QuestionError as error:
                # Another thread has asked it, or none.
                if error.code != "unknown_question":
                    raise


def find_unfinished_root(
    saver: SqliteCheckpointer, thread: str | None, states: Collection[RootState]
) -> RootThread:
    """Return the named root thread, else the only one in one of the states.

    Raises:
        ThreadError: No name is given, and no thread is in such a state; no name is given, and
            several are.
    """
    if thread is not None:
        return find_root(saver, thread)
    left = [each.root for each in list_root_statuses(saver, None) if each.state in states]
    if not left:
        raise no_open_thread(saver.path, "is unfinished")
    if len(left) > 1:
        raise thread_not_named([root_label(root) for root in left])
    return left[0]
