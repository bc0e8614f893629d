"""`echelons draw`: a team as a picture, in text or Mermaid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.completion import complete_team
from echelons.cli.display.text_format import named
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import Making, Output, Place, Remaking
from echelons.cli.stored_team import remade
from echelons.cli.team_loader import TeamName, load

if TYPE_CHECKING:
    from echelons.tree.members import Member

DrawnArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TEAM",
        help="A shipped team or [b]module:agent[/b]; left out, the team of a thread.",
        autocompletion=complete_team,
        callback=named,
        show_default=False,
    ),
]
MermaidOption = Annotated[
    bool, typer.Option("--mermaid", help="Mermaid, as GitHub and notebooks show it.")
]


@command
def draw(
    team: DrawnArgument = None,
    mermaid: MermaidOption = False,
    *,
    place: Place,
    making: Making,
    how: Output,
) -> ExitCode:
    """Print a team as a tree."""
    drawing = load(_named(team, place, making, quietly=how.json)).draw()
    if how.json:
        output.tell_json(member_json(drawing.root))
    else:
        output.tell(drawing.mermaid if mermaid else drawing.text)
    return ExitCode.FINISHED


def member_json(member: Member) -> dict[str, Any]:
    """Return a member of a tree as a JSON object, with its subordinates."""
    return {
        "name": member.name,
        "description": member.description,
        "capabilities": dict(member.capabilities),
        "subordinates": [member_json(each) for each in member.subordinates],
    }


def _named(team: str | None, place: Place, making: Making, *, quietly: bool) -> TeamName:
    if team is None:
        with database.reading(place.db) as saver:
            root = database.root_shown(saver, place.thread, quietly=quietly)
        return remade(root, Remaking(making.model, making.docs))
    if place.thread is not None:
        raise typer.BadParameter("give TEAM or --thread, not both")
    return TeamName(team, making.docs, making.model)
