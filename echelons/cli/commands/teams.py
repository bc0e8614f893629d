"""Commands that only read a team: `new`, `check`, `profiles`, `draw`, `capabilities`, `route`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import database, output
from echelons.cli.command import (
    ExitCode,
    OutputOptions,
    StoredTeamOptions,
    TeamArgument,
    TeamOptions,
    ThreadOptions,
    check_text,
    command,
    complete_team,
    complete_team_folder,
    read_text,
    text_argument,
    text_option,
)
from echelons.cli.team_loader import (
    TeamSpec,
    is_team_folder,
    list_shipped_teams,
    list_team_folders,
    load_team,
    resolve_stored_team,
)
from echelons.errors import invalid_team
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from rich.console import Console

    from echelons.agent import Agent
    from echelons.capabilities import CapabilityMap
    from echelons.profiles.reader import Profile
    from echelons.tree.members import Member

NewFolderArgument = Annotated[str, text_argument("TEAM", "The folder to make; its name.")]
FolderArgument = Annotated[
    str, text_argument("TEAM", "The folder of the team.", complete_team_folder)
]
ListedFolderArgument = Annotated[
    str,
    text_argument(
        "TEAM",
        "The folder of a team, or one with several; by default the current folder.",
        complete_team_folder,
    ),
]
DrawnArgument = Annotated[
    str | None,
    text_argument(
        "TEAM",
        "A shipped team, a folder or [b]module:agent[/b]; by default the team of a thread.",
        complete_team,
    ),
]
MermaidOption = Annotated[
    bool, typer.Option("--mermaid", help="Mermaid, as GitHub and notebooks show it.")
]
AllOption = Annotated[
    bool, typer.Option("--all", "-a", help="Show every capability, not just the best.")
]
TaskArgument = Annotated[
    str,
    text_argument(
        "TASK", 'The task, in words; "-" reads it from the standard input.', check=check_text
    ),
]
ReceiverOption = Annotated[
    str | None,
    text_option(
        "--at",
        "AGENT",
        "The agent that would delegate the task, by name or path; by default the root.",
    ),
]
ThresholdOption = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="MATCH",
        help="The lowest match of an agent that counts as fitting, from 0 to 1.",
    ),
]


@dataclass(frozen=True)
class CapabilityOptions(TeamOptions):
    """Options of a team whose capabilities are only read, not run."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="The chat model that derives capabilities for agents that declare none, such "
            "as [b]openai:gpt-5-mini[/b]; by default they are derived from names.",
        ),
    ] = None


BEST_CAPABILITIES = 12
"""Capabilities that are shown of each agent, unless all are wanted."""
NARROWEST = 40
"""Columns of the narrowest lines: below them, names would be hard to read."""
_CONFIDENCE_WIDTH = 6
_GUIDE_WIDTH = 4
_SPACE = "\ue000"
"""A space at which no line is broken; Rich breaks lines at all that Unicode has."""


@command("new office")
def new(team: NewFolderArgument, *, how: OutputOptions) -> None:
    """Make the folder of a new team, with three agents and two tools, that runs as it is."""
    from echelons.profiles.scaffold import EXAMPLE_TASK, write_scaffold

    files = write_scaffold(expand_home(Path(team)))
    path = f"./{team}" if team in list_shipped_teams() else team
    output.print_outcome(
        {"folder": team, "files": files},
        [f"{team}/{file}" for file in files],
        f"look at it: {output.build_command_line('check', team)}",
        f"run it: {output.build_command_line('run', path, EXAMPLE_TASK, '--trust')}",
        as_json=how.json,
    )


@command("check office", "check office --json")
def check(team: FolderArgument, *, how: OutputOptions) -> ExitCode:
    """Print all that is wrong with the files of a team's folder, with file and line.

    Nothing is executed. If something is wrong, the exit code is 6.
    """
    from echelons.profiles.builder import check_team_folder

    checked, faults = check_team_folder(expand_home(Path(team)))
    agents = _count_agents(checked.root)
    tools = sum(len(profile.declared["tools"]) for profile in checked.profiles)
    lines = [f"{Path(team) / fault.place}: {fault.why} ({fault.error})" for fault in faults]
    output.print_outcome(
        {
            "folder": str(checked.folder),
            "agents": agents,
            "faults": [fault._asdict() for fault in faults],
        },
        lines or [f"{team}: {agents} agents, {tools} tools, no faults"],
        as_json=how.json,
    )
    return ExitCode.BROKEN if faults else ExitCode.FINISHED


