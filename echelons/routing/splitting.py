"""Splitting: the parts of a task that needs several agents, and who is meant by each.

``Router.split`` calls it. The rules are those of the offline planner, which splits a task for a
superior's direct subordinates; here they are asked for everybody below a receiver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from echelons.roster import Entry
from echelons.routing.matcher import Profile
from echelons.routing.route import Candidate, Route

if TYPE_CHECKING:
    from echelons.models.planner.team import Team


@dataclass(frozen=True, slots=True)
class Part:
    """What one agent is asked for.

    Attributes:
        task: The words of the task that are meant: its own, or all of them.
        candidate: Who is meant.
        route: Everybody who can do this part, for when that one cannot.
    """

    task: str
    candidate: Candidate
    route: Route


def team_of(profiles: Sequence[Profile]) -> Team:
    """Return agents as the planner sees a team."""
    # The planner's package loads LangChain, which routing by words does without.
    from echelons.models.planner.team import Team

    return Team(
        [
            Entry(profile.name, profile.texts[0] if profile.texts else "", profile.capabilities)
            for profile in profiles
        ]
    )


def shares(team: Team, task: str) -> list[tuple[str, str]]:
    """Return who of a team is meant by which words of ``task``; wishes only, no refusals."""
    from echelons.models.planner.reading import Reading
    from echelons.models.planner.split import split

    return [(share.name, ", ".join(share.words) or task) for share in split(team, Reading(task))]


def statements(task: str) -> list[str]:
    """Cut ``task`` into its clauses, as they were written."""
    from echelons.models.planner.clauses import clauses
    from echelons.models.planner.reading import Reading

    reading = Reading(task)
    tokens = reading.tokens
    return [
        reading.excerpt[tokens[each[0]].start : tokens[each[-1]].end]
        for each in clauses(tokens)
        if each
    ]
