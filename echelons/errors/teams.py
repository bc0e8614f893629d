"""Errors of teams: naming, loading and trusting one.

Raised by the commands, which load a team by its name.
"""

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
            "and an agent of your own is named module:agent"
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


class TeamNotTrusted(TeamError):
    """A database names a function as its team that is not annotated to return an agent.

    Attributes:
        team: The name as it was stored.
    """

    team: str
    message = (
        "the database names {team!r} as the team; a function that only a database names is not "
        "called unless it is annotated `-> Agent`: annotate it, or name it yourself with --team "
        "{team}"
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
