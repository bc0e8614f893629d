"""`echelons draw`: a team as a picture, in text or Mermaid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.display.text_format import check_name_argument
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import (
    OutputOptions,
    StoredTeamOptions,
    TeamOptions,
    ThreadOptions,
    complete_team,
)
from echelons.cli.stored_team import resolve_stored_team
from echelons.cli.team_loader import TeamSpec, load_team

if TYPE_CHECKING:
    from echelons.tree.members import Member

DrawnArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TEAM",
        help="A shipped team, a folder or [b]module:agent[/b]; by default the team of a thread.",
        autocompletion=complete_team,
        callback=check_name_argument,
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
    if team is None:
        with database.open_database(place.db) as saver:
            root = database.choose_shown_root(saver, place.thread, quietly=how.json)
        chosen = resolve_stored_team(root, StoredTeamOptions(making.model, making.docs))
    elif place.thread is not None:
        raise typer.BadParameter("give TEAM or --thread, not both")
    else:
        chosen = TeamSpec(team, making.docs, making.model)
    drawing = load_team(chosen, track=output.choose_tracker(silent=how.json), run=False).draw()
    if how.json:
        output.print_json(_member_to_json(drawing.root))
    else:
        output.print_result(drawing.mermaid if mermaid else drawing.text)
    return ExitCode.FINISHED


def _member_to_json(member: Member) -> dict[str, Any]:
    return {
        "name": member.name,
        "description": member.description,
        "capabilities": dict(member.capabilities),
        "subordinates": [_member_to_json(each) for each in member.subordinates],
    }
