"""Tools for texts: count words, extract lines, replace lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import BaseModel, Field

from echelons.delegation.effects import effect
from echelons.errors import EchelonsError, ToolRefusal, get_error_name

P = ParamSpec("P")
T = TypeVar("T")


def raise_refusals(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, with errors of this library raised as `ToolException`.

    With `handle_tool_error=True`, a tool made of it answers with the text in any agent.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except EchelonsError as error:
            raise ToolException(f"{get_error_name(error)}: {error}") from error

    return call


MAX_TEXT_LENGTH: Final = 1_000_000


class TextInput(BaseModel):
    """What `count_words` takes."""

    text: str = Field(description="The text")


class ExtractInput(BaseModel):
    """What `extract_lines` takes."""

    text: str = Field(description="The text")
    containing: str = Field(description="What a line must contain, in upper or lower case")


class ReplaceInput(BaseModel):
    """What `replace_lines` takes."""

    text: str = Field(description="The text")
    first_line: int = Field(description="Number of the first line to replace, counted from 1")
    last_line: int = Field(description="Number of the last line to replace")
    replacement: str = Field(description="The new lines; empty to remove the old ones")


@effect(reads_only=True)
@raise_refusals
def measure_text(text: str) -> str:
    r"""Return how many lines, words and characters a text has.

    >>> measure_text("To be,\nor not to be")
    '2 lines, 6 words, 19 characters'
    """
    _check_length(text)
    return f"{len(text.splitlines())} lines, {len(text.split())} words, {len(text)} characters"


@effect(reads_only=True)
@raise_refusals
def extract_lines(text: str, containing: str) -> str:
    r"""Return the lines that contain a text, each with its number.

    >>> extract_lines("To be,\nor not to be", "NOT")
    '2: or not to be'
    """
    _check_length(text)
    wanted = containing.casefold()
    lines = text.splitlines()
    matches = [f"{i}: {line}" for i, line in enumerate(lines, 1) if wanted in line.casefold()]
    if not matches:
        raise _invalid_lines(f"none of {len(lines)} contains {containing[:200]!r}; ask for less")
    return "\n".join(matches)


@effect(reads_only=True)
@raise_refusals
def replace_lines(text: str, first_line: int, last_line: int, replacement: str) -> str:
    r"""Return the text with some of its lines replaced.

    >>> replace_lines("a\nb\nc", 2, 3, "d")
    'a\nd'
    """
    _check_length(text)
    _check_length(replacement)
    lines = text.splitlines()
    if not 1 <= first_line <= last_line <= len(lines):
        raise _invalid_lines(
            f"{first_line} to {last_line} are not in 1 to {len(lines)}; count again"
        )
    kept = [*lines[: first_line - 1], *replacement.splitlines(), *lines[last_line:]]
    return "\n".join(kept) + "\n" * text.endswith("\n")


def build_text_tools() -> list[BaseTool]:
    """Return the tools `count_words`, `extract_lines` and `replace_lines`.

    >>> [tool.name for tool in build_text_tools()]
    ['count_words', 'extract_lines', 'replace_lines']
    """
    return [
        StructuredTool(
            name="count_words",
            description="Count the lines, words and characters of a text.",
            args_schema=TextInput,
            func=measure_text,
            handle_tool_error=True,
        ),
        StructuredTool(
            name="extract_lines",
            description="Extract the lines of a text that contain some words, with their numbers.",
            args_schema=ExtractInput,
            func=extract_lines,
            handle_tool_error=True,
        ),
        StructuredTool(
            name="replace_lines",
            description="Replace lines of a text by their numbers, and return the whole text.",
            args_schema=ReplaceInput,
            func=replace_lines,
            handle_tool_error=True,
        ),
    ]


def _check_length(text: str) -> None:
    if len(text) > MAX_TEXT_LENGTH:
        raise _invalid_lines(f"the text has {len(text)} characters, the limit is {MAX_TEXT_LENGTH}")


def _invalid_lines(why: str) -> ToolRefusal:
    return ToolRefusal("no lines: {why}", code="invalid_lines", why=why)
