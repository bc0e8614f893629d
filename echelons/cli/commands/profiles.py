"""`echelons new`, `check` and `profiles`: teams as folders. None executes what is in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import output
from echelons.cli.command import command
from echelons.cli.display.text_format import build_command_line, check_name_argument
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import OutputOptions, complete_team_folder
from echelons.cli.team_loader import is_team_folder, list_shipped_teams, list_team_folders
from echelons.errors import invalid_team

if TYPE_CHECKING:
    from echelons.profiles.reader import Profile

NewFolderArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEAM", help="The folder to make; its name.", callback=check_name_argument
    ),
]
FolderArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEAM",
        help="The folder of the team.",
        autocompletion=complete_team_folder,
        callback=check_name_argument,
    ),
]
ListedFolderArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEAM",
        help="The folder of a team, or one with several; by default the current folder.",
        autocompletion=complete_team_folder,
        callback=check_name_argument,
    ),
]


@command
def new(team: NewFolderArgument, *, how: OutputOptions) -> ExitCode:
    """Make the folder of a new team, with three agents and two tools, that runs as it is."""
    from echelons.profiles.scaffold import EXAMPLE_TASK, write_scaffold

    written = write_scaffold(expand_home(Path(team)))
    if how.json:
        output.print_json({"folder": team, "files": written})
        return ExitCode.FINISHED
    for each in written:
        output.print_result(f"{team}/{each}")
    named = f"./{team}" if team in list_shipped_teams() else team
    output.print_remark(f"look at it: {build_command_line('check', team)}")
    output.print_remark(f"run it: {build_command_line('run', named, EXAMPLE_TASK, '--trust')}")
    return ExitCode.FINISHED


@command
def check(team: FolderArgument, *, how: OutputOptions) -> ExitCode:
    """Print all that is wrong with the files of a team's folder, with file and line.

    Nothing is executed. If something is wrong, the exit code is 6.
    """
    from echelons.profiles.builder import check_team_folder

    checked, faults = check_team_folder(expand_home(Path(team)))
    if how.json:
        found: dict[str, Any] = {
            "folder": str(checked.folder),
            "agents": _count_agents(checked.root),
        }
        output.print_json({**found, "faults": [each._asdict() for each in faults]})
    elif faults:
        for each in faults:
            output.print_result(f"{Path(team) / each.place}: {each.why} ({each.error})")
    else:
        tools = sum(len(each.declared["tools"]) for each in checked.profiles)
        output.print_result(
            f"{team}: {_count_agents(checked.root)} agents, {tools} tools, no faults"
        )
    return ExitCode.BROKEN if faults else ExitCode.FINISHED


@command
def profiles(team: ListedFolderArgument = ".", *, how: OutputOptions) -> ExitCode:
    """Print the profiles of a team's folder: what each agent is made of, and its hash.

    Of a folder that is no team's, the teams in it. Nothing is executed.
    """
    from echelons.profiles.reader import read_team

    folder = expand_home(Path(team))
    if not is_team_folder(folder) and (teams := list_team_folders(folder)):
        if how.json:
            output.print_json({"teams": [str(each) for each in teams]})
        for each in () if how.json else teams:
            output.print_result(str(each))
        return ExitCode.FINISHED
    found = read_team(folder)
    if found.faults and not is_team_folder(folder):
        raise invalid_team(
            team, "it is no team's folder, and has none; make one: echelons new TEAM"
        )
    for profile in () if how.json else found.profiles:
        output.print_result(f"{profile.name} ({profile.folder}) {profile.hash}")
        for line in _describe_parts(profile):
            output.print_result(f"  {line}")
    if how.json:
        spare = {id(each) for each in found.spare}
        shown = [{**_profile_to_json(each), "spare": id(each) in spare} for each in found.profiles]
        output.print_json({"folder": str(found.folder), "profiles": shown})
    if found.faults:
        remark = f"{len(found.faults)} faults: {build_command_line('check', team)}"
        output.print_remark(remark)
    return ExitCode.BROKEN if found.faults else ExitCode.FINISHED


def _count_agents(root: Profile) -> int:
    return 1 + sum(map(_count_agents, root.subordinates))


def _describe_parts(profile: Profile) -> list[str]:
    lines = [", ".join(each.name for each in profile.files)] if profile.files else []
    for kind, declared in profile.declared.items():
        word = kind.removesuffix("s")
        lines += [f"{word} {each.name}{each.signature}: {each.description}" for each, _ in declared]
    return lines


def _profile_to_json(profile: Profile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "folder": profile.folder,
        "hash": profile.hash,
        "files": [each.name for each in profile.files],
        **{
            kind: [
                {"name": each.name, "signature": each.signature, "description": each.description}
                for each, _ in declared
            ]
            for kind, declared in profile.declared.items()
        },
        "subordinates": [each.name for each in profile.subordinates],
    }
