"""The command line's wiring: the Typer app, its commands, and the entry point `main`.

Importing this module must stay cheap, because every completion and every `--help` does it:
the commands import what is heavy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from echelons.cli import output
from echelons.cli.commands.attach import attach
from echelons.cli.commands.breakers import breakers
from echelons.cli.commands.control import dismiss, message, pause, steer, stop, takeover
from echelons.cli.commands.draw import draw
from echelons.cli.commands.inbox import answer, inbox
from echelons.cli.commands.profiles import check, new, profiles
from echelons.cli.commands.repair import repair
from echelons.cli.commands.route import capabilities, route
from echelons.cli.commands.run import resume, run
from echelons.cli.commands.serve_mcp import serve_mcp
from echelons.cli.commands.threads import show, threads
from echelons.cli.commands.trace import trace
from echelons.cli.commands.tree import tree
from echelons.cli.commands.upkeep import backup, delete, doctor, prune
from echelons.cli.commands.usage import usage
from echelons.cli.commands.workspace import changes, discard, merge
from echelons.cli.exit_codes import EXIT_CODE_MEANINGS

EXIT_CODES_HELP = "\n".join(
    [
        "[b]Exit codes[/b]",
        *(f"  [b]{code:>3}[/b]  {meaning}" for code, meaning in EXIT_CODE_MEANINGS.items()),
    ]
)


class PlainErrorGroup(TyperGroup):
    """Prints what is wrong with a command line as plain lines, so that it can be copied.

    Rich would draw a box, and break the commands in it at its width.
    """

    def main(self, *args: Any, **given: Any) -> Any:
        """Run a command."""
        self.rich_markup_mode = None
        return super().main(*args, **given)

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

EXAMPLES: dict[Callable[..., None], tuple[str, ...]] = {
    run: (
        'run travel "Plan a trip to Italy with great food"',
        'run office/ "Add 3 and 4" --trust',
        'run research "What are circuit breakers for?" --docs notes/',
        'run mine:head "Hello" --model openai:gpt-5-mini --thread hello',
        'run travel "A table for two" --thread rome --turn order-17',
        'run travel "Find a cheaper flight" --thread rome --to head/flights',
        'run office/ "Tidy up the docs" --workspace ~/project',
        'run travel "Plan a trip to Italy" --budget calls=20,seconds=60',
    ),
    new: ("new office",),
    check: ("check office", "check office --json"),
    profiles: ("profiles", "profiles office --json"),
    inbox: ("inbox", "inbox --thread trip --json", "inbox --for anna --watch"),
    answer: (
        "answer yes",
        'answer 3f1c "Friday at eight, please"',
        "answer 3f1c '{\"approved\": true}' --json-value",
        "answer 3f1c - < letter.txt",
        'answer 3f1c reject --message "not today"',
    ),
    resume: ("resume", "resume --thread trip", "resume head/experiences"),
    stop: ("stop", "stop head/experiences --thread trip", "stop head/flights --json"),
    dismiss: (
        "dismiss head/experiences --thread trip",
        "dismiss head/flights --graceful --yes --json",
    ),
    pause: ("pause", "pause head/experiences --thread trip"),
    steer: ('steer head/flights "Look for trains instead"', "steer head - < note.txt"),
    message: ('message head/flights "Only trains, please"', "message head - < note.txt"),
    repair: (
        "repair",
        "repair 3f1c2b1e-0d5a-4c3e-9a57-2f6d8e1b7c40 --thread trip",
        "repair --undo --json",
    ),
    takeover: ("takeover trip", "takeover trip --yes --json"),
    attach: ("attach", "attach --thread trip --json"),
    threads: ("threads", "threads --all"),
    trace: ("trace", "trace --thread trip --verify"),
    tree: ("tree", "tree head/north --thread trip --depth 1", "tree --flat --json", "tree --watch"),
    usage: (
        "usage",
        "usage head/north --subtree --prices prices.toml",
        "usage --by day --all --json",
        "usage --by tree",
    ),
    show: ("show trip", "show 8f1d0a52-6a5e-5c0b-9d55-…"),
    changes: ("changes office", "changes office head/writer --json"),
    merge: ("merge office head/writer", "merge office --json"),
    discard: ("discard office head/writer", "discard office --file docs/plan.md --yes"),
    draw: ("draw travel", "draw research --docs notes/ --mermaid", "draw --thread trip"),
    capabilities: (
        "capabilities travel",
        "capabilities mine:head --model openai:gpt-5-mini",
        "capabilities research --docs notes/ --json",
    ),
    route: (
        'route travel "Plan a trip to Italy with great food"',
        'route travel "See an opera" --at experiences',
        'route mine:head "Hello" --threshold 0.5 --json',
    ),
    serve_mcp: (
        "serve-mcp travel",
        "serve-mcp travel office/ --trust --db office.sqlite",
        "serve-mcp research --docs notes/ --http --port 8765 --token-file token.txt",
    ),
    breakers: ("breakers", "breakers --close flights"),
    prune: (
        "prune --thread trip",
        "prune --thread trip --turns 3 --dry-run",
        "prune --all --younger 30d --json",
    ),
    delete: ("delete trip", "delete trip --yes"),
    doctor: ("doctor", "doctor --db trips.sqlite --json"),
    backup: ("backup trips-monday.sqlite",),
}
"""The commands, in the order of `echelons --help`, each with its examples."""

for _command, _examples in EXAMPLES.items():
    app.command(
        epilog="\n".join(["[b]Examples[/b]", *(f"  echelons {line}" for line in _examples)])
    )(_command)


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
