"""Text for terminals: escaped, shortened, formatted; and checks of arguments.

A model's text is untrusted: it must not move the cursor, clear the screen or look like an
error. The commands print it through `escape_controls` only.
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

LONGEST_LINE = 100
"""Most characters of a text that is shown as one line."""

PLACEHOLDERS = ("TASK", "TEXT", "VALUE")
"""Words in the commands that are printed, where the user's own words belong."""

# Control characters but tab and newline, and the ones that reorder a line on the screen.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    r"""Return a text with the characters escaped that could control a terminal.

    >>> escape_controls("red \x1b[31malert\r\n")
    'red \\x1b[31malert\n'
    """
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


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


def format_count(number: int) -> str:
    """Return a number as short text.

    >>> format_count(954), format_count(1321), format_count(2_100_000)
    ('954', '1.3k', '2.1M')
    """
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 999_950 else f"{number / 1_000_000:.1f}M"


def format_tool_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as Python would write it.

    >>> format_tool_call("find_food", {"place": "Rome"})
    "find_food(place='Rome')"
    """
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def format_question_value(value: Any) -> str:
    r"""Return the whole text of a question, whose value may be any data.

    >>> format_question_value({"question": "Book it?", "people": 2, "choices": ["yes", "no"]})
    'Book it?\npeople: 2\nchoices: yes, no'
    >>> format_question_value({"people": 2})
    '{"people": 2}'
    >>> format_question_value({"type": "tool_approval", "name": "mail", "args": {"to": "Ann"}})
    "run mail(to='Ann')?"
    """
    from echelons.effects.approvals import find_review
    from echelons.effects.journal import is_outcome_question

    if is_outcome_question(value):
        call = format_tool_call(str(value["tool"]), value["arguments"])
        return escape_controls(f"{value['question']}\n{call}")
    if review := find_review(value):
        calls = (format_tool_call(each.tool, each.arguments) for each in review.calls)
        return escape_controls(f"run {' and '.join(calls)}?")
    if isinstance(value, Mapping) and isinstance(value.get("question"), str):
        facts = (
            f"{key}: {_format_fact(fact)}"
            for key, fact in value.items()
            if key != "question" and fact is not None
        )
        value = "\n".join([value["question"], *facts])
    return escape_controls(value if isinstance(value, str) else json.dumps(value, default=str))


def _format_fact(fact: Any) -> str:
    if isinstance(fact, list) and not any(isinstance(each, list | Mapping) for each in fact):
        return ", ".join(map(str, fact))
    return fact if isinstance(fact, str) else json.dumps(fact, default=str)


def build_command_line(*words: str, db: Path | None = None) -> str:
    """Return an `echelons` command, quoted for a shell.

    >>> build_command_line("run", "travel", "to Rome", db=Path("my trips.sqlite"))
    "echelons run travel 'to Rome' --db 'my trips.sqlite'"
    """
    where = ["--db", str(db)] if db else []
    return shlex.join(["echelons", *words, *where])


def check_text_argument(given: str | None) -> str | None:
    """Return an argument of the command line if it is valid Unicode.

    Raises:
        BadParameter: It is not, because the terminal has another encoding.
    """
    if given is not None and any("\ud800" <= character <= "\udfff" for character in given):
        raise typer.BadParameter("it is not valid text in this terminal's encoding")
    return given


def check_value_argument(given: str | None) -> str | None:
    """Return a text from the command line, unless it is the placeholder of a printed command.

    Raises:
        BadParameter: It is one, or not valid Unicode.
    """
    if given in PLACEHOLDERS:
        raise typer.BadParameter(f"{given} stands for your own words: put them in its place")
    return check_text_argument(given)


def check_name_argument(given: str | None) -> str | None:
    """Return a name from the command line if it is valid.

    Raises:
        BadParameter: It is blank, or not valid Unicode.
    """
    if given is not None and not given.strip():
        raise typer.BadParameter("it is empty")
    return check_text_argument(given)


def read_text_argument(given: str) -> str:
    """Return a text, or the whole standard input if the text is `-`.

    Raises:
        BadParameter: The input is not valid text.
    """
    if given != "-":
        return given
    try:
        return check_text_argument(sys.stdin.read().rstrip("\n")) or ""
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"the standard input is no text: {error}") from error
