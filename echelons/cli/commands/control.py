"""`echelons stop`, `pause` and `takeover`: to a turn, whichever process runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echelons.cli import database, output
from echelons.cli.command import (
    AgentArgument,
    ByOption,
    DatabaseOptions,
    OutputOptions,
    TeamOption,
    ThreadArgument,
    ThreadOptions,
    command,
)
from echelons.errors import ThreadNotFound, UnknownPath
from echelons.identity.lineage import choose_user_name, derive_root_thread_id

if TYPE_CHECKING:
    from echelons.checkpoints.threads.stop_and_pause import ControlOrder

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking first.")]

TAKEOVER_RISK = (
    "It can store nothing more, but what its tools do in the world goes on, and a tool call that "
    "it is in the middle of may still happen after you are asked about it. To end the process "
    "is safer, and frees the thread, too."
)


@command("stop", "stop head/experiences --thread trip", "stop head/flights --json")
def stop(
    path: AgentArgument = None,
    team: TeamOption = None,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Stop an agent and all below it, or the whole turn, in any process."""
    _give_order("stopped", path, team, by, place, how)


@command("pause", "pause head/experiences --thread trip")
def pause(
    path: AgentArgument = None,
    team: TeamOption = None,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Pause an agent and all below it, or the whole tree, before the next model call."""
    _give_order("paused", path, team, by, place, how)


def _give_order(
    order: ControlOrder,
    path: str | None,
    team: str | None,
    by: str | None,
    place: ThreadOptions,
    how: OutputOptions,
) -> None:
    """Give an order to an agent that has begun, or else to one that the team declares."""
    from echelons.checkpoints.threads.stop_and_pause import give_order
    from echelons.cli.team_loader import list_agent_paths

    with database.open_unfinished(place, database.OPEN_STATES) as thread:
        name = choose_user_name(by)
        try:
            ordered = thread.run(give_order(order, thread.id, path, by=name))
        except UnknownPath:
            paths = list_agent_paths(thread.root, team, output.choose_tracker(silent=how.json))
            ordered = thread.run(give_order(order, thread.id, path, paths, name))
        running = thread.is_running()
    again = output.build_command_line("resume", "--thread", thread.label, db=place.db)
    output.print_outcome(
        {order: ordered, "thread": thread.label, "running": running},
        [f"{order} {ordered} in thread {thread.label}"],
        *([] if running else [f"it is not running now; go on with: {again}"]),
        as_json=how.json,
    )


@command("takeover trip", "takeover trip --yes --json")
def takeover(
    thread: ThreadArgument, yes: YesOption = False, *, place: DatabaseOptions, how: OutputOptions
) -> None:
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
    again = output.build_command_line("resume", "--thread", label, db=place.db)
    output.print_outcome(
        {"taken_over": label, "thread_id": root_id, **taken._asdict()},
        [f"took thread {label} over from process {taken.pid}"],
        f"go on with: {again}",
        as_json=how.json,
    )
