"""`echelons run` and `echelons resume`: a turn from its task, or from where it stopped."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated
from uuid import uuid4

import typer

from echelons.cli import database, output
from echelons.cli.command import (
    ByOption,
    ExitCode,
    PricesOption,
    RunOutputOptions,
    RunTeamOptions,
    StoredTeamOptions,
    TeamArgument,
    ThreadOptions,
    check_value,
    command,
    read_text,
    text_argument,
    text_option,
)
from echelons.cli.output import build_command_line
from echelons.cli.team_loader import (
    TeamSpec,
    find_team_source,
    list_shipped_teams,
    load_team,
    resolve_folder,
)
from echelons.errors import invalid_task
from echelons.guards.budget import Budget

TaskArgument = Annotated[
    str,
    text_argument(
        "TASK",
        "What to do, in words; [b]-[/b] reads it from the standard input.",
        check=check_value,
    ),
]
TurnOption = Annotated[
    str | None,
    text_option(
        "--turn",
        "ID",
        "An id for the turn: submitted again, it is not run twice. Needs [b]--thread[/b].",
    ),
]
AddresseeOption = Annotated[
    str | None,
    text_option(
        "--to",
        "PATH",
        "The agent that the task is for, such as [b]head/north[/b]; by default the root.",
    ),
]
BudgetOption = Annotated[
    str | None,
    text_option(
        "--budget",
        "UNIT=AMOUNT,…",
        "What all agents may spend in the turn: tokens, money (needs [b]--prices[/b]), calls, "
        "tool_calls and seconds, as in [b]tokens=50000,calls=20[/b].",
        check=check_value,
    ),
]
PausedArgument = Annotated[
    str | None,
    text_argument(
        "PATH",
        "The agent whose pause ends, such as [b]head/north[/b], with those below it; "
        "by default all pauses end.",
    ),
]


@command(
    'run travel "Plan a trip to Italy with great food"',
    'run office/ "Add 3 and 4" --trust',
    'run research "What are circuit breakers for?" --docs notes/',
    'run mine:head "Hello" --model openai:gpt-5-mini --thread hello',
    'run travel "A table for two" --thread rome --turn order-17',
    'run travel "Find a cheaper flight" --thread rome --to head/flights',
    'run office/ "Tidy up the docs" --workspace ~/project',
    'run travel "Plan a trip to Italy" --budget calls=20,seconds=60',
)
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
    words = read_text(task)
    if turn_id is not None and place.thread is None:
        raise typer.BadParameter("--turn names a turn of a thread: give --thread, too")
    if not words.strip():
        raise invalid_task(task)
    limit = None if budget is None else Budget.parse(budget)
    spec = TeamSpec(
        team,
        resolve_folder(making.docs),
        making.model,
        trusted_folder=making.trust,
        workspace=resolve_folder(making.workspace),
        prices=resolve_folder(prices),
    )
    silent = how.json or how.quiet
    source = find_team_source(spec, output.choose_tracker(silent=silent))

    from asyncio import Runner

    with Runner() as loop:
        agent = load_team(spec, source, loop)
        stored = database.resolve_writable_path(place.db)
        closing: tuple[str, ...] = ()
        if place.thread is None:
            name = team if team in list_shipped_teams() else agent.name
            thread = make_thread_name(name, datetime.now(), uuid4().hex)
            again = _build_next_run(spec, thread, place.db)
            closing = (f"go on with: {again}",)
        else:
            thread = database.resolve_thread_name(stored, place.thread)
        remarks = "" if silent else source.format_remarks()

        from echelons.cli.turns import PlannedTurn, run_planned_turn

        turn = PlannedTurn(
            agent=agent,
            team=spec,
            thread=thread,
            db=place.db,
            start=lambda session: session.asend(words, turn_id=turn_id, to=to, budget=limit),
            opening_remarks=tuple(filter(None, (remarks, f"thread {thread}"))),
            closing_remarks=closing,
        )
        return run_planned_turn(turn, how, loop)


def make_thread_name(team: str, now: datetime, chance: str) -> str:
    """Return a name for a new thread: readable, and unique among processes.

    >>> make_thread_name("travel", datetime(2026, 11, 21, 22, 45, 1), "4f2ac0")
    'travel-20261121-224501-4f2a'
    """
    return f"{team}-{now:%Y%m%d-%H%M%S}-{chance[:4]}"


def _build_next_run(spec: TeamSpec, thread: str, db: Path | None) -> str:
    """Return the command that gives the same team its next task."""
    options = {
        "--docs": spec.docs,
        "--model": spec.model,
        "--workspace": spec.workspace,
        "--prices": spec.prices,
    }
    more = [word for name, value in options.items() if value for word in (name, str(value))]
    more += ["--trust"] if spec.trusted_folder else []
    return build_command_line("run", spec.team, "TASK", "--thread", thread, *more, db=db)


@command("resume", "resume --thread trip", "resume head/experiences")
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
    from echelons.cli.turns import run_stored_turn

    # One agent's pause may end while others ask.
    states = database.OPEN_STATES if path else (database.RootState.UNFINISHED,)
    with database.open_unfinished(place, states) as thread:
        root = thread.root
    return run_stored_turn(root, lambda session: session.aresume(path, by=by), place, remaking, how)
