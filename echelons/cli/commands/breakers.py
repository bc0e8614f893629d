"""`echelons breakers`: the circuit breakers of agents that have failed."""

from __future__ import annotations

from typing import Annotated

import typer

from echelons.cli import database, output
from echelons.cli.command import command
from echelons.cli.display.text_format import check_text_argument, format_duration
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import DatabaseOptions, OutputOptions

CloseOption = Annotated[
    str | None,
    typer.Option(
        "--close",
        metavar="PATH",
        help="Close the circuit of the agent at this path, or of all with this name, so that it "
        "gets requests again.",
        callback=check_text_argument,
    ),
]


@command
def breakers(close: CloseOption = None, *, place: DatabaseOptions, how: OutputOptions) -> ExitCode:
    """List the circuit breakers of agents that have failed."""
    from echelons.checkpoints.coordination.circuit_breakers import close_circuits, list_circuits

    with database.open_database(place.db) as saver:
        if close is not None:
            close_circuits(saver.ledger, close)
        found = list_circuits(saver.ledger)
    for each in found:
        if how.json:
            output.print_json({**each._asdict(), "state": str(each.state)})
        else:
            wait = f", tried again in {format_duration(each.wait)}" if each.wait else ""
            times = f"{each.failures} failure{'' if each.failures == 1 else 's'}"
            scope = f" (scope {each.scope})" if each.scope else ""
            output.print_result(f"{each.path}{scope}: {each.state}, {times} in a row{wait}")
    if not found and not how.json:
        output.print_remark("every circuit is closed")
    return ExitCode.FINISHED
