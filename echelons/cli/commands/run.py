"""`echelons run` and `echelons resume`: a turn from its task, or from where it stopped."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import uuid4

import typer

from echelons.cli import database, unfinished_threads
from echelons.cli.command import command
from echelons.cli.display.text_format import command_line, encoded, named, text_or_stdin
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import Making, Place, Remaking, RunOutput, TeamArgument
from echelons.cli.stored_team import remade
from echelons.cli.team_loader import TeamName, load, source
from echelons.errors import InvalidTask

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
    made_from = source(name)
    agent = load(name, made_from)
    stored = database.for_writing(place.db)
    after: tuple[str, ...] = ()
    if place.thread is None:
        own = agent.name if ":" in team else team
        thread = fresh_name(own, datetime.now(), uuid4().hex)
        after = (f"go on with: {_again(name, thread, place)}",)
    else:
        thread = database.thread_name(stored, place.thread)
    remarks = "" if how.json or how.quiet else made_from.remarks()

    from echelons.cli.turn_runner import Turn, carry_out

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


PausedArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="The agent whose pause ends, such as [b]head/north[/b], with those below it; "
        "all pauses if left out.",
        callback=named,
        show_default=False,
    ),
]


@command
def resume(
    path: PausedArgument = None, *, place: Place, remaking: Remaking, how: RunOutput
) -> ExitCode:
    """Go on with a turn that was stopped, killed, paused, or has failed.

    Without [b]--thread[/b] it is the only unfinished one.
    """
    # One agent's pause may end while others ask.
    states = unfinished_threads.AT_WORK if path else (unfinished_threads.State.UNFINISHED,)
    with database.reading(place.db) as saver:
        root = unfinished_threads.root_with_work(saver, place.thread, states)
    name = remade(root, remaking)
    agent = load(name)

    from echelons.cli.turn_runner import Turn, carry_out

    turn = Turn(
        agent=agent,
        team=name,
        thread=database.label(root),
        database=database.path(place.db),
        given=place.db,
        begin=lambda session: session.aresume(path),
    )
    return carry_out(turn, how)


def fresh_name(team: str, now: datetime, chance: str) -> str:
    """Return a name for a new thread: readable, and unique among processes.

    >>> fresh_name("travel", datetime(2026, 11, 21, 22, 45, 1), "4f2ac0")
    'travel-20261121-224501-4f2a'
    """
    return f"{team}-{now:%Y%m%d-%H%M%S}-{chance[:4]}"


def _again(name: TeamName, thread: str, place: Place) -> str:
    docs = ["--docs", str(name.docs)] if name.docs else []
    model = ["--model", name.model] if name.model else []
    return command_line("run", name.team, "TASK", "--thread", thread, *docs, *model, db=place.db)
