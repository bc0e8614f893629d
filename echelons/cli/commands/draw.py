"""`echelons draw`: a team as a picture, in text or Mermaid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.completion import complete_team
from echelons.cli.display.text_format import check_name_argument
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import OutputOptions, StoredTeamOptions, TeamOptions, ThreadOptions
from echelons.cli.stored_team import resolve_stored_team
from echelons.cli.team_loader import TeamSpec, load_team

if TYPE_CHECKING:
    from echelons.tree.members import Member

DrawnArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TEAM",
        help="A shipped team or [b]module:agent[/b]; by default the team of a thread.",
        autocompletion=complete_team,
        callback=check_name_argument,
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
    place: ThreadOptions,
    making: TeamOptions,
    how: OutputOptions,
) -> ExitCode:
    """Print a team as a tree."""
    drawing = load_team(_resolve_team(team, place, making, quietly=how.json)).draw()
    if how.json:
        output.print_json(member_to_json(drawing.root))
    else:
        output.print_result(drawing.mermaid if mermaid else drawing.text)
    return ExitCode.FINISHED


def member_to_json(member: Member) -> dict[str, Any]:
    """Return a member of a tree as a JSON object, with its subordinates."""
    return {
        "name": member.name,
        "description": member.description,
        "capabilities": dict(member.capabilities),
        "subordinates": [member_to_json(each) for each in member.subordinates],
    }


def _resolve_team(
    team: str | None, place: ThreadOptions, making: TeamOptions, *, quietly: bool
) -> TeamSpec:
    if team is None:
        with database.open_database(place.db) as saver:
            root = database.choose_shown_root(saver, place.thread, quietly=quietly)
        return resolve_stored_team(root, StoredTeamOptions(making.model, making.docs))
    if place.thread is not None:
        raise typer.BadParameter("give TEAM or --thread, not both")
    return TeamSpec(team, making.docs, making.model)
