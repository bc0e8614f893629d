"""Errors of workspaces: folders that cannot be one, and what agents may not do with their files."""

from __future__ import annotations

from dataclasses import field

from echelons.errors.base import EchelonsError


class WorkspaceError(EchelonsError):
    """A workspace cannot be used, or a file of it cannot be read or changed."""


class InvalidWorkspace(WorkspaceError):
    """A folder cannot be a workspace.

    Attributes:
        root: The folder.
        why: What is wrong with it.
    """

    root: str
    why: str
    message = (
        "{root:short} is no workspace: {why}; name an existing folder that can be written, by its "
        "own path and not through a link"
    )


class NoWorkspace(WorkspaceError):
    """Files of a workspace are asked for where there is none.

    Attributes:
        why: What to do.
    """

    why: str = field(
        init=False, default="Session(workspace=…) or `echelons run --workspace` names its folder"
    )
    message = "no workspace: {why}"


class InvalidPath(WorkspaceError):
    """A path may lead out of the workspace, or looks like another one.

    Attributes:
        path: The path, shortened.
        why: What is wrong with it.
    """

    path: str
    why: str
    message = "{path} is no path of a workspace: {why}; name a file like 'docs/plan.md'"


class FileRefused(WorkspaceError):
    """A file of a workspace cannot be read or changed.

    Attributes:
        path: The file.
        why: The reason, and what to do.
    """

    path: str
    why: str
    message = "{path:quoted}: {why}"


class FileTooLarge(FileRefused):
    """A file, or all changes of an agent together, are larger than a workspace keeps.

    Attributes:
        path: The file.
        why: What is too large.
        size: Its size, at least.
        limit: The largest size.
    """

    size: int
    limit: int
    message = "{path:quoted}: {why}: {size} instead of {limit} at most"


class FileChanged(FileRefused):
    """A file was changed by others since a change of it was based on it.

    Attributes:
        path: The file.
        why: What is wrong.
    """

    why: str = field(init=False, default="it has been changed since; read it, and change it again")


class InvalidPattern(WorkspaceError):
    """The files of a workspace cannot be searched for a pattern.

    Attributes:
        pattern: The pattern, shortened.
        why: What is wrong with it.
    """

    pattern: str
    why: str
    message = "{pattern} cannot be searched for: {why}"


class NoteRefused(WorkspaceError):
    """A note cannot be written or read.

    Attributes:
        name: Its name, shortened.
        why: The reason.
    """

    name: str
    why: str
    message = "note {name}: {why}"
