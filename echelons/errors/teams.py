"""Errors of teams: naming, loading and trusting one, and the documents that it needs."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError, escape_braces
from echelons.errors.configuration import ConfigurationError


class TeamError(EchelonsError):
    """A team cannot be loaded."""


class TeamNotTrusted(TeamError):
    """The folder of a team has Python, which is executed only if the caller trusts the folder.

    Attributes:
        folder: The folder as it was given.
        files: The files that would be executed.
    """

    code = "team_not_trusted"

    def __init__(self, folder: str, files: Sequence[str]) -> None:
        shown = escape_braces(", ".join(files[:5]))
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        super().__init__(
            f"the team in {{folder!r}} has Python, which would be executed: {shown}{more}; read "
            "it, and trust the folder with --trust, or Agent.from_folder(..., trusted=True)",
            folder=folder,
            files=tuple(files),
        )


def invalid_team(team: str, why: str) -> TeamError:
    """Return the error of a team that cannot be loaded."""
    return TeamError(
        "team {team!r}: {why}",
        code="invalid_team",
        team=team,
        why=why,
    )


def missing_extra(extra: str, package: str) -> ConfigurationError:
    """Return the error of a package that only an optional extra of Echelons brings."""
    return ConfigurationError(
        "the package {package!r} is not installed; pip install 'echelons[{extra}]'",
        code="missing_extra",
        extra=extra,
        package=package,
    )