def _count_agents(root: Profile) -> int:
    return 1 + sum(map(_count_agents, root.subordinates))


@command("profiles", "profiles office --json")
def profiles(team: ListedFolderArgument = ".", *, how: OutputOptions) -> ExitCode:
    """Print the profiles of a team's folder: what each agent is made of, and its hash.

    Of a folder that is no team's, the teams in it. Nothing is executed.
    """
    from echelons.profiles.reader import read_team

    folder = expand_home(Path(team))
    if not is_team_folder(folder) and (teams := [*map(str, list_team_folders(folder))]):
        output.print_outcome({"teams": teams}, teams, as_json=how.json)
        return ExitCode.FINISHED
    read = read_team(folder)
    if read.faults and not is_team_folder(folder):
        raise invalid_team(
            team, "it is no team's folder, and has none; make one: echelons new TEAM"
        )
    spare = {id(profile) for profile in read.spare}
    shown = [
        {**_profile_to_json(profile), "spare": id(profile) in spare} for profile in read.profiles
    ]
    lines = [line for profile in read.profiles for line in _format_profile(profile)]
    output.print_outcome({"folder": str(read.folder), "profiles": shown}, lines, as_json=how.json)
    if read.faults:
        again = output.build_command_line("check", team)
        output.print_remark(f"{len(read.faults)} faults: {again}")
    return ExitCode.BROKEN if read.faults else ExitCode.FINISHED


def _format_profile(profile: Profile) -> list[str]:
    lines = [f"{profile.name} ({profile.folder}) {profile.hash}"]
    if profile.files:
        lines.append(f"  {', '.join(file.name for file in profile.files)}")
    for kind, declared in profile.declared.items():
        word = kind.removesuffix("s")
        lines += [f"  {word} {it.name}{it.signature}: {it.description}" for it, _ in declared]
    return lines


def _profile_to_json(profile: Profile) -> dict[str, Any]:
    keys = ("name", "signature", "description")
    return {
        "name": profile.name,
        "folder": profile.folder,
        "hash": profile.hash,
        "files": [file.name for file in profile.files],
        **{
            kind: [{key: getattr(it, key) for key in keys} for it, _ in declared]
            for kind, declared in profile.declared.items()
        },
        "subordinates": [subordinate.name for subordinate in profile.subordinates],
    }


@command("draw travel", "draw research --docs notes/ --mermaid", "draw --thread trip")
def draw(
    team: DrawnArgument = None,
    mermaid: MermaidOption = False,
    *,
    place: ThreadOptions,
    making: TeamOptions,
    how: OutputOptions,
) -> None:
    """Print a team as a tree."""
    if team is None:
        with database.open_thread(place, quietly=how.json) as thread:
            options = StoredTeamOptions(making.model, making.docs)
            spec = resolve_stored_team(thread.root, options, thread.saver.path)
    elif place.thread is not None:
        raise typer.BadParameter("give TEAM or --thread, not both")
    else:
        spec = TeamSpec(team, making.docs, making.model)
    drawing = load_team(spec, track=output.choose_tracker(silent=how.json), run=False).draw()
    text = drawing.mermaid if mermaid else drawing.text
    output.print_outcome(_member_to_json(drawing.root), [text], as_json=how.json)


def _member_to_json(member: Member) -> dict[str, Any]:
    return {
        "name": member.name,
        "description": member.description,
        "capabilities": dict(member.capabilities),
        "subordinates": [_member_to_json(subordinate) for subordinate in member.subordinates],
    }


@command(
    "capabilities travel",
    "capabilities mine:head --model openai:gpt-5-mini",
    "capabilities research --docs notes/ --json",
)
def capabilities(
    team: TeamArgument,
    every: AllOption = False,
    *,
    making: CapabilityOptions,
    how: OutputOptions,
) -> None:
    """Print what every agent of a team can do: its best capabilities, by confidence."""
    root = _load_team(team, making, how)
    discovered = _discover_capabilities(root, making.model)
    if how.json:
        output.print_json(discovered.to_json())
        return
    console = output.make_console(sys.stdout)
    limit = None if every else BEST_CAPABILITIES
    output.print_result("\n".join(_draw_capabilities(discovered, console, console.width, limit)))


