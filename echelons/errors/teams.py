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
        known: The names that there are.
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


class TeamNotImported(TeamError):
    """An agent is named as ``module:agent``, and loading it failed.

    Attributes:
        team: The name as it was given.
        why: What went wrong.
    """

    team: str
    why: str
    message = (
        "team {team!r} cannot be loaded: {why}; write it as module:agent, the module as Python "
        "imports it from this folder"
    )


class TeamAttributeMissing(TeamError):
    """A module has no such agent.

    Attributes:
        team: The name as it was given.
        attribute: What the module does not have.
        offered: Names of the module that may be meant.
    """

    team: str
    attribute: str
    offered: Sequence[str]

    def _describe(self) -> str:
        has = f"it has {', '.join(self.offered) or 'no agents'}"
        return f"team {self.team!r}: the module has no {self.attribute!r}; {has}"


class NotATeam(TeamError):
    """What a team's name leads to is no agent.

    Attributes:
        team: The name as it was given.
        found: What was found, described.
    """

    team: str
    found: str
    message = (
        "team {team!r} is {found}; name an Agent, or a function without parameters that returns one"
    )


class TeamNotTrusted(TeamError):
    """A database names a function as its team that does not say that it makes one.

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
    """A thread does not say which team it belongs to.

    Attributes:
        thread: The thread's name or id.
    """

    thread: str
    message = (
        "thread {thread!r} does not say which team it belongs to (`echelons run` notes it); name "
        "it with --team TEAM"
    )


class DocumentsNeeded(TeamError):
    """A team answers from documents, and none were named.

    Attributes:
        team: The team.
    """

    team: str
    message = "team {team!r} answers from documents; name their folder with --docs FOLDER"


class DocumentsNotTaken(TeamError):
    """Documents were named for a team that takes none.

    Attributes:
        team: The team.
        folder: The folder that was named.
    """

    team: str
    folder: str
    message = "team {team!r} takes no documents, and --docs names {folder!r}; leave it out"
