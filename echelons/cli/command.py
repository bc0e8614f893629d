"""What all commands share: options, exit codes, errors in one line.

`command` wraps a command's function before Typer sees it.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from echelons.checkpoints.default_path import DATABASE_VARIABLE
from echelons.cli import output
from echelons.errors import EchelonsError, ThreadBusy, get_error_name
from echelons.text.error_lines import format_traceback, read_error_text, redact_secrets

BROKEN_PIPE_CODE = 141
"""Exit code of a program whose output pipe was closed by its reader: 128 + SIGPIPE."""
PLACEHOLDERS = ("TASK", "TEXT", "VALUE")
"""Words in the commands that are printed, where the user's own words belong."""


class ExitCode(IntEnum):
    """How a command ended, with the meaning that `echelons --help` shows."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        """Return a member with its meaning."""
        member = int.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    FINISHED = 0, "finished"
    UNEXPECTED = 1, "unexpected error; --debug shows where"
    USAGE = 2, "the command line is wrong"
    REFUSED = 3, "refused, with the reason: an unknown team, no such thread, no key …"
    ASKING = 4, "the turn waits for an answer: `echelons inbox`"
    FAILED = 5, "the turn stopped at an error, or is paused, and is stored: `echelons resume`"
    BROKEN = 6, "`echelons trace --verify`, `doctor` or `check` found something broken"
    BUSY = 7, "another process is running the thread: try again, or use another thread"
    NO_AGENT = 8, "`echelons route` found no agent that fits the task"
    INTERRUPTED = 130, "stopped by Ctrl-C; all that was done is stored: `echelons resume`"


def check_text(text: str | None) -> str | None:
    """Return an argument if it is valid Unicode, which it is not in another encoding."""
    if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
        raise typer.BadParameter("it is not valid text in this terminal's encoding")
    return text


def check_value(text: str | None) -> str | None:
    """Return an argument, unless it is the placeholder of a printed command."""
    if text in PLACEHOLDERS:
        raise typer.BadParameter(f"{text} stands for your own words: put them in its place")
    return check_text(text)


def check_name(name: str | None) -> str | None:
    """Return an argument that is a name, unless it is blank."""
    if name is not None and not name.strip():
        raise typer.BadParameter("it is empty")
    return check_text(name)


def read_text(text: str) -> str:
    """Return a text, or the whole standard input if the text is `-`."""
    if text != "-":
        return text
    try:
        return check_text(sys.stdin.read().rstrip("\n")) or ""
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"the standard input is no text: {error}") from error


def complete_team(incomplete: str) -> list[str]:
    """Return the shipped teams, and the folders of teams, that start with the text."""
    from echelons.cli.team_loader import list_shipped_teams

    shipped = [name for name in list_shipped_teams() if name.startswith(incomplete)]
    return shipped + complete_team_folder(incomplete)


def complete_team_folder(incomplete: str) -> list[str]:
    """Return the folders of teams that start with the text; nothing in them is read."""
    from echelons.cli.team_loader import list_team_folders

    prefix = incomplete[: incomplete.rfind("/") + 1]
    names = [f"{prefix}{folder.name}" for folder in list_team_folders(Path(prefix or "."))]
    return [name for name in names if name.startswith(incomplete)]


def complete_thread(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the labels of threads that start with the text; never fails, creates no database."""
    from echelons.cli.database import list_roots, open_database, root_label

    try:
        with open_database(ctx.params.get("db")) as saver:
            labels = [root_label(root) for root in list_roots(saver)]
    except EchelonsError:
        return []
    return [label for label in labels if label.startswith(incomplete)]


