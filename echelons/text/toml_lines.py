"""The lines of a TOML document at which its keys and its faults are; `tomllib` keeps none."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")
_CLOSERS = ("]", "}", '"""', "'''")


def describe_toml_fault(error: Exception, text: str) -> tuple[int, str]:
    """Return the line and the words of an error with which `tomllib` refuses a document."""
    fault = str(error)
    place = _TOML_PLACE.search(fault)
    line = int(place[1]) if place and place[1] else text.rstrip().count("\n") + 1
    return line, f"it is no TOML: {_TOML_PLACE.sub('', fault)}"


def find_key_line(text: str, *keys: str) -> int:
    """Return the line of a key, or of the table that it would stand in; 0 for neither."""
    # The line at which each key of a TOML document begins, by its path. `tomllib` keeps
    # no lines, so each statement is parsed by itself, under the header of its table.
    lines_by_key: dict[tuple[str, ...], int] = {}
    header, statement, begin = "", "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        statement += f"{line}\n"
        if begin < number and not any(item in line for item in _CLOSERS):
            continue  # inside a list or a text of many lines
        try:
            parsed = tomllib.loads(header + statement)
        except ValueError:
            continue
        for path in _iterate_paths(parsed):
            lines_by_key.setdefault(path, begin)
        if statement.lstrip().startswith("["):
            header = statement
        statement, begin = "", number + 1
    lines = lines_by_key
    for end in range(len(keys), 0, -1):
        if keys[:end] in lines:
            return lines[keys[:end]]
    return 0


def _iterate_paths(table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    left: list[tuple[tuple[str, ...], Any]] = [((), table)]
    while left:
        path, value = left.pop()
        if path:
            yield path
        if isinstance(value, Mapping):
            left += [((*path, key), entry) for key, entry in value.items()]
        elif isinstance(value, list):  # tables of one name
            left += [(path, item) for item in value if isinstance(item, Mapping)]
