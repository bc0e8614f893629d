"""Searches the files that an agent sees, by a text or a regular expression, within limits.

Python's regular expressions cannot be interrupted, and some take years for a short line. So they
are matched in a process of their own, which is killed when the time is over.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic
from typing import Any, Final, NamedTuple

from echelons.errors import FileRefused, WorkspaceError
from echelons.features.workspace.changes import Changeset
from echelons.text.input_limits import shorten_repr

MAX_MATCHES: Final = 200
"""Lines that a search returns."""
MAX_SEARCHED_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all files that a search reads."""
SEARCH_SECONDS: Final = 5.0
"""Seconds that a search may take."""
MAX_LINE: Final = 500
"""Characters of a line that are returned."""
MAX_PATTERN: Final = 1000
"""Characters of a pattern."""


class Match(NamedTuple):
    """A line that was found.

    Attributes:
        path: The file.
        line: Its number, from 1.
        text: The line, shortened.
    """

    path: str
    line: int
    text: str


class SearchResult(NamedTuple):
    """The result of a search.

    Attributes:
        matches: The lines, in the order of the files.
        is_complete: Whether all files were searched; if not, a limit was met.
    """

    matches: tuple[Match, ...]
    is_complete: bool


def search_files(
    files: Changeset, pattern: str, *, is_regex: bool = False, under: str = ""
) -> SearchResult:
    """Return the lines that hold a text, or match a regular expression of Python.

    Files that are no text are passed over.

    Args:
        files: The files as an agent sees them.
        pattern: The text, or the expression.
        is_regex: Which of the two it is.
        under: A folder; all files if empty.

    Raises:
        WorkspaceError: It is empty, too long, or no regular expression; the folder is none of a
            workspace.
    """
    if not 1 <= len(pattern) <= MAX_PATTERN:
        raise _invalid_pattern(shorten_repr(pattern), f"it has not 1 to {MAX_PATTERN} characters")
    deadline = monotonic() + SEARCH_SECONDS
    texts = _Texts(files, under, deadline)
    if is_regex:
        return _match_regex(pattern, texts, deadline)
    found: list[Match] = []
    for path, text in texts:
        # Most files do not have it at all.
        if pattern not in text:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if pattern in line:
                found.append(Match(path, number, line[:MAX_LINE]))
                if len(found) == MAX_MATCHES:
                    return SearchResult(tuple(found), is_complete=False)
    return SearchResult(tuple(found), texts.is_complete)


class _Texts:
    """The texts of the files that an agent sees, until a limit is met."""

    def __init__(self, files: Changeset, under: str, deadline: float) -> None:
        self._files = files
        self._under = under
        self._deadline = deadline
        self.is_complete = True

    def __iter__(self) -> Iterator[tuple[str, str]]:
        size = 0
        for path in self._files.list_files(self._under):
            text = None
            with suppress(FileRefused):
                text = self._files.read(path)
            size += len(text or "")
            if size > MAX_SEARCHED_BYTES or monotonic() > self._deadline:
                self.is_complete = False
                return
            if text:
                yield path, text


_SCRIPT: Final = """
import json, re, sys
given = json.load(sys.stdin)
try:
    search = re.compile(given["pattern"]).search
except Exception as error:
    json.dump({"error": str(error)}, sys.stdout)
    sys.exit()
found = []
for place, text in enumerate(given["texts"]):
    for number, line in enumerate(text.split("\\n"), 1):
        if search(line):
            found.append((place, number, line[:given["width"]]))
            if len(found) == given["limit"]:
                break
    if len(found) == given["limit"]:
        break
json.dump({"found": found}, sys.stdout)
"""


def _match_regex(pattern: str, texts: _Texts, deadline: float) -> SearchResult:
    named = [*texts]
    given = {
        "pattern": pattern,
        "texts": [text for _, text in named],
        "limit": MAX_MATCHES,
        "width": MAX_LINE,
    }
    # Isolated: no module of the folder, of the user or of the environment is loaded.
    command = [sys.executable, "-I", "-S", "-c", _SCRIPT]
    try:
        run = subprocess.run(  # noqa: S603  our own script
            command,
            input=json.dumps(given).encode("ascii"),
            capture_output=True,
            timeout=max(0.1, deadline - monotonic()),
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        why = f"it takes more than {SEARCH_SECONDS:g} seconds; search for a simpler one"
        raise _invalid_pattern(shorten_repr(pattern), why) from error
    except (OSError, subprocess.CalledProcessError) as error:
        why = "no process could match it; search for a text instead"
        raise _invalid_pattern(shorten_repr(pattern), why) from error
    answer: dict[str, Any] = json.loads(run.stdout)
    if "error" in answer:
        why = f"it is no regular expression ({answer['error']})"
        raise _invalid_pattern(shorten_repr(pattern), why)
    found = tuple(Match(named[place][0], line, text) for place, line, text in answer["found"])
    return SearchResult(found, texts.is_complete and len(found) < MAX_MATCHES)


def _invalid_pattern(pattern: str, why: str) -> WorkspaceError:
    return WorkspaceError(
        "{pattern} cannot be searched for: {why}",
        code="invalid_pattern",
        pattern=pattern,
        why=why,
    )
