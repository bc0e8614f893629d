"""Root threads of a database with unfinished work, for the commands that continue them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from echelons.cli.database import label, root_named, roots
from echelons.errors import NothingUnfinished, ThreadNotNamed

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.pending_work import Question
    from echelons.checkpoints.threads.store import RootThread


class State(StrEnum):
    """Whether a root thread has work left."""

    FINISHED = "finished"
    ASKING = "asking"
    UNFINISHED = "unfinished"


AT_WORK = (State.ASKING, State.UNFINISHED)
"""States of a turn that has not ended, whose agents can be stopped or paused."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A root thread, its state and its open questions.

    Attributes:
        root: The thread.
        state: Whether it has work left; a thread that is running is unfinished, too.
        questions: Its open questions.
    """

    root: RootThread
    state: State
    questions: tuple[Question, ...]


def standing(saver: SqliteCheckpointer, root: RootThread) -> Standing:
    """Return the status of a root thread."""
    from echelons.checkpoints.queries import OneCheckpoint, read
    from echelons.checkpoints.threads.answer_outbox import open_questions
    from echelons.checkpoints.threads.pending_work import is_finished

    asked = tuple(read(saver, open_questions(root.id)))
    if asked:
        return Standing(root, State.ASKING, asked)
    finished = read(saver, is_finished(OneCheckpoint(root.id)))
    return Standing(root, State.FINISHED if finished else State.UNFINISHED, ())


def standings(saver: SqliteCheckpointer, thread: str | None) -> list[Standing]:
    """Return the status of the named root thread, or of all, latest first.

    Raises:
        ThreadNotFound: No thread has that name.
    """
    chosen = roots(saver) if thread is None else [root_named(saver, thread)]
    return [standing(saver, root) for root in chosen]


def root_with_work(
    saver: SqliteCheckpointer, thread: str | None, states: Collection[State]
) -> RootThread:
    """Return the named root thread, else the only one in one of the states.

    Raises:
        ThreadNotFound: No thread has that name.
        NothingUnfinished: No name is given, and no thread is in such a state.
        ThreadNotNamed: No name is given, and several threads are in such a state.
    """
    if thread is not None:
        return root_named(saver, thread)
    left = [each.root for each in standings(saver, None) if each.state in states]
    if not left:
        raise NothingUnfinished(saver.path)
    if len(left) > 1:
        raise ThreadNotNamed([label(root) for root in left])
    return left[0]
