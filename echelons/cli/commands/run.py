"""`echelons run` and `echelons resume`: a turn from its task, or from where it stopped."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import uuid4

import typer

from echelons.checkpoints.default_path import expand_home
from echelons.cli import database, output, unfinished_threads
from echelons.cli.command import command
from echelons.cli.display.text_format import (
    build_command_line,
    check_name_argument,
    check_value_argument,
    read_text_argument,
)
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import (
    BudgetOption,
    ByOption,
    PricesOption,
    RunOutputOptions,
    RunTeamOptions,
    StoredTeamOptions,
    TeamArgument,
    ThreadOptions,
)
from echelons.cli.stored_team import run_stored_turn
from echelons.cli.team_loader import (
    TeamSpec,
    find_team_source,
    list_shipped_teams,
    load_team,
)
from echelons.errors import invalid_task
from echelons.guards.budget import Budget

TaskArgument = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="What to do, in words; [b]-[/b] reads it from the standard input.",
        callback=check_value_argument,
    ),
]

TurnOption = Annotated[
    str | None,
    typer.Option(
        "--turn",
        metavar="ID",
        help="An id for the turn: submitted again, it is not run twice. Needs [b]--thread[/b].",
        callback=check_name_argument,
    ),
]

AddresseeOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="PATH",
        help="The agent that the task is for, such as [b]head/north[/b]; by default the root.",
        callback=check_name_argument,
    ),
]


@command
def run(  # noqa: PLR0913  its options
    team: TeamArgument,
    task: TaskArgument,
    turn_id: TurnOption = None,
    to: AddresseeOption = None,
    prices: PricesOption = None,
    budget: BudgetOption = None,
    *,
    place: ThreadOptions,
    making: RunTeamOptions,
    how: RunOutputOptions,
) -> ExitCode:
    """Give a team a task, show its work, and print the answer.

    Without [b]--thread[/b] the task starts a new thread.
    With it, the team remembers the earlier turns of that thread.
    With [b]--to[/b], the agents above get the answer, and the root replies.
    With [b]--budget[/b], the turn ends with what it has when that is spent.
    """
    words = read_text_argument(task)
    if turn_id is not None and place.thread is None:
        raise typer.BadParameter("--turn names a turn of a thread: give --thread, too")
    if not words.strip():
        raise invalid_task(task)
    limit = None if budget is None else Budget.parse(budget)
    docs = making.docs and expand_home(making.docs).absolute()
    folder = making.workspace and expand_home(making.workspace).absolute()
    prices = prices and expand_home(prices).absolute()
    name = TeamSpec(
        team,
        docs,
        making.model,
        trusted_folder=making.trust,
        workspace=folder,
        prices=prices,
    )
    silent = how.json or how.quiet
    made_from = find_team_source(name, output.choose_tracker(silent=silent))

    from asyncio import Runner

    with Runner() as loop:
        agent = load_team(name, made_from, loop)
        stored = database.resolve_writable_path(place.db)
        after: tuple[str, ...] = ()
        if place.thread is None:
            own = team if team in list_shipped_teams() else agent.name
            thread = make_thread_name(own, datetime.now(), uuid4().hex)
            more = ["--docs", str(name.docs)] if name.docs else []
            more += ["--model", name.model] if name.model else []
            more += ["--workspace", str(folder)] if folder else []
            more += ["--prices", str(prices)] if prices else []
            more += ["--trust"] if name.trusted_folder else []
            again = ("run", name.team, "TASK", "--thread", thread, *more)
            after = (f"go on with: {build_command_line(*again, db=place.db)}",)
        else:
            thread = database.resolve_thread_name(stored, place.thread)
        remarks = "" if silent else made_from.format_remarks()

        from echelons.cli.turn_runner import PlannedTurn, run_planned_turn

        turn = PlannedTurn(
            agent=agent,
            team=name,
            thread=thread,
            db=place.db,
            start=lambda session: session.asend(words, turn_id=turn_id, to=to, budget=limit),
            opening_remarks=tuple(filter(None, (remarks, f"thread {thread}"))),
            closing_remarks=after,
        )
        return run_planned_turn(turn, how, loop)


PausedArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="The agent whose pause ends, such as [b]head/north[/b], with those below it; "
        "by default all pauses end.",
        callback=check_name_argument,
    ),
]


@command
def resume(
    path: PausedArgument = None,
    by: ByOption = None,
    *,
    place: ThreadOptions,
    remaking: StoredTeamOptions,
    how: RunOutputOptions,
) -> ExitCode:
    """Continue a turn that was stopped, killed or paused, or has failed.

    Without [b]--thread[/b], the only unfinished thread is continued.
    """
    # One agent's pause may end while others ask.
    states = unfinished_threads.OPEN_STATES if path else (unfinished_threads.RootState.UNFINISHED,)
    with database.open_database(place.db) as saver:
        root = unfinished_threads.find_unfinished_root(saver, place.thread, states)
    return run_stored_turn(root, lambda session: session.aresume(path, by=by), place, remaking, how)


def make_thread_name(team: str, now: datetime, chance: str) -> str:
    """Return a name for a new thread: readable, and unique among processes.

    >>> make_thread_name("travel", datetime(2026, 11, 21, 22, 45, 1), "4f2ac0")
    'travel-20261121-224501-4f2a'
    """
    return f"{team}-{now:%Y%m%d-%H%M%S}-{chance[:4]}"
