"""Stored threads: the team that one recorded, unless options replace it, and its next turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from echelons.checkpoints.default_path import expand_home
from echelons.cli import output
from echelons.cli.database import root_label
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import RunOutputOptions, StoredTeamOptions, ThreadOptions
from echelons.cli.team_loader import TeamSpec, load_team
from echelons.errors import TeamError

if TYPE_CHECKING:
    from echelons.checkpoints.threads.store import RootThread
    from echelons.runtime.session import Session
    from echelons.runtime.session_run import AsyncRun


def resolve_stored_team(root: RootThread, options: StoredTeamOptions) -> TeamSpec:
    """Return the team of a stored thread, with what the options replace.

    Raises:
        TeamError: Neither the thread nor the command line names a team.
    """
    name = TeamSpec.from_metadata(root.metadata)
    if options.team is not None:
        given = TeamSpec(options.team)
        same = name is not None and name.team == given.team
        name = replace(name, trusted=True) if name and same else given
    if name is None:
        raise TeamError(
            "thread {thread!r} does not say which team it belongs to (`echelons run` notes it); "
            "name it with --team TEAM",
            code="team_not_recorded",
            thread=root_label(root),
        )
    if options.docs is not None:
        name = replace(name, docs=expand_home(options.docs).absolute())
    if options.workspace is not None:
        name = replace(name, workspace=expand_home(options.workspace).absolute())
    if options.prices is not None:
        name = replace(name, prices=expand_home(options.prices).absolute())
    if options.model is not None:
        name = replace(name, model=options.model)
    return replace(name, trusted_folder=options.trust)


def run_stored_turn(
    root: RootThread,
    start: Callable[[Session], Awaitable[AsyncRun]],
    place: ThreadOptions,
    remaking: StoredTeamOptions,
    how: RunOutputOptions,
) -> ExitCode:
    """Load the team of a stored thread, run the turn that `start` starts, and show it."""
    from asyncio import Runner

    from echelons.cli.turn_runner import PlannedTurn, run_planned_turn

    team = resolve_stored_team(root, remaking)
    track = output.choose_tracker(silent=how.json or how.quiet)
    with Runner() as loop:
        agent = load_team(team, loop=loop, track=track)
        turn = PlannedTurn(agent, team, root_label(root), place.db, start)
        return run_planned_turn(turn, how, loop)
