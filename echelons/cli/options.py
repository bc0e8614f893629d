"""The options that commands share, as dataclasses that ``command`` takes apart.

Each field is one option; Typer reads its annotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from echelons.checkpoints.default_path import VARIABLE
from echelons.cli.completion import complete_team, complete_thread
from echelons.cli.display.text_format import named

TeamArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEAM",
        help="A shipped team ([b]travel[/b], [b]research[/b]), or [b]module:agent[/b] of your own.",
        autocompletion=complete_team,
        callback=named,
        show_default=False,
    ),
]
ThreadOption = Annotated[
    str | None,
    typer.Option(
        "--thread",
        metavar="NAME",
        help="The thread, by name or id.",
        autocompletion=complete_thread,
        callback=named,
        show_default=False,
    ),
]


TeamOption = Annotated[
    str | None,
    typer.Option(
        "--team",
        metavar="TEAM",
        help="Another team than the one that the thread noted.",
        autocompletion=complete_team,
        callback=named,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Database:
    """Where everything is stored."""

    db: Annotated[
        Path | None,
        typer.Option(
            "--db",
            metavar="FILE",
            envvar=VARIABLE,
            help="The database; a file in your data folder if left out.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True)
class Place(Database):
    """Which thread is meant."""

    thread: ThreadOption = None


@dataclass(frozen=True)
class Output:
    """How a command speaks."""

    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ECHELONS_DEBUG", help="Show where errors come from.")
    ] = False


@dataclass(frozen=True)
class RunOutput(Output):
    """How a command speaks that runs a tree."""

    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the answer and nothing else.")
    ] = False


@dataclass(frozen=True)
class Making:
    """What a team is made with."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="The model to think with, such as [b]openai:gpt-5-mini[/b]; a team without one "
            "uses the offline planner.",
            show_default=False,
        ),
    ] = None
    docs: Annotated[
        Path | None,
        typer.Option(
            "--docs",
            metavar="FOLDER",
            help="The documents that [b]research[/b] answers from.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True)
class Knowing(Making):
    """What a team is made with that is only looked at."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="The model that says what agents can do that declare nothing, such as "
            "[b]openai:gpt-5-mini[/b]; without one, their names say it.",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True)
class Remaking(Making):
    """What the team of a thread is made with, if not with what the thread noted."""

    team: TeamOption = None