def _load_team(team: str, making: CapabilityOptions, how: OutputOptions) -> Agent:
    track = output.choose_tracker(silent=how.json)
    return load_team(TeamSpec(team, making.docs, making.model), track=track, run=False)


def _draw_capabilities(
    agent: CapabilityMap, console: Console, width: int, limit: int | None
) -> list[str]:
    """Return a tree of agents, each with its best capabilities, a line for each confidence."""
    from rich.text import Text

    from echelons.text.error_lines import join_printable
    from echelons.tree.agent_registry import draw_branches

    ranked = sorted(agent.capabilities.full.items(), key=lambda item: -item[1].confidence)
    branches = [
        _draw_capabilities(subordinate, console, width - _GUIDE_WIDTH, limit)
        for subordinate in agent.subordinates
    ]
    guide = "│   " if branches else "    "
    room = max(width, NARROWEST) - _GUIDE_WIDTH - _CONFIDENCE_WIDTH
    lines = [f"{agent.agent} (derived)" if agent.derived and ranked else agent.agent]
    for confidence, group in groupby(ranked[:limit], key=lambda item: item[1].confidence):
        names = []
        for name, capability in group:
            count = len(capability.examples)
            examples = f" ({output.format_count(count, 'example')})" if count else ""
            names.append((join_printable(name) + examples).replace(" ", _SPACE))
        for place, line in enumerate(Text(", ".join(names)).wrap(console, room)):
            head = "" if place else f"{confidence:g}"
            words = line.plain.rstrip().replace(_SPACE, " ")
            lines.append(f"{guide}{head:<{_CONFIDENCE_WIDTH}}{words}")
    if limit is not None and len(ranked) > limit:
        lines.append(f"{guide}and {len(ranked) - limit} more (--all)")
    return [*lines, *draw_branches(branches)]


@command(
    'route travel "Plan a trip to Italy with great food"',
    'route travel "See an opera" --at experiences',
    'route mine:head "Hello" --threshold 0.5 --json',
)
def route(
    team: TeamArgument,
    task: TaskArgument,
    at: ReceiverOption = None,
    threshold: ThresholdOption = None,
    *,
    making: CapabilityOptions,
    how: OutputOptions,
) -> ExitCode:
    """Print which agents of a team a run would ask for a task, and why.

    The team's own matcher and threshold rank them. If no agent fits, the exit code is 8.
    """
    from echelons.delegation.policy import DelegationPolicy
    from echelons.routing import Router

    root = _load_team(team, making, how)
    policy = root.delegation or DelegationPolicy()
    limit = policy.threshold if threshold is None else threshold
    router = Router(_discover_capabilities(root, making.model), policy.matcher, limit)
    # As in a run, the agent that delegates is no candidate itself.
    receiver = at.rpartition(PATH_SEPARATOR)[2] if at else root.name
    routed = router.route(read_text(task), at or (), without={receiver})
    parts = router.split(routed.task, routed.receiver) if policy.splitting else ()
    lines = [routed.explain()]
    if len(parts) > 1:
        requests = ", ".join(f"{part.candidate.agent} ({part.task})" for part in parts)
        lines.append(f"split into {len(parts)} requests: {requests}")
    split = [{"task": part.task, "agent": part.candidate.agent} for part in parts]
    output.print_outcome({**routed.json(), "parts": split}, lines, as_json=how.json)
    # An agent may fit a part of a task that none fits as a whole.
    return ExitCode.FINISHED if routed.candidates or parts else ExitCode.NO_AGENT


def _discover_capabilities(root: Agent, model: str | None) -> CapabilityMap:
    from echelons.capabilities import CapabilityMap, ModelDeriver, derive_from_names
    from echelons.models.resolution import OFFLINE_NAMES

    # No agent runs here, so a model can only be for deriving capabilities; the planner cannot.
    if model and model not in OFFLINE_NAMES:
        return CapabilityMap.discover(root, ModelDeriver(model))
    deriver = root.delegation.deriver if root.delegation else None
    return CapabilityMap.discover(root, deriver or derive_from_names)
