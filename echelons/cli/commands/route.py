"""`echelons capabilities` and `echelons route`: what agents can do, and which gets a task.

Both only read a team; nothing runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echelons.cli import output
from echelons.cli.command import command
from echelons.cli.display.text_format import (
    check_name_argument,
    check_text_argument,
    read_text_argument,
)
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import CapabilityOptions, OutputOptions, TeamArgument
from echelons.cli.team_loader import TeamSpec, load_team
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from echelons.agent import Agent
    from echelons.capabilities import CapabilityMap

TaskArgument = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help='The task, in words; "-" reads it from the standard input.',
        callback=check_text_argument,
    ),
]
ReceiverOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="AGENT",
        help="The agent that would delegate the task, by name or path; by default the root.",
        callback=check_name_argument,
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


EveryOption = Annotated[
    bool, typer.Option("--all", "-a", help="Show every capability, not just the best.")
]


@command
def capabilities(
    team: TeamArgument,
    every: EveryOption = False,
    *,
    making: CapabilityOptions,
    how: OutputOptions,
) -> ExitCode:
    """Print what every agent of a team can do: its best capabilities, by confidence."""
    track = output.choose_tracker(silent=how.json)
    root = load_team(TeamSpec(team, making.docs, making.model), track=track, run=False)
    known = _discover_capabilities(root, making.model)
    if how.json:
        output.print_json(known.to_json())
    else:
        from echelons.cli.display.capability_tree import BEST_CAPABILITIES, format_capability_tree

        width, most = output.get_width(), None if every else BEST_CAPABILITIES
        output.print_result(format_capability_tree(known, width, most))
    return ExitCode.FINISHED


@command
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

    track = output.choose_tracker(silent=how.json)
    root = load_team(TeamSpec(team, making.docs, making.model), track=track, run=False)
    policy = root.delegation or DelegationPolicy()
    limit = policy.threshold if threshold is None else threshold
    router = Router(_discover_capabilities(root, making.model), policy.matcher, limit)
    # As in a run, the agent that delegates is no candidate itself.
    receiver = at.rpartition(PATH_SEPARATOR)[2] if at else root.name
    found = router.route(read_text_argument(task), at or (), without={receiver})
    parts = router.split(found.task, found.receiver) if policy.splitting else ()
    # An agent may fit a part of a task that none fits as a whole.
    code = ExitCode.FINISHED if found.candidates or parts else ExitCode.NOBODY
    if how.json:
        split = [{"task": part.task, "agent": part.candidate.agent} for part in parts]
        output.print_json({**found.json(), "parts": split})
        return code
    output.print_result(found.explain())
    if len(parts) > 1:
        meant = ", ".join(f"{part.candidate.agent} ({part.task})" for part in parts)
        output.print_result(f"split into {len(parts)} requests: {meant}")
    return code


def _discover_capabilities(root: Agent, model: str | None) -> CapabilityMap:
    from echelons.capabilities import CapabilityMap, ModelDeriver, derive_from_names
    from echelons.models.resolution import OFFLINE_NAMES

    # No agent runs here, so a model can only be for deriving capabilities; the planner cannot.
    if model and model not in OFFLINE_NAMES:
        return CapabilityMap.discover(root, ModelDeriver(model))
    given = root.delegation.deriver if root.delegation else None
    return CapabilityMap.discover(root, given or derive_from_names)
