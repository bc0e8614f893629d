"""The command line's wiring: the Typer app, its commands, and the entry point `main`.

Importing this module must stay cheap, because every completion and every `--help` does it:
the commands import what is heavy.
"""

from __future__ import annotations

from typing import Annotated

import typer

from echelons.cli import output
from echelons.cli.commands.breakers import breakers
from echelons.cli.commands.control import pause, stop
from echelons.cli.commands.draw import draw
from echelons.cli.commands.inbox import answer, inbox
from echelons.cli.commands.route import capabilities, route
from echelons.cli.commands.run import resume, run
from echelons.cli.commands.threads import show, threads
from echelons.cli.commands.trace import trace
from echelons.cli.commands.upkeep import backup, doctor, prune
from echelons.cli.exit_codes import EXIT_CODE_MEANINGS


def _format_examples(*lines: str) -> str:
    return "\n".join(["[b]Examples[/b]", *(f"  {line}" for line in lines)])


EXIT_CODES_HELP = "\n".join(
    [
        "[b]Exit codes[/b]",
        *(f"  [b]{code:>3}[/b]  {meaning}" for code, meaning in EXIT_CODE_MEANINGS.items()),
    ]
)

app = typer.Typer(
    name="echelons",
    help="Hierarchies of agents on LangGraph: run them, answer their questions, read threads.",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

app.command(
    epilog=_format_examples(
        'echelons run travel "Plan a trip to Italy with great food"',
        'echelons run research "What are circuit breakers for?" --docs notes/',
        'echelons run mine:head "Hello" --model openai:gpt-5-mini --thread hello',
        'echelons run travel "A table for two" --thread rome --turn order-17',
    )
)(run)
app.command(
    epilog=_format_examples(
        "echelons inbox",
        "echelons inbox --thread trip --json",
    )
)(inbox)
app.command(
    epilog=_format_examples(
        "echelons answer yes",
        'echelons answer 3f1c "Friday at eight, please"',
        "echelons answer 3f1c '{\"approved\": true}' --json-value",
        "echelons answer 3f1c - < letter.txt",
    )
)(answer)
app.command(
    epilog=_format_examples(
        "echelons resume",
        "echelons resume --thread trip",
        "echelons resume head/experiences",
    )
)(resume)
app.command(
    epilog=_format_examples(
        "echelons stop",
        "echelons stop head/experiences --thread trip",
        "echelons stop head/flights --json",
    )
)(stop)
app.command(
    epilog=_format_examples(
        "echelons pause",
        "echelons pause head/experiences --thread trip",
    )
)(pause)
app.command(epilog=_format_examples("echelons threads", "echelons threads --all"))(threads)
app.command(epilog=_format_examples("echelons trace", "echelons trace --thread trip --verify"))(
    trace
)
app.command(
    epilog=_format_examples("echelons show trip", "echelons show 8f1d0a52-6a5e-5c0b-9d55-…")
)(show)
app.command(
    epilog=_format_examples(
        "echelons draw travel",
        "echelons draw research --docs notes/ --mermaid",
        "echelons draw --thread trip",
    )
)(draw)
app.command(
    epilog=_format_examples(
        "echelons capabilities travel",
        "echelons capabilities mine:head --model openai:gpt-5-mini",
        "echelons capabilities research --docs notes/ --json",
    )
)(capabilities)
app.command(
    epilog=_format_examples(
        'echelons route travel "Plan a trip to Italy with great food"',
        'echelons route travel "See an opera" --at experiences',
        'echelons route mine:head "Hello" --threshold 0.5 --json',
    )
)(route)
app.command(epilog=_format_examples("echelons breakers", "echelons breakers --close flights"))(
    breakers
)
app.command(
    epilog=_format_examples(
        "echelons prune --thread trip",
        "echelons prune --thread trip --turns 3 --dry-run",
        "echelons prune --all --younger 30d --json",
    )
)(prune)
app.command(epilog=_format_examples("echelons doctor", "echelons doctor --db trips.sqlite --json"))(
    doctor
)
app.command(epilog=_format_examples("echelons backup trips-monday.sqlite"))(backup)


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
