"""The database of a command, and the root threads in it.

Only `run` and `serve-mcp` create a database; the other commands refuse one that does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from echelons.checkpoints.default_path import (
    expand_home,
    get_default_database,
    make_database_folder,
)
from echelons.cli.command import ThreadOptions
from echelons.cli.output import build_command_line, print_remark
from echelons.errors import (
    StorageError,
    ThreadNotFound,
    UnknownPath,
    no_open_thread,
    thread_ambiguous,
    thread_not_named,
)
from echelons.identity.lineage import derive_root_thread_id

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.queries import ReadPlan
    from echelons.checkpoints.threads.pending_work import Question
    from echelons.checkpoints.threads.store import RootThread, ThreadStore

T = TypeVar("T")

MAIN_THREAD = "main"
"""Name of the default thread when there are several and none is named."""


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
    """A root thread, its state and its open questions; one that is running is unfinished, too."""

    root: RootThread
    state: RootState
    questions: tuple[Question, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenThread:
    """A root thread in its open database."""

    saver: SqliteCheckpointer
    root: RootThread

    @property
    def id(self) -> str:
        """LangGraph's `thread_id`."""
        return self.root.id

    @property
    def label(self) -> str:
        """Its name, or its id if it has none."""
        return root_label(self.root)

    @property
    def store(self) -> ThreadStore:
        """The threads of its database."""
        from echelons.checkpoints.threads.store import ThreadStore

        return ThreadStore(self.saver)

    def run(self, plan: ReadPlan[T]) -> T:
        """Return the result of a plan."""
        from echelons.checkpoints.queries import run_plan

        return run_plan(self.saver, plan)

    def is_running(self) -> bool:
        """Return whether a process is running it."""
        from echelons.checkpoints.ledger import build_key

        return self.saver.ledger.get_holder(build_key(self.id)) is not None


def resolve_path(path: Path | None) -> Path:
    """Return the path of the database, by default the default one."""
    return expand_home(path) if path else get_default_database()


def resolve_writable_path(path: Path | None) -> Path:
    """Return the path of the database in a folder that exists; only the default one is made.

    Raises:
        StorageError: The folder does not exist, or cannot be made or read.
    """
    database = resolve_path(path)
    if path is None:
        make_database_folder(database)
        return database
    try:
        is_folder = database.parent.is_dir()
    except OSError as error:
        raise StorageError(str(database), str(error)) from error
    if not is_folder:
        why = f"there is no folder {str(database.parent)!r}; make the folder"
        raise StorageError(str(database), why)
    return database


def open_database(path: Path | None) -> SqliteCheckpointer:
    """Open an existing database."""
    from echelons.checkpoints.open import open_existing

    return open_existing(resolve_path(path))


@contextmanager
def open_thread(place: ThreadOptions, *, quietly: bool) -> Iterator[OpenThread]:
    """Open the named root thread, else the latest."""
    with open_database(place.db) as saver:
        yield OpenThread(saver, choose_shown_root(saver, place.thread, quietly=quietly))


@contextmanager
def open_agent_thread(
    place: ThreadOptions, agent: str, command: Sequence[str], *, quietly: bool
) -> Iterator[OpenThread]:
    """Open the named root thread, else the latest, in which a command is for an agent.

    Raises:
        ThreadError: None is named, and the agent's own thread is in several: some are copies.
    """
    from echelons.checkpoints.threads.agent_states import read_registry

    with open_thread(place, quietly=quietly) as thread:
        if place.thread is None and agent != thread.root.agent:
            registry = thread.run(read_registry(thread.id, {}))
            with suppress(UnknownPath):  # it has not begun, so it is in no copy
                threads = thread.saver.list_sharing_roots(registry.get(agent).thread_ids)
                refuse_copies(f"agent {agent!r}", thread.saver, threads, command, place.db)
        yield thread


def refuse_copies(
    what: str,
    saver: SqliteCheckpointer,
    thread_ids: Collection[str],
    command: Sequence[str],
    db: Path | None,
) -> None:
    """Refuse a command without a thread for something that is in several.

    Raises:
        ThreadError: It is; with the command for each.
    """
    if len(thread_ids) > 1:
        labels = [root_label(root) for root in list_roots(saver) if root.id in thread_ids]
        commands = [build_command_line(*command, "--thread", label, db=db) for label in labels]
        raise thread_ambiguous(what, commands)


