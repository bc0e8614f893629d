"""`echelons stop`, `pause` and `takeover`: orders to a turn, whichever process runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echelons.cli import database, output, unfinished_threads
from echelons.cli.command import command
from echelons.cli.display.text_format import build_command_line, check_name_argument
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import (
    DatabaseOptions,
    OutputOptions,
    StoredTeamOptions,
    TeamOption,
    ThreadArgument,
    ThreadOptions,
)
from echelons.cli.stored_team import resolve_stored_team
from echelons.cli.team_loader import load_team
from echelons.errors import EchelonsError, ThreadNotFound, UnknownPath
from echelons.identity.lineage import derive_root_thread_id

if TYPE_CHECKING:
    from echelons.checkpoints.threads.stop_and_pause import ControlOrder
    from echelons.checkpoints.threads.store import RootThread

PathArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="The agent, such as [b]head/north[/b], with all below it; by default the whole tree.",
        callback=check_name_argument,
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Take it over without asking first.")]

TAKEOVER_RISK = (
    "It can store nothing more, but what its tools do in the world goes on, and a tool call that "
    "it is in the middle of may still happen after you are asked about it. To end the process "
    "is safer, and frees the thread, too."
)


@command
def stop(
    path: PathArgument = None, team: TeamOption = None, *, place: ThreadOptions, how: OutputOptions
) -> ExitCode:
    """Stop an agent and all below it, or the whole turn, in any process."""
    return _give_order("stopped", path, team, place, how)


@command
def pause(
    path: PathArgument = None, team: TeamOption = None, *, place: ThreadOptions, how: OutputOptions
) -> ExitCode:
    """Pause an agent and all below it, or the whole tree, before the next model call."""
    return _give_order("paused", path, team, place, how)


@command
def takeover(
    thread: ThreadArgument, yes: YesOption = False, *, place: DatabaseOptions, how: OutputOptions
) -> ExitCode:
    """Take a thread from a process that hangs, so that it can be resumed.

    That process can store nothing more, but what its tools do in the world
    goes on, and a tool call that it is in the middle of may still happen
    after you are asked about it. To end the process is safer, and frees the
    thread, too.
    """
    from echelons.checkpoints.ledger import build_key
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.stop_and_pause import take_over_thread

    with database.open_database(place.db) as saver:
        try:
            root = database.find_root(saver, thread)
            root_id, label = root.id, database.root_label(root)
        except ThreadNotFound:
            # A process may hang before the first checkpoint of its first turn.
            root_id, label = derive_root_thread_id(thread), thread
        holder = saver.ledger.get_holder(build_key(root_id))
        if holder and not yes:
            where = f" on {holder.host}" if holder.host else ""
            held = f"Process {holder.pid}{where} has held thread {label} since {holder.since}."
            output.confirm(f"{held} {TAKEOVER_RISK} Take it over?")
        taken = run_plan(saver, take_over_thread(root_id, label, holder))
    if how.json:
        output.print_json({"taken_over": label, "thread_id": root_id, **taken._asdict()})
        return ExitCode.FINISHED
    output.print_result(f"took thread {label} over from process {taken.pid}")
    again = build_command_line("resume", "--thread", label, db=place.db)
    output.print_remark(f"go on with: {again}")
    return ExitCode.FINISHED


def _give_order(
    order: ControlOrder,
    path: str | None,
    team: str | None,
    place: ThreadOptions,
    how: OutputOptions,
) -> ExitCode:
    """Give an order to an agent that has begun, or else to one that the team declares."""
    from echelons.checkpoints.ledger import build_key
    from echelons.checkpoints.queries import run_plan
    from echelons.checkpoints.threads.stop_and_pause import give_order

    with database.open_database(place.db) as saver:
        root = unfinished_threads.find_unfinished_root(
            saver, place.thread, unfinished_threads.OPEN_STATES
        )
        try:
            ordered = run_plan(saver, give_order(order, root.id, path))
        except UnknownPath:
            declared = _list_agent_paths(root, team, output.choose_tracker(silent=how.json))
            ordered = run_plan(saver, give_order(order, root.id, path, declared))
        running = saver.ledger.get_holder(build_key(root.id)) is not None
    thread = database.root_label(root)
    if how.json:
        output.print_json({order: ordered, "thread": thread, "running": running})
        return ExitCode.FINISHED
    output.print_result(f"{order} {ordered} in thread {thread}")
    if not running:
        again = build_command_line("resume", "--thread", thread, db=place.db)
        output.print_remark(f"it is not running now; go on with: {again}")
    return ExitCode.FINISHED


def _list_agent_paths(
    root: RootThread, team: str | None, track: output.Tracker | None
) -> frozenset[str]:
    from echelons.tree.traversal import walk_tree

    try:
        agent = load_team(resolve_stored_team(root, StoredTeamOptions(team=team)), track=track)
    except EchelonsError:
        if team is not None:
            raise
        return frozenset()  # without --team, agents that have begun can still be named
    return frozenset(place.path_text for place in walk_tree(agent))
