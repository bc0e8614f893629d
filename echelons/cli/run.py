"""``echelons run`` and ``echelons resume``: a turn from its task, or from where it stopped."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from echelons.cli import database
from echelons.cli.command import command
from echelons.cli.exits import ExitCode
from echelons.cli.options import Making, Place, Remaking, RunOutput, TeamArgument
from echelons.cli.remaking import remade
from echelons.cli.teams import TeamName, load, source
from echelons.cli.words import command_line, encoded, named, text_or_stdin
from echelons.errors import InvalidTask, NothingUnfinished, ThreadNotNamed

if TYPE_CHECKING:
    from echelons.checkpoints.threads import RootThread

TaskArgument = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="What to do, in words; [b]-[/b] reads it from the standard input.",
        callback=encoded,
        show_default=False,
    ),
]

TurnOption = Annotated[
    str | None,
    typer.Option(
        "--turn",
        metavar="ID",
        help="What you call the turn; submitted again, it is never run again. "
        "Needs [b]--thread[/b].",
        callback=named,
        show_default=False,
    ),
]


@command
def run(
    team: TeamArgument,
    task: TaskArgument,
    turn_id: TurnOption = None,
    *,
    place: Place,
    making: Making,
    how: RunOutput,
) -> ExitCode:
    """Give a team a task, and watch it work.

    Without [b]--thread[/b] the task begins a thread of its own.
    With it, the team remembers what was said on that thread before.
    """
    words = text_or_stdin(task)
    if turn_id is not None and place.thread is None:
        raise typer.BadParameter("--turn names a turn of a thread: give --thread, too")
    if not words.strip():
        raise InvalidTask(task)
    name = TeamName(team, making.docs and making.docs.expanduser().absolute(), making.model)
    agent = load(name)
    stored = database.for_writing(place.db)
    after: tuple[str, ...] = ()
    if place.thread is None:
        own = agent.name if ":" in team else team
        thread = fresh_name(own, datetime.now(), uuid4().hex)
        after = (f"go on with: {_again(name, thread, place)}",)
    else:
        thread = database.thread_name(stored, place.thread)
    remarks = "" if how.json or how.quiet else source(name).remarks()

    from echelons.cli.running import Turn, carry_out

    turn = Turn(
        agent=agent,
        team=name,
        thread=thread,
        database=stored,
        given=place.db,
        begin=lambda session: session.asend(words, turn_id=turn_id),
        before=tuple(filter(None, (remarks, f"thread {thread}"))),
        after=after,
    )
    return carry_out(turn, how)


@command
def resume(place: Place, remaking: Remaking, how: RunOutput) -> ExitCode:
    """Go on with a turn that was stopped, killed, paused, or has failed.

    Without [b]--thread[/b] it is the only unfinished one.
    """
    with database.reading(place.db) as saver:
        if place.thread is None:
            root = only_unfinished(database.standings(saver, None), str(database.path(place.db)))
        else:
            root = database.root_named(saver, place.thread)
    name = remade(root, remaking)
    agent = load(name)

    from echelons.cli.running import Turn, carry_out

    turn = Turn(
        agent=agent,
        team=name,
        thread=database.label(root),
        database=database.path(place.db),
        given=place.db,
        begin=lambda session: session.aresume(),
    )
    return carry_out(turn, how)


def fresh_name(team: str, now: datetime, chance: str) -> str:
    """Return a name for a new thread: readable, and not that of another process's.

    >>> fresh_name("travel", datetime(2026, 11, 21, 22, 45, 1), "4f2ac0")
    'travel-20261121-224501-4f2a'
    """
    return f"{team}-{now:%Y%m%d-%H%M%S}-{chance[:4]}"


def only_unfinished(found: list[database.Standing], where: str) -> RootThread:
    """Return the root thread that is meant where none is named.

    Raises:
        NothingUnfinished: None has work left that waits for no answer.
        ThreadNotNamed: Several have.
    """
    unfinished = [each.root for each in found if each.state is database.State.UNFINISHED]
    if not unfinished:
        raise NothingUnfinished(where)
    if len(unfinished) > 1:
        raise ThreadNotNamed([database.label(root) for root in unfinished])
    return unfinished[0]


def _again(name: TeamName, thread: str, place: Place) -> str:
    docs = ["--docs", str(name.docs)] if name.docs else []
    model = ["--model", name.model] if name.model else []
    return command_line("run", name.team, "TASK", "--thread", thread, *docs, *model, db=place.db)
