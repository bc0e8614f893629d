"""`echelons stop` and `echelons pause`: orders to a turn, whichever process runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echelons.cli import database, output, unfinished_threads
from echelons.cli.command import command
from echelons.cli.display.text_format import command_line, named
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import Output, Place, Remaking, TeamOption
from echelons.cli.stored_team import remade
from echelons.cli.team_loader import load
from echelons.errors import EchelonsError, UnknownPath

if TYPE_CHECKING:
    from echelons.checkpoints.checkpointer import SqliteCheckpointer
    from echelons.checkpoints.threads.stop_and_pause import ControlOrder
    from echelons.checkpoints.threads.store import RootThread

PathArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="The agent, such as [b]head/north[/b], with all below it; the whole turn if left out.",
        callback=named,
        show_default=False,
    ),
]


@command
def stop(
    path: PathArgument = None, team: TeamOption = None, *, place: Place, how: Output
) -> ExitCode:
    """End an agent and all below it, or the whole turn, in whichever process it runs."""
    return _give_order("stopped", path, team, place, how)


@command
def pause(
    path: PathArgument = None, team: TeamOption = None, *, place: Place, how: Output
) -> ExitCode:
    """Hold an agent and all below it, or the whole tree, before their next model call."""
    return _give_order("paused", path, team, place, how)


def _give_order(
    order: ControlOrder, path: str | None, team: str | None, place: Place, how: Output
) -> ExitCode:
    """Give an order to an agent that has begun, or else to one that the team declares."""
    from echelons.checkpoints.queries import read
    from echelons.checkpoints.threads.stop_and_pause import give_order

    with database.reading(place.db) as saver:
        root = unfinished_threads.root_with_work(saver, place.thread, unfinished_threads.AT_WORK)
        try:
            ordered = read(saver, give_order(order, root.id, path))
        except UnknownPath:
            ordered = read(saver, give_order(order, root.id, path, _paths(root, team)))
        return _told(saver, root, {order: ordered}, place, how)


def _paths(root: RootThread, team: str | None) -> frozenset[str]:
    from echelons.tree.walk import walk

    try:
        agent = load(remade(root, Remaking(team=team)))
    except EchelonsError:
        if team is not None:
            raise
        return frozenset()  # without --team, agents that have begun can still be named
    return frozenset(place.text for place in walk(agent))


def _told(
    saver: SqliteCheckpointer, root: RootThread, done: dict[str, str], place: Place, how: Output
) -> ExitCode:
    from echelons.checkpoints.ledger import key

    running = saver.ledger.holder(key(root.id)) is not None
    thread = database.label(root)
    if how.json:
        output.tell_json({**done, "thread": thread, "running": running})
        return ExitCode.FINISHED
    for what, path in done.items():
        output.tell(f"{what} {path} in thread {thread}")
    if not running:
        again = command_line("resume", "--thread", thread, db=place.db)
        output.remark(f"nobody is at work on it now; go on with: {again}")
    return ExitCode.FINISHED
