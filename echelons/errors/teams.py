"""Errors of teams: naming, loading and trusting one, and the documents that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from echelons.errors.base import EchelonsError


class TeamError(EchelonsError):
    """A team cannot be loaded."""


class UnknownTeam(TeamError):
    """No team of that name is shipped.

    Attributes:
        team: The name as it was given.
        known: The known names.
    """

    team: str
    known: Sequence[str]

    def _describe(self) -> str:
        close = get_close_matches(self.team, self.known, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        return (
            f"there is no team {self.team!r}; {meant}teams are {', '.join(self.known)}, "
            "and one of your own is named by its folder, or module:agent"
        )


class InvalidTeam(TeamError):
    """A team cannot be imported, is no agent, lacks documents, or takes none.

    Attributes:
        team: The name as it was given.
        why: What is wrong, and what to do.
    """

    team: str
    why: str
    message = "team {team!r}: {why}"


class InvalidProfile(TeamError):
    """Something is wrong with the files of a team's folder.

    Attributes:
        folder: The folder as it was given.
        faults: All that is wrong, as pairs of file with line, and reason.
    """

    folder: str
    faults: Sequence[tuple[str, str]]

    def _describe(self) -> str:
        shown = "; ".join(f"{place}: {why}" for place, why in self.faults[:3])
        more = len(self.faults) - 3
        rest = f"; and {more} more, which `echelons check` lists" if more > 0 else ""
        return f"the team in {self.folder!r} cannot be used: {shown}{rest}"


class UnknownProfile(TeamError):
    """A team's folder has no profile of that name.

    Attributes:
        profile: The name as it was given.
        known: The names of its profiles.
    """

    profile: str
    known: Sequence[str]

    def _describe(self) -> str:
        close = get_close_matches(self.profile, self.known, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        return (
            f"there is no profile {self.profile!r}; {meant}the folder has {', '.join(self.known)}"
        )


class TeamNotTrusted(TeamError):
    """The folder of a team has Python, which is executed only if the caller trusts the folder.

    Attributes:
        folder: The folder as it was given.
        files: The files that would be executed.
    """

    folder: str
    files: Sequence[str]

    def _describe(self) -> str:
        shown = ", ".join(self.files[:5])
        more = f" and {len(self.files) - 5} more" if len(self.files) > 5 else ""
        return (
            f"the team in {self.folder!r} has Python, which would be executed: {shown}{more}; read "
            "it, and trust the folder with --trust, or Agent.from_folder(..., trusted=True)"
        )


class TeamNotRecorded(TeamError):
    """A thread has no record of its team.

    Attributes:
        thread: The thread's name or id.
    """

    thread: str
    message = (
        "thread {thread!r} does not say which team it belongs to (`echelons run` notes it); name "
        "it with --team TEAM"
    )


class DocumentsError(EchelonsError):
    """A folder of documents cannot be made into a team."""


class FolderMissing(DocumentsError):
    """The folder of documents does not exist.

    Attributes:
        folder: The path as it was given.
    """

    folder: object
    message = "there is no folder {folder:quoted}; check the path of the documents"


class NotAFolder(DocumentsError):
    """The path of the documents is a file, not a folder.

    Attributes:
        path: The path as it was given.
        folder: The folder that the file lies in.
    """

    path: object
    folder: object
    message = (
        "{path:quoted} is a file, not a folder; pass the folder that it lies in, {folder:quoted}, "
        "or put it into a folder of its own"
    )


class NothingToRead(DocumentsError):
    """A folder holds no document that could be read.

    Attributes:
        folder: The folder.
        skipped: Files found and skipped, as pairs of path and reason.
    """

    folder: object
    skipped: Sequence[tuple[str, str]]

    def _describe(self) -> str:
        shown = "; ".join(f"{path} ({reason})" for path, reason in self.skipped[:5])
        rest = len(self.skipped) - 5
        found = f"skipped: {shown}{f' and {rest} more' if rest > 0 else ''}" if shown else "empty"
        return (
            f"no readable document in {str(self.folder)!r} ({found}); put text files into it, "
            "Markdown for example"
        )


class MissingExtra(EchelonsError):
    """Something needs a package that only an optional extra of Echelons brings.

    Attributes:
        extra: The extra, `"travel"`.
        package: The package that is missing.
    """

    extra: str
    package: str
    message = "the package {package!r} is not installed; pip install 'echelons[{extra}]'"
