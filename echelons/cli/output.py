"""Writing of the commands: results to standard output, all else to standard error.

So a pipe gets the answer alone, and a terminal shows both. A model's text is untrusted: it must
not move the cursor, clear the screen or look like an error, so all goes through `escape_controls`.
"""

from __future__ import annotations

import codecs
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

Tracker: TypeAlias = Callable[..., Iterable[Any]]
"""Yields the items of a sequence, and shows the progress under a `description`."""

UNLIMITED_WIDTH = 10_000
"""Columns for a file or pipe, where nothing is truncated or wrapped."""
LONGEST_LINE = 100
"""Most characters of a text that is shown as one line."""
PLAIN_ERROR_HANDLER = "echelons-plain"
"""Name of the codec error handler for characters that a terminal's encoding lacks."""
_ASCII_DRAWING = {0x251C: "|", 0x2514: "`", 0x2502: "|", 0x2500: "-", 0x2026: "."}
"""ASCII for the characters that the commands draw with: tree guides and the ellipsis."""
# Control characters but tab and newline, and the ones that reorder a line on the screen.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def make_console(stream: TextIO) -> Console:
    """Return a Rich console without markup, of unlimited width where it is no terminal."""
    from rich.console import Console

    width = None if stream.isatty() else UNLIMITED_WIDTH
    return Console(file=stream, markup=False, highlight=False, emoji=False, width=width)


def make_table(*titles: str, left: int = 1) -> Table:
    """Return a table without lines, whose first columns stand at the left and fold if narrow."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(titles):
        table.add_column(title, justify="left" if place < left else "right", overflow="fold")
    return table


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


def print_json(value: Mapping[str, Any], *, err: bool = False) -> None:
    """Write a JSON object as one line; values that JSON lacks are written as strings."""
    _write_line(sys.stderr if err else sys.stdout, json.dumps(value, default=str))


def print_outcome(
    value: Mapping[str, Any], lines: Iterable[str], *remarks: str, as_json: bool
) -> None:
    """Write a JSON object for programs, or else the same as lines, and remarks beside them."""
    if as_json:
        print_json(value)
        return
    for line in lines:
        print_result(line)
    for remark in remarks:
        print_remark(remark)


def choose_tracker(*, silent: bool) -> Tracker | None:
    """Return a bar of progress on the standard error, if that is a terminal; else `None`."""
    return None if silent or not sys.stderr.isatty() else _show_progress


def _show_progress(sequence: Iterable[Any], *, description: str) -> Iterator[Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=make_console(sys.stderr), transient=True) as progress:
        yield from progress.track(sequence, description=description)


def confirm(question: str) -> None:
    """Ask on the terminal whether to go on, and end the command if not."""
    if not sys.stdin.isatty():
        why = "the standard input is no terminal to ask on; give --yes"
        raise typer.BadParameter(f"{escape_controls(question)} {why}")
    typer.confirm(escape_controls(question), abort=True, err=True)


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
    return "".join(part if part.isascii() else "?" for part in plain), error.end


def escape_controls(text: str) -> str:
    r"""Return a text with the characters escaped that could control a terminal.

    >>> escape_controls("red \x1b[31malert\r\n")
    'red \\x1b[31malert\n'
    """
    return _UNSAFE.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))


def join_lines(text: str) -> str:
    """Return a whole text as one line."""
    return " ".join(escape_controls(text).split())


def shorten_line(text: str, longest: int = LONGEST_LINE) -> str:
    r"""Return a text as one line, truncated where it is too long.

    >>> shorten_line("one\n  two three", longest=9)
    'one two …'
    """
    line = join_lines(text)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def format_duration(seconds: float) -> str:
    """Return a duration as text.

    >>> format_duration(0.42), format_duration(12.3), format_duration(185)
    ('0.4 s', '12 s', '3 min 05 s')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02d} s"


def format_number(number: int) -> str:
    """Return a number as short text.

    >>> format_number(954), format_number(1321), format_number(2_100_000)
    ('954', '1.3k', '2.1M')
    """
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 999_950 else f"{number / 1_000_000:.1f}M"


def format_count(number: int, noun: str) -> str:
    """Return how many there are of something.

    >>> format_count(1, "link"), format_count(0, "link")
    ('1 link', '0 links')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_tool_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as Python would write it.

    >>> format_tool_call("find_food", {"place": "Rome"})
    "find_food(place='Rome')"
    """
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def build_command_line(*words: str, db: Path | None = None) -> str:
    """Return an `echelons` command, quoted for a shell.

    >>> build_command_line("run", "travel", "to Rome", db=Path("my trips.sqlite"))
    "echelons run travel 'to Rome' --db 'my trips.sqlite'"
    """
    where = ["--db", str(db)] if db else []
    return shlex.join(["echelons", *words, *where])
