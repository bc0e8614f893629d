"""Options that commands share, as dataclasses that `command` flattens.

Each field is one option; Typer reads its annotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from echelons.checkpoints.default_path import DATABASE_VARIABLE
from echelons.cli.display.text_format import check_name_argument, check_value_argument
from echelons.errors import EchelonsError


def complete_team(incomplete: str) -> list[str]:
    """Return the shipped teams, and the folders of teams, that start with the text."""
    from echelons.cli.team_loader import list_shipped_teams

    shipped = [name for name in list_shipped_teams() if name.startswith(incomplete)]
    return shipped + complete_team_folder(incomplete)


def complete_team_folder(incomplete: str) -> list[str]:
    """Return the folders of teams that start with the text; nothing in them is read."""
    from echelons.cli.team_loader import list_team_folders

    above = incomplete.rpartition("/")[0]
    prefix = f"{above}/" if "/" in incomplete else ""
    names = [f"{prefix}{each.name}" for each in list_team_folders(Path(prefix or "."))]
    return [name for name in names if name.startswith(incomplete)]


def complete_thread(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the threads of the database whose label starts with the text, latest first.

    Never fails and never creates a database: the user is in the middle of typing.
    """
    from echelons.cli.database import list_roots, open_database, root_label

    try:
        with open_database(ctx.params.get("db")) as saver:
            labels = [root_label(root) for root in list_roots(saver)]
    except EchelonsError:
        return []
    return [label for label in labels if label.startswith(incomplete)]


def complete_agent(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the paths of the agents of the thread that start with the text; never fails."""
    from echelons.checkpoints.threads.store import ThreadStore
    from echelons.cli.database import choose_shown_root, open_database

    try:
        with open_database(ctx.params.get("db")) as saver:
            root = choose_shown_root(saver, ctx.params.get("thread"), quietly=True)
            paths = [each.path for each in ThreadStore(saver).registry(root.id).agents]
    except EchelonsError:
        return []
    return [path for path in paths if path.startswith(incomplete)]


TeamArgument = Annotated[
    str,
    typer.Argument(
        metavar="TEAM",
        help="A shipped team ([b]travel[/b], [b]research[/b], [b]search[/b]), or your own: its "
        "folder, or [b]module:agent[/b].",
        autocompletion=complete_team,
        callback=check_name_argument,
    ),
]
ThreadOption = Annotated[
    str | None,
    typer.Option(
        "--thread",
        metavar="NAME",
        help="The thread, by name or id.",
        autocompletion=complete_thread,
        callback=check_name_argument,
    ),
]
ThreadArgument = Annotated[
    str,
    typer.Argument(
        metavar="THREAD",
        help="The root thread, by name or id.",
        autocompletion=complete_thread,
        callback=check_name_argument,
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Who does this, which is stored and not checked; by default the user of the system.",
        callback=check_name_argument,
    ),
]
TeamOption = Annotated[
    str | None,
    typer.Option(
        "--team",
        metavar="TEAM",
        help="The team to use instead of the one stored with the thread.",
        autocompletion=complete_team,
        callback=check_name_argument,
    ),
]

WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        metavar="FOLDER",
        help="The folder whose files agents read and propose to change; "
        "by default the one stored with the thread.",
    ),
]

BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="UNIT=AMOUNT,…",
        help="What all agents may spend in the turn: tokens, money (needs [b]--prices[/b]), calls, "
        "tool_calls and seconds, as in [b]tokens=50000,calls=20[/b].",
        callback=check_value_argument,
    ),
]

PricesOption = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help="The prices of models, a TOML file; by default the one stored with the thread.",
    ),
]


@dataclass(frozen=True)
class DatabaseOptions:
    """The option for the database."""

    db: Annotated[
        Path | None,
        typer.Option(
            "--db",
            metavar="FILE",
            envvar=DATABASE_VARIABLE,
            help="The database file; by default one in your data folder.",
        ),
    ] = None


@dataclass(frozen=True)
class ThreadOptions(DatabaseOptions):
    """Options for the database and the thread."""

    thread: ThreadOption = None


@dataclass(frozen=True)
class OutputOptions:
    """Options for the output of every command."""

    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False
    debug: Annotated[
        bool, typer.Option("--debug", envvar="ECHELONS_DEBUG", help="Show where errors come from.")
    ] = False


@dataclass(frozen=True)
class RunOutputOptions(OutputOptions):
    """Options for the output of commands that run a turn."""

    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the answer and nothing else.")
    ] = False


@dataclass(frozen=True)
class TeamOptions:
    """Options from which a team is built."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="The chat model, such as [b]openai:gpt-5-mini[/b] or, with the extra models, "
            "[b]anthropic:claude-sonnet-4-5[/b]; by default the offline planner.",
        ),
    ] = None
    docs: Annotated[
        Path | None,
        typer.Option(
            "--docs", metavar="FOLDER", help="The folder of documents for the team [b]research[/b]."
        ),
    ] = None


@dataclass(frozen=True)
class RunTeamOptions(TeamOptions):
    """Options from which a team is built to run."""

    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Execute the Python in the team's folder; it is never stored."
        ),
    ] = False
    workspace: WorkspaceOption = None


@dataclass(frozen=True)
class CapabilityOptions(TeamOptions):
    """Options of a team whose capabilities are only read, not run."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="The chat model that derives capabilities for agents that declare none, such "
            "as [b]openai:gpt-5-mini[/b]; by default they are derived from names.",
        ),
    ] = None


@dataclass(frozen=True)
class StoredTeamOptions(RunTeamOptions):
    """Options that replace what a thread recorded about its team."""

    team: TeamOption = None
    prices: PricesOption = None
