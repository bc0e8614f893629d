"""The command line's wiring: the Typer app, its commands, and the entry point `main`.

Modules of commands are imported when one of their commands is called, and all for `--help`: so
importing one must stay cheap, and the commands import what is heavy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from echelons.cli import output
from echelons.cli.command import ExitCode
from echelons.features.registry import FEATURES

CORE_COMMANDS = {
    "run": "run resume",
    "teams": "new check profiles draw capabilities route",
    "control": "stop pause takeover attach",
    "threads": "threads show",
    "agents": "trace tree usage",
    "serve_mcp": "serve-mcp",
    "upkeep": "repair breakers prune delete doctor backup",
}
"""The modules of `echelons.cli.commands`, with their commands."""
ORDER = """
run new check profiles inbox answer resume stop dismiss pause steer message repair takeover attach
threads trace tree usage show changes merge discard draw capabilities route serve-mcp breakers prune
delete doctor backup
"""
"""The order of `echelons --help`; commands that it lacks come last."""


def find_modules() -> dict[str, str]:
    """Return the modules of all commands, those of features as well, in the order of the help."""
    modules = {
        name: f"echelons.cli.commands.{module}"
        for module, names in CORE_COMMANDS.items()
        for name in names.split()
    }
    for entry in FEATURES:
        for name in entry.commands.split():
            modules[name] = f"echelons.features.{entry.name}.commands"
    places = {name: place for place, name in enumerate(ORDER.split())}
    return dict(sorted(modules.items(), key=lambda item: places.get(item[0], len(places))))


MODULES = find_modules()
EXIT_CODES_HELP = "\n".join(
    ["[b]Exit codes[/b]", *(f"  [b]{code:>3}[/b]  {code.meaning}" for code in ExitCode)]
)


@cache
def _load_command(name: str) -> Any:
    function = getattr(import_module(MODULES[name]), name.replace("-", "_"))
    lines = (f"  echelons {example}" for example in function.examples)
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name, epilog="\n".join(["[b]Examples[/b]", *lines]))(function)
    return typer.main.get_command(single)


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        return _load_command(name)

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
