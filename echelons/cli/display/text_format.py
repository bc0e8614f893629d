"""Text between people, terminals and data: cleaned, shortened, quoted.

What a model says is data: it must not move the cursor, clear the screen or pose as an
error. All that the commands print of it goes through ``clean``. Pure.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

LONGEST = 100
"""Characters of a text that a line about it shows."""

# Control characters but tab and newline, and the ones that reorder a line on the screen.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    r"""Return a text with what could act on a terminal written out.

    >>> clean("red \x1b[31malert\r\n")
    'red \\x1b[31malert\n'
    """
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def brief(text: str, longest: int = LONGEST) -> str:
    r"""Return the beginning of a text as one line.

    >>> brief("one\n  two three", longest=9)
    'one two …'
    """
    line = " ".join(clean(text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def duration(seconds: float) -> str:
    """Return a time as people say it.

    >>> duration(0.42), duration(12.3), duration(185)
    ('0.4 s', '12 s', '3 min 05 s')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60:02d} s"


def count(number: int) -> str:
    """Return a number as people say it.

    >>> count(954), count(1321), count(2_100_000)
    ('954', '1.3k', '2.1M')
    """
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 999_950 else f"{number / 1_000_000:.1f}M"


def call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as a line.

    >>> call("find_food", {"place": "Rome"})
    "find_food(place='Rome')"
    """
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def asked(value: Any) -> str:
    """Return the words of a question, whose value may be any data.

    >>> asked({"question": "Book it?", "people": 2}), asked({"people": 2})
    ('Book it?', '{"people": 2}')
    """
    if isinstance(value, Mapping) and isinstance(value.get("question"), str):
        value = value["question"]
    return clean(value if isinstance(value, str) else json.dumps(value, default=str))


def command_line(*words: str, db: Path | None = None) -> str:
    """Return a call of ``echelons`` as a shell takes it.

    >>> command_line("run", "travel", "to Rome", db=Path("my trips.sqlite"))
    "echelons run travel 'to Rome' --db 'my trips.sqlite'"
    """
    where = ["--db", str(db)] if db else []
    return shlex.join(["echelons", *words, *where])


def encoded(given: str | None) -> str | None:
    """Check that a word of the command line is Unicode text.

    Raises:
        BadParameter: It is not; a terminal of another encoding wrote it.
    """
    if given is not None and any("\ud800" <= character <= "\udfff" for character in given):
        raise typer.BadParameter("it is not valid text in this terminal's encoding")
    return given


def named(given: str | None) -> str | None:
    """Check a name on the command line.

    Raises:
        BadParameter: It is no Unicode text, or blank.
    """
    if given is not None and not given.strip():
        raise typer.BadParameter("it is empty")
    return encoded(given)


def text_or_stdin(given: str) -> str:
    """Return a text, or all of the standard input if the text is ``-``.

    Raises:
        BadParameter: The input is no text.
    """
    if given != "-":
        return given
    try:
        return encoded(sys.stdin.read().rstrip("\n")) or ""
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"the standard input is no text: {error}") from error
