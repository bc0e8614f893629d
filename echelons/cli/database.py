"""The database of a command, and the root thread that it works on.

Only `run` and `serve-mcp` create a database; the other commands refuse one that does not exist.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from echelons.checkpoints.default_path import (
    expand_home,
    get_default_database,
    make_database_folder,
)
from echelons.cli.output import print_remark
from echelons.errors import StorageError, ThreadNotFound, thread_not_named
from echelons.identity.lineage import derive_root_thread_id

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.store import RootThread

MAIN_THREAD = "main"
"""Name of the default thread when there are several and none is named."""


def resolve_path(given: Path | None) -> Path:
    """Return the path of the database, the default one if none is given."""
    return expand_home(given) if given else get_default_database()


def resolve_writable_path(given: Path | None) -> Path:
    """Return the path of the database and make sure that its folder exists.

    Only the folder of the default database is created.

    Raises:
        StorageError: The default folder cannot be created, or the given one does not exist or
            cannot be read.
    """
    database = resolve_path(given)
    if given is None:
        make_database_folder(database)
        return database
    try:
        there = database.parent.is_dir()
    except OSError as error:
        raise StorageError(str(database), str(error)) from error
    if not there:
        why = f"there is no folder {str(database.parent)!r}; make the folder"
        raise StorageError(str(database), why)
    return database


def open_database(given: Path | None) -> SqliteCheckpointer:
    """Open an existing database."""
    from echelons.checkpoints.open import open_existing

    return open_existing(resolve_path(given))


def list_roots(saver: SqliteCheckpointer) -> list[RootThread]:
    """Return the root threads, latest first."""
    from echelons.checkpoints.threads.store import ThreadStore

    return ThreadStore(saver).roots()


def find_root(saver: SqliteCheckpointer, thread: str) -> RootThread:
    """Return the root thread with a name or id.

    Raises:
        ThreadNotFound: There is none.
    """
    found = {root.id: root for root in list_roots(saver)}
    # A user's own graph may have used the name itself as LangGraph's thread id.
    root = found.get(thread) or found.get(derive_root_thread_id(thread))
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
    found = list_roots(saver)
    mains = [root for root in found if root.name == MAIN_THREAD]
    if len(found) > 1 and not mains:
        raise thread_not_named([root_label(root) for root in found])
    if not found:
        raise ThreadNotFound(MAIN_THREAD)
    return (mains or found)[0]


def choose_shown_root(
    saver: SqliteCheckpointer, thread: str | None, *, quietly: bool
) -> RootThread:
    """Return the named root thread, else the latest, for commands that only read it.

    Unless it is done `quietly`, a remark says when there are several.

    Raises:
        ThreadNotFound: No thread has that name, or there is none at all.
    """
    if thread is not None:
        return find_root(saver, thread)
    found = list_roots(saver)
    if not found:
        raise ThreadNotFound(MAIN_THREAD)
    if len(found) > 1 and not quietly:
        latest = root_label(found[0])
        print_remark(f"thread {latest}, the latest of {len(found)}; --thread names another")
    return found[0]


def resolve_thread_name(database: Path, thread: str) -> str:
    """Return the name of a thread that is given by name or id."""
    try:
        UUID(thread)
    except ValueError:
        return thread
    if not database.exists():
        return thread
    with open_database(database) as saver:
        found = {root.id: root_label(root) for root in list_roots(saver)}
    return found.get(derive_root_thread_id(thread), thread)


def print_damage(root: RootThread) -> None:
    """Say of a damaged root thread what is wrong with it."""
    if root.damage:
        print_remark(f"thread {root_label(root)} is damaged: {root.damage}")


def root_label(root: RootThread) -> str:
    """Return the name of a root thread, or its id if it has none."""
    return root.name or root.id
