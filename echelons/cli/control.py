"""``echelons stop`` and ``echelons pause``: orders to a turn, whoever runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.exits import ExitCode
from echelons.cli.options import Output, Place
from echelons.cli.words import command_line, named
from echelons.errors import NothingUnfinished, ThreadNotNamed

if TYPE_CHECKING:
    from echelons.checkpoints.reading import Plan
    from echelons.checkpoints.sqlite import SqliteCheckpointer
    from echelons.checkpoints.threads import RootThread

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
def stop(path: PathArgument = None, *, place: Place, how: Output) -> ExitCode:
    """End an agent and all below it, or the whole turn, in whichever process it runs."""
    from echelons.checkpoints.controls import stop_plan

    with database.reading(place.db) as saver:
        root = _unfinished(saver, place)
        return _told(saver, root, ("stopped", stop_plan(root.id, path)), place, how)


@command
def pause(path: PathArgument = None, *, place: Place, how: Output) -> ExitCode:
    """Hold an agent and all below it, or the whole tree, before their next model call."""
    from echelons.checkpoints.controls import pause_plan

    with database.reading(place.db) as saver:
        root = _unfinished(saver, place)
        return _told(saver, root, ("paused", pause_plan(root.id, path)), place, how)


def _told(
    saver: SqliteCheckpointer,
    root: RootThread,
    order: tuple[str, Plan[str]],
    place: Place,
    how: Output,
) -> ExitCode:
    from echelons.checkpoints.ledger import key
    from echelons.checkpoints.reading import read

    done, plan = order
    path = read(saver, plan)
    running = saver.ledger.holder(key(root.id)) is not None
    thread = database.label(root)
    if how.json:
        output.tell_json({done: path, "thread": thread, "running": running})
        return ExitCode.FINISHED
    output.tell(f"{done} {path} in thread {thread}")
    if not running:
        again = command_line("resume", "--thread", thread, db=place.db)
        output.remark(f"nobody is at work on it now; go on with: {again}")
    return ExitCode.FINISHED


def _unfinished(saver: SqliteCheckpointer, place: Place) -> RootThread:
    found = database.standings(saver, place.thread)
    if place.thread is not None:
        return found[0].root
    left = [each.root for each in found if each.state is not database.State.FINISHED]
    if not left:
        raise NothingUnfinished(str(database.path(place.db)))
    if len(left) > 1:
        raise ThreadNotNamed([database.label(root) for root in left])
    return left[0]
