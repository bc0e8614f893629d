"""`echelons stop` and `echelons pause`: orders to a turn, whichever process runs it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, TypeAlias

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
    from echelons.checkpoints.queries import Plan
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
Order: TypeAlias = "Callable[[str, Collection[str]], Plan[str]]"
"""Builds the plan that gives an order on a root thread, with the known agent paths.

An agent that has begun is found without them.
"""


@command
def stop(
    path: PathArgument = None, team: TeamOption = None, *, place: Place, how: Output
) -> ExitCode:
    """End an agent and all below it, or the whole turn, in whichever process it runs."""
    from echelons.checkpoints.threads.stop_and_pause import stop_plan

    with database.reading(place.db) as saver:
        root = unfinished_threads.root_with_work(saver, place.thread, unfinished_threads.AT_WORK)
        stopped = _given(lambda thread, known: stop_plan(thread, path, known), saver, root, team)
        return _told(saver, root, {"stopped": stopped}, place, how)


@command
def pause(
    path: PathArgument = None, team: TeamOption = None, *, place: Place, how: Output
) -> ExitCode:
    """Hold an agent and all below it, or the whole tree, before their next model call."""
    from echelons.checkpoints.threads.stop_and_pause import pause_plan

    with database.reading(place.db) as saver:
        root = unfinished_threads.root_with_work(saver, place.thread, unfinished_threads.AT_WORK)
        paused = _given(lambda thread, known: pause_plan(thread, path, known), saver, root, team)
        return _told(saver, root, {"paused": paused}, place, how)


def _given(order: Order, saver: SqliteCheckpointer, root: RootThread, team: str | None) -> str:
    """Give an order to an agent that has begun, else to one that the team declares."""
    from echelons.checkpoints.queries import read

    try:
        return read(saver, order(root.id, ()))
    except UnknownPath:
        known = _paths(root, team)
    return read(saver, order(root.id, known))


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
