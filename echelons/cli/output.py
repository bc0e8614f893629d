"""Writing of the commands: results to standard output, all else to standard error.

So a pipe gets the answer alone, and a terminal shows both.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from echelons.cli.display.text_format import clean
from echelons.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

UNLIMITED = 10_000
"""Columns for a file or pipe, where nothing is truncated or wrapped."""

PLAIN = "echelons-plain"
"""Name of the codec error handler for characters that a terminal's encoding lacks."""
_INSTEAD = {0x251C: "|", 0x2514: "`", 0x2502: "|", 0x2500: "-", 0x2026: "."}
"""ASCII for the characters that the commands draw with: tree guides and the ellipsis."""


def console(stream: TextIO) -> Console:
    """Return a Rich console without markup, of unlimited width where it is no terminal."""
    from rich.console import Console

    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else UNLIMITED,
    )


def tell(text: str) -> None:
    """Write a result as a line."""
    _write(sys.stdout, clean(text))


def tell_prose(text: str) -> None:
    """Write a long text as a result, wrapped between words on a terminal."""
    if sys.stdout.isatty():
        from rich.text import Text

        tell_drawn(Text(clean(text)))
    else:
        tell(text)


def tell_drawn(drawing: RenderableType) -> None:
    """Write a result that Rich renders."""
    screen = console(sys.stdout)
    # Captured, because Rich exits the process when the reader of a pipe has gone.
    with screen.capture() as captured:
        screen.print(drawing)
    _write(sys.stdout, captured.get().removesuffix("\n"))


def remark(text: str) -> None:
    """Write a line beside the result, to standard error."""
    _write(sys.stderr, clean(text))


def tell_json(value: Mapping[str, Any], *, err: bool = False) -> None:
    """Write a JSON object as one line; values that JSON lacks are written as strings."""
    _write(sys.stderr if err else sys.stdout, json.dumps(value, default=str))


def tell_error(error: Exception, code: ExitCode, *, as_json: bool) -> None:
    """Write an error as one line, or as a JSON object with its values."""
    unexpected = code is ExitCode.UNEXPECTED
    message = f"{type(error).__name__}: {error}" if unexpected else str(error)
    if as_json:
        name, values = type(error).__name__, {} if unexpected else vars(error)
        tell_json(
            {"kind": "error", "error": name, "message": message, "exit_code": code, **values},
            err=True,
        )
        return
    hint = " (unexpected; --debug shows where)" if unexpected else ""
    remark(f"error: {' '.join(message.splitlines())}{hint}")


def _write(stream: TextIO, text: str) -> None:
    # Not typer.echo, which writes UTF-8 even to a terminal whose encoding is ASCII.
    stream.write(f"{text}\n")
    stream.flush()


def adapt_streams() -> None:
    """Make both streams accept any text, whatever the encoding of the terminal."""
    codecs.register_error(PLAIN, _plainly)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=PLAIN)


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from echelons.text.stemming import fold

    text = error.object[error.start : error.end]
    plain = (fold(character.translate(_INSTEAD)) for character in text)
    return "".join(each if each.isascii() else "?" for each in plain), error.end
