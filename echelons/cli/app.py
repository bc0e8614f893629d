"""The command line's wiring: the Typer app, its commands, and the entry point `main`.

Modules of commands are imported when one of their commands is called, and all for `--help`: so
importing one must stay cheap, and the commands import what is heavy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from echelons.cli import output
from echelons.cli.command import ExitCode

COMMANDS = (
    ("echelons.cli.commands.run", "run"),
    ("echelons.cli.commands.teams", "new check profiles"),
    ("echelons.cli.commands.questions", "inbox answer"),
    ("echelons.cli.commands.run", "resume"),
    ("echelons.cli.commands.control", "stop"),
    ("echelons.cli.commands.dismissal", "dismiss"),
    ("echelons.cli.commands.control", "pause"),
    ("echelons.cli.commands.mail", "steer message"),
    ("echelons.cli.commands.upkeep", "repair"),
    ("echelons.cli.commands.control", "takeover"),
    ("echelons.cli.commands.attach", "attach"),
    ("echelons.cli.commands.threads", "threads"),
    ("echelons.cli.commands.agents", "trace tree usage"),
    ("echelons.cli.commands.threads", "show"),
    ("echelons.cli.commands.workspace", "changes merge discard"),
    ("echelons.cli.commands.teams", "draw capabilities route"),
    ("echelons.cli.commands.serve_mcp", "serve-mcp"),
    ("echelons.cli.commands.upkeep", "breakers prune delete doctor backup"),
)
"""The modules of the commands, with the commands, in the order of `echelons --help`.

A feature has one line; without its module and its line, its commands are gone.
"""
MODULES = {name: module for module, names in COMMANDS for name in names.split()}
EXIT_CODES_HELP = "\n".join(
    ["[b]Exit codes[/b]", *(f"  [b]{code:>3}[/b]  {code.meaning}" for code in ExitCode)]
)


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        function = getattr(import_module(MODULES[name]), name.replace("-", "_"))
        lines = (f"  echelons {example}" for example in function.examples)
        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        single.command(name, epilog="\n".join(["[b]Examples[/b]", *lines]))(function)
        return typer.main.get_command(single)

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


class PlainErrorGroup(TyperGroup):
    """Prints what is wrong with a command line as plain lines, so that it can be copied.

    Rich would draw a box, and break the commands in it at its width.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command."""
        self.rich_markup_mode = None
        return super().main(*args, **settings)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with markup."""
        self.rich_markup_mode = "rich"
        super().format_help(ctx, formatter)


app = typer.Typer(
    name="echelons",
    cls=PlainErrorGroup,
    help="Hierarchies of agents on LangGraph: run them, answer their questions, read threads.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        output.print_result(f"echelons {version('echelons')}")
        raise typer.Exit


@app.callback()
def _parse_global_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line."""
    output.accept_any_text()
    app(prog_name="echelons")