@contextmanager
def open_unfinished(place: ThreadOptions, states: Collection[RootState]) -> Iterator[OpenThread]:
    """Open the named root thread, else the only one in one of the states.

    Raises:
        ThreadError: No thread is named, and none is in such a state, or several are.
    """
    with open_database(place.db) as saver:
        if place.thread is not None:
            yield OpenThread(saver, find_root(saver, place.thread))
            return
        roots = [status.root for status in list_statuses(saver, None) if status.state in states]
        if not roots:
            raise no_open_thread(saver.path, "is unfinished")
        if len(roots) > 1:
            raise thread_not_named([root_label(root) for root in roots])
        yield OpenThread(saver, roots[0])


def list_roots(saver: SqliteCheckpointer) -> list[RootThread]:
    """Return the root threads, latest first."""
    from echelons.checkpoints.threads.store import ThreadStore

    return ThreadStore(saver).roots()


def list_statuses(saver: SqliteCheckpointer, thread: str | None) -> list[RootStatus]:
    """Return the status of the named root thread, or of all, latest first.

    Raises:
        CheckpointTampered: The named one is damaged; in the list of all it is shown as damaged.
    """
    from echelons.checkpoints.threads.store import DAMAGE

    if thread is not None:
        return [_read_status(saver, find_root(saver, thread))]
    statuses: list[RootStatus] = []
    for root in list_roots(saver):
        try:
            if not (damage := root.damage):
                statuses.append(_read_status(saver, root))
                continue
        except DAMAGE as error:
            damage = str(error)
        statuses.append(RootStatus(replace(root, damage=damage), RootState.DAMAGED))
    return statuses


def _read_status(saver: SqliteCheckpointer, root: RootThread) -> RootStatus:
    from echelons.checkpoints.queries import OneCheckpoint, run_plan
    from echelons.checkpoints.threads.answer_outbox import read_open_questions
    from echelons.checkpoints.threads.pending_work import is_finished

    questions = tuple(run_plan(saver, read_open_questions(root.id)))
    # A turn may be finished with questions that nothing waits for.
    if run_plan(saver, is_finished(OneCheckpoint(root.id))):
        return RootStatus(root, RootState.FINISHED, questions)
    return RootStatus(root, RootState.ASKING if questions else RootState.UNFINISHED, questions)


def find_root(saver: SqliteCheckpointer, thread: str) -> RootThread:
    """Return the root thread with a name or id.

    Raises:
        ThreadNotFound: There is none.
    """
    roots = {root.id: root for root in list_roots(saver)}
    # A user's own graph may have used the name itself as LangGraph's thread id.
    root = roots.get(thread) or roots.get(derive_root_thread_id(thread))
    if root is None:
        raise ThreadNotFound(thread)
    return root


def choose_root(saver: SqliteCheckpointer, thread: str | None) -> RootThread:
    """Return the named root thread, else the only one, else `main`.

    Raises:
        ThreadNotFound: No thread has that name, or there is none at all.
        ThreadError: There are several, and none is `main`.
    """
    if thread is not None:
        return find_root(saver, thread)
    roots = list_roots(saver)
    mains = [root for root in roots if root.name == MAIN_THREAD]
    if len(roots) > 1 and not mains:
        raise thread_not_named([root_label(root) for root in roots])
    if not roots:
        raise ThreadNotFound(MAIN_THREAD)
    return (mains or roots)[0]


def choose_shown_root(
    saver: SqliteCheckpointer, thread: str | None, *, quietly: bool
) -> RootThread:
    """Return the named root thread, else the latest; unless `quietly`, say if there are several.

    Raises:
        ThreadNotFound: No thread has that name, or there is none at all.
    """
    if thread is not None:
        return find_root(saver, thread)
    roots = list_roots(saver)
    if not roots:
        raise ThreadNotFound(MAIN_THREAD)
    if len(roots) > 1 and not quietly:
        latest = root_label(roots[0])
        print_remark(f"thread {latest}, the latest of {len(roots)}; --thread names another")
    return roots[0]


def resolve_thread_name(database: Path, thread: str) -> str:
    """Return the name of a thread, which may be called by its id."""
    try:
        UUID(thread)
    except ValueError:
        return thread
    if not database.exists():
        return thread
    with open_database(database) as saver:
        labels = {root.id: root_label(root) for root in list_roots(saver)}
    return labels.get(derive_root_thread_id(thread), thread)


def print_damage(root: RootThread) -> None:
    """Say of a damaged root thread what is wrong with it."""
    if root.damage:
        print_remark(f"thread {root_label(root)} is damaged: {root.damage}")


def root_label(root: RootThread) -> str:
    """Return the name of a root thread, or its id if it has none."""
    return root.name or root.id
