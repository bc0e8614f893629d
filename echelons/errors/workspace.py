"""Errors of workspaces: folders that cannot be one, and what agents may not do with their files."""

from __future__ import annotations

from echelons.errors.base import EchelonsError


class WorkspaceError(EchelonsError):
    """A workspace cannot be used, or a file of it cannot be read or changed."""


class FileRefused(WorkspaceError):
    """A file of a workspace cannot be read or changed, or its path may lead out of it.

    Attributes:
        path: The file.
        why: The reason, and what to do.
    """

    code = "file_refused"


def no_workspace() -> WorkspaceError:
    """Return the error of files where there is no workspace."""
    return WorkspaceError(
        "no workspace: {why}",
        code="no_workspace",
        why="Session(workspace=…) or `echelons run --workspace` names its folder",
    )


def file_refused(path: str, why: str) -> FileRefused:
    """Return the error of a file that cannot be read or changed."""
    return FileRefused(
        "{path:quoted}: {why}",
        path=path,
        why=why,
    )


def file_too_large(path: str, why: str, size: int, limit: int) -> FileRefused:
    """Return the error of a file, or of all changes of an agent, that are too large."""
    return FileRefused(
        "{path:quoted}: {why}: {size} instead of {limit} at most",
        code="file_too_large",
        path=path,
        why=why,
        size=size,
        limit=limit,
    )


def note_refused(name: str, why: str) -> WorkspaceError:
    """Return the error of a note that cannot be written or read."""
    return WorkspaceError(
        "note {name}: {why}",
        code="note_refused",
        name=name,
        why=why,
    )