def complete_agent(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the paths of a thread's agents that start with the text; never fails."""
    from echelons.cli.database import open_thread

    place = ThreadOptions(ctx.params.get("db"), ctx.params.get("thread"))
    try:
        with open_thread(place, quietly=True) as thread:
            paths = [agent.path for agent in thread.store.registry(thread.id).agents]
    except EchelonsError:
        return []
    return [path for path in paths if path.startswith(incomplete)]


Check = Callable[[str | None], str | None]


def text_argument(
    metavar: str, text: str, complete: Any = None, check: Check | None = check_name
) -> Any:
    """Return the description of an argument with a help text, its completion and its check."""
    return typer.Argument(metavar=metavar, help=text, autocompletion=complete, callback=check)


def text_option(
    name: str, metavar: str, text: str, complete: Any = None, check: Check | None = check_name
) -> Any:
    """Return the description of an option with a help text, its completion and its check."""
    return typer.Option(name, metavar=metavar, help=text, autocompletion=complete, callback=check)


TeamArgument = Annotated[
    str,
    text_argument(
        "TEAM",
        "A shipped team ([b]travel[/b], [b]research[/b], [b]search[/b]), or your own: its "
        "folder, or [b]module:agent[/b].",
        complete_team,
    ),
]
ThreadArgument = Annotated[
    str, text_argument("THREAD", "The root thread, by name or id.", complete_thread)
]
AgentArgument = Annotated[
    str | None,
    text_argument(
        "PATH",
        "The agent, such as [b]head/north[/b], with all below it; by default the whole tree.",
    ),
]
ByOption = Annotated[
    str | None,
    text_option(
        "--by",
        "NAME",
        "Who does this, which is stored and not checked; by default the user of the system.",
    ),
]
TeamOption = Annotated[
    str | None,
    text_option(
        "--team",
        "TEAM",
        "The team to use instead of the one stored with the thread.",
        complete_team,
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
    """The option for the database; each field of such a class is one option."""

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

    thread: Annotated[
        str | None,
        text_option("--thread", "NAME", "The thread, by name or id.", complete_thread),
    ] = None


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
class StoredTeamOptions(RunTeamOptions):
    """Options that replace what a thread recorded about its team."""

    team: TeamOption = None
    prices: PricesOption = None


def command(
    *examples: str,
) -> Callable[[Callable[..., ExitCode | None]], Callable[..., None]]:
    """Return a decorator that turns a function into a Typer command with examples in its help.

    A parameter whose type is a dataclass of options becomes one option for each field; one of
    them is an `OutputOptions`. The function returns its exit code, or `None` if it has finished;
    an exception becomes one line on the standard error and an exit code.
    """

    def wrap(function: Callable[..., ExitCode | None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        groups = {
            name: hint
            for name, hint in hints.items()
            if isinstance(hint, type) and is_dataclass(hint)
        }

        @wraps(function)
        def run(**values: Any) -> None:
            for name, group in groups.items():
                values[name] = group(
                    **{field.name: values.pop(field.name) for field in fields(group)}
                )
            how = next(value for value in values.values() if isinstance(value, OutputOptions))
            raise typer.Exit(_run_guarded(lambda: function(**values), how))

        del run.__wrapped__  # Typer would look through the wrapper at the dataclasses
        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            if group := groups.get(parameter.name):
                options = get_type_hints(group, include_extras=True)
                parameters += [
                    inspect.Parameter(
                        option.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=option.default,
                        annotation=options[option.name],
                    )
                    for option in fields(group)
                ]
            else:
                parameters.append(
                    parameter.replace(
                        annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY
                    )
                )
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        vars(run).update(__signature__=inspect.Signature(parameters), examples=examples)
        return run

    return wrap


def _run_guarded(work: Callable[[], ExitCode | None], how: OutputOptions) -> int:
    # A failure is logged with its traceback; users see the outcome, and `trace --errors` the rest.
    log = logging.getLogger("echelons")
    handler = logging.StreamHandler() if how.debug else logging.NullHandler()
    log.addHandler(handler)
    try:
        return work() or ExitCode.FINISHED
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        output.print_remark("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE_CODE
    except Exception as error:  # noqa: BLE001  the last line of defence: a line, not a traceback
        code = _choose_exit_code(error)
        if how.debug:
            output.print_remark(format_traceback(error))
        print_error(error, code, as_json=how.json)
        return code
    finally:
        log.removeHandler(handler)


def _choose_exit_code(error: Exception) -> ExitCode:
    if isinstance(error, ThreadBusy):
        return ExitCode.BUSY
    if isinstance(error, EchelonsError):
        return ExitCode.FAILED if error.code == "run_failed" else ExitCode.REFUSED
    return ExitCode.UNEXPECTED


def print_error(error: Exception, code: ExitCode, *, as_json: bool) -> None:
    """Write an error as one line, or as a JSON object with its values."""
    unexpected = code is ExitCode.UNEXPECTED
    # A team's own code, or a library that it uses, may have raised it.
    text = redact_secrets(read_error_text(error))
    name = get_error_name(error)
    message = f"{name}: {text}" if unexpected else text
    if as_json:
        values = {
            key: redact_secrets(value) if isinstance(value, str) else value
            for key, value in vars(error).items()
            if not (unexpected or key == "code" or key.startswith("_"))
        }
        head = {"kind": "error", "error": name, "message": message}
        output.print_json({**head, "exit_code": code, **values}, err=True)
        return
    hint = " (unexpected; --debug shows where)" if unexpected else ""
    output.print_remark(f"error: {' '.join(message.splitlines())}{hint}")
