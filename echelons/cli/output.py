"""Writing of the commands: results to standard output, all else to standard error.

So a pipe gets the answer alone, and a terminal shows both.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from echelons.cli.display.text_format import escape_controls
from echelons.cli.exit_codes import ExitCode
from echelons.errors import get_error_name
from echelons.text.error_lines import read_error_text
from echelons.text.redaction import redact_secrets

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Tracker: TypeAlias = Callable[..., Iterable[Any]]
"""Yields the items of a sequence, and shows the progress under a `description`."""

UNLIMITED_WIDTH = 10_000
"""Columns for a file or pipe, where nothing is truncated or wrapped."""

PLAIN_ERROR_HANDLER = "echelons-plain"
"""Name of the codec error handler for characters that a terminal's encoding lacks."""
_ASCII_DRAWING = {0x251C: "|", 0x2514: "`", 0x2502: "|", 0x2500: "-", 0x2026: "."}
"""ASCII for the characters that the commands draw with: tree guides and the ellipsis."""


def make_console(stream: TextIO) -> Console:
    """Return a Rich console without markup, of unlimited width where it is no terminal."""
    from rich.console import Console

    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else UNLIMITED_WIDTH,
    )


def get_width() -> int:
    """Return the columns of the terminal that shows results, or of a file or pipe."""
    return make_console(sys.stdout).width


def print_result(text: str) -> None:
    """Write a result as a line."""
    _write_line(sys.stdout, escape_controls(text))


def print_prose(text: str) -> None:
    """Write a long text as a result, wrapped between words on a terminal."""
    if sys.stdout.isatty():
        from rich.text import Text

        print_drawing(Text(escape_controls(text)))
    else:
        print_result(text)


def print_drawing(drawing: RenderableType, *, soft_wrap: bool = False) -> None:
    """Write a result that Rich renders; with `soft_wrap`, the terminal wraps its lines."""
    screen = make_console(sys.stdout)
    # Captured, because Rich exits the process when the reader of a pipe has gone.
    with screen.capture() as captured:
        screen.print(drawing, soft_wrap=soft_wrap)
    _write_line(sys.stdout, captured.get().removesuffix("\n"))


def print_remark(text: str) -> None:
    """Write a line beside the result, to standard error."""
    _write_line(sys.stderr, escape_controls(text))


def choose_tracker(*, silent: bool) -> Tracker | None:
    """Return a bar of progress on the standard error, if that is a terminal; else `None`."""
    return None if silent or not sys.stderr.isatty() else _show_progress


def _show_progress(sequence: Iterable[Any], *, description: str) -> Iterator[Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=make_console(sys.stderr), transient=True) as progress:
        yield from progress.track(sequence, description=description)


def confirm(question: str) -> None:
    """Ask on the terminal whether to go on, and end the command if not.

    Raises:
        typer.BadParameter: There is no terminal.
    """
    import typer

    if not sys.stdin.isatty():
        why = "the standard input is no terminal to ask on; give --yes"
        raise typer.BadParameter(f"{escape_controls(question)} {why}")
    typer.confirm(escape_controls(question), abort=True, err=True)


def print_json(value: Mapping[str, Any], *, err: bool = False) -> None:
    """Write a JSON object as one line; values that JSON lacks are written as strings."""
    _write_line(sys.stderr if err else sys.stdout, json.dumps(value, default=str))


def print_error(error: Exception, code: ExitCode, *, as_json: bool) -> None:
    """Write an error as one line, or as a JSON object with its values."""
    unexpected = code is ExitCode.UNEXPECTED
    # A team's own code, or a library that it uses, may have raised it.
    text = redact_secrets(read_error_text(error))
    name = get_error_name(error)
    message = f"{name}: {text}" if unexpected else text
    if as_json:
        shown = {"kind": "error", "error": name, "message": message}
        values = {
            key: redact_secrets(value) if isinstance(value, str) else value
            for key, value in vars(error).items()
            if not (unexpected or key == "code" or key.startswith("_"))
        }
        print_json({**shown, "exit_code": code, **values}, err=True)
        return
    hint = " (unexpected; --debug shows where)" if unexpected else ""
    print_remark(f"error: {' '.join(message.splitlines())}{hint}")


def _write_line(stream: TextIO, text: str) -> None:
    # Not typer.echo, which writes UTF-8 even to a terminal whose encoding is ASCII.
    stream.write(f"{text}\n")
    stream.flush()


def accept_any_text() -> None:
    """Make both streams accept any text, whatever the encoding of the terminal."""
    codecs.register_error(PLAIN_ERROR_HANDLER, _replace_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors=PLAIN_ERROR_HANDLER)


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from echelons.text.stemming import remove_accents

    text = error.object[error.start : error.end]
    plain = (remove_accents(character.translate(_ASCII_DRAWING)) for character in text)
    return "".join(each if each.isascii() else "?" for each in plain), error.end
