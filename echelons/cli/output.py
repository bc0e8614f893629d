"""Where the commands write: results to the standard output, all else to the standard error.

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
"""Columns of a file or pipe, in which nothing is cut off or wrapped."""

PLAIN = "echelons-plain"
"""Name of the way to write what a terminal's encoding does not have."""
_INSTEAD = {0x251C: "|", 0x2514: "`", 0x2502: "|", 0x2500: "-", 0x2026: "."}
"""The signs that the commands themselves draw with: guides of trees, the ellipsis."""


def console(stream: TextIO) -> Console:
    """Return a console that shows text as it is, whole where it is no terminal."""
    from rich.console import Console

    return Console(
        file=stream,
        markup=False,
        highlight=False,
        emoji=False,
        width=None if stream.isatty() else UNLIMITED,
    )


def tell(text: str) -> None:
    """Write a result."""
    _write(sys.stdout, clean(text))


def tell_prose(text: str) -> None:
    """Write a result of many words; a terminal gets it wrapped between them."""
    if sys.stdout.isatty():
        from rich.text import Text

        tell_drawn(Text(clean(text)))
    else:
        tell(text)


def tell_drawn(drawing: RenderableType) -> None:
    """Write a result that Rich draws."""
    screen = console(sys.stdout)
    # Captured, for Rich ends the process by itself when a pipe's reader has gone.
    with screen.capture() as captured:
        screen.print(drawing)
    _write(sys.stdout, captured.get().removesuffix("\n"))


def remark(text: str) -> None:
    """Write something beside the result."""
    _write(sys.stderr, clean(text))


def tell_json(value: Mapping[str, Any], *, err: bool = False) -> None:
    """Write a JSON object as one line; what JSON does not know is written as text."""
    _write(sys.stderr if err else sys.stdout, json.dumps(value, default=str))


def tell_error(error: Exception, code: ExitCode, *, as_json: bool) -> None:
    """Write an error as one line: what it is, its values, and the way out."""
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
    # Not typer.echo, which writes UTF-8 to a terminal that has said it knows ASCII only.
    stream.write(f"{text}\n")
    stream.flush()


def adapt_streams() -> None:
    """Let both streams write any text, whatever the encoding of the terminal is."""
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
