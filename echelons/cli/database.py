"""Which database a command works on, and which of its threads is meant.

Only ``run`` makes one; the commands that read refuse a database that is not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from echelons.checkpoints.default_path import default_database, make_folder
from echelons.cli.output import remark
from echelons.errors import (
    DatabaseFolderMissing,
    StorageError,
    ThreadNotFound,
    ThreadNotNamed,
)
from echelons.identity.lineage import root_thread_id

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.store import RootThread

MAIN = "main"
"""The thread that is meant where none is named and there are several."""


def path(given: Path | None) -> Path:
    """Return the database that is meant."""
    return given.expanduser() if given else default_database()


def for_writing(given: Path | None) -> Path:
    """Return the database that is meant, with its folder there; the default's is made.

    Raises:
        DatabaseFolderMissing: It is named in a folder that is not there.
        StorageError: The default's folder cannot be made.
    """
    database = path(given)
    if given is None:
        make_folder(database)
        return database
    try:
        there = database.parent.is_dir()
    except OSError as error:
        raise StorageError(str(database), str(error)) from error
    if not there:
        raise DatabaseFolderMissing(str(database), str(database.parent))
    return database


def reading(given: Path | None) -> SqliteCheckpointer:
    """Open the database that is meant, which must be there.

    Raises:
        DatabaseMissing: It is not.
        StorageError: It cannot be opened, or is no database of threads.
    """
    from echelons.checkpoints.open import open_existing

    return open_existing(path(given))


def roots(saver: SqliteCheckpointer) -> list[RootThread]:
    """Return the root threads, latest first."""
    from echelons.checkpoints.threads.store import ThreadStore

    return ThreadStore(saver).roots()


def root_named(saver: SqliteCheckpointer, thread: str) -> RootThread:
    """Return a root thread by its name or id.

    Raises:
        ThreadNotFound: There is none.
    """
    found = {root.id: root for root in roots(saver)}
    # A graph of one's own may have used the name as LangGraph's id itself.
    root = found.get(thread) or found.get(root_thread_id(thread))
    if root is None:
        raise ThreadNotFound(thread)
    return root


def root_meant(saver: SqliteCheckpointer, thread: str | None) -> RootThread:
    """Return the root thread that is named, else the only one, else ``main``.

    Raises:
        ThreadNotFound: There is none of that name, or none at all.
        ThreadNotNamed: There are several, and none is ``main``.
    """
    if thread is not None:
        return root_named(saver, thread)
    found = roots(saver)
    mains = [root for root in found if root.name == MAIN]
    if len(found) > 1 and not mains:
        raise ThreadNotNamed([label(root) for root in found])
    if not found:
        raise ThreadNotFound(MAIN)
    return (mains or found)[0]


def root_shown(saver: SqliteCheckpointer, thread: str | None, *, quietly: bool) -> RootThread:
    """Return the root thread that is named, else the latest; for what only looks at it.

    Args:
        saver: The database.
        thread: Its name or id, if it is named.
        quietly: Whether nobody is told that there are several.

    Raises:
        ThreadNotFound: There is none of that name, or none at all.
    """
    if thread is not None:
        return root_named(saver, thread)
    found = roots(saver)
    if not found:
        raise ThreadNotFound(MAIN)
    if len(found) > 1 and not quietly:
        remark(f"thread {label(found[0])}, the latest of {len(found)}; --thread names another")
    return found[0]


def thread_name(database: Path, thread: str) -> str:
    """Return what a thread is called that may be given by its id."""
    if not database.exists() or not _is_id(thread):
        return thread
    with reading(database) as saver:
        found = {root.id: label(root) for root in roots(saver)}
    return found.get(root_thread_id(thread), thread)


def _is_id(thread: str) -> bool:
    try:
        UUID(thread)
    except ValueError:
        return False
    return True


def label(root: RootThread) -> str:
    """Return what a thread is called; its id if it has no name."""
    return root.name or root.id
