"""`file_tools`: the tools with which an agent reads, searches and proposes to change files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.config import get_config

from echelons.delegation.effects import effect, idempotency_key
from echelons.errors import FileRefused, ThreadError, WorkspaceError, file_refused
from echelons.features.workspace.changes import Changeset, get_changeset
from echelons.text.input_limits import shorten_repr

MAX_SHOWN: Final = 50_000
"""Characters that a tool returns; a model reads on from there."""
MAX_LINES: Final = 2000
"""Lines of a file that a tool returns at once."""


def file_tools(*, read_only: bool = False) -> list[BaseTool]:
    """Return the tools with which an agent works on the files of a workspace.

    The workspace is the one that `Session(workspace=...)` names; without one, every call is
    refused. What an agent writes is its proposal, which `Session.changes` shows and
    `Session.merge` puts into the folder.

    Args:
        read_only: Leave out the tools that write.

    Examples:
        >>> from echelons import Agent
        >>> from echelons.workspace_tools import file_tools
        >>> writer = Agent("writer", tools=file_tools())
        >>> [each.name for each in file_tools(read_only=True)]
        ['read_file', 'list_files', 'search_files', 'diff_files']
    """
    readers: list[Callable[..., str]] = [_read_file, _list_files, _search_files, _diff_files]
    writers: list[Callable[..., str]] = [_write_file, _edit_file, _delete_file]
    reading = [effect(reads_only=True)(build_tool(reader)) for reader in readers]
    if read_only:
        return reading
    # Each call is remembered with the change, so one that is repeated changes nothing twice.
    return [*reading, *(effect(idempotent=True)(build_tool(writer)) for writer in writers)]


def review_tools() -> list[BaseTool]:
    """Return the tools with which a superior reviews, merges and discards its agents' changes.

    They reach the agents below it, and no others. A person does the same with `Session.changes`,
    `merge` and `discard`.

    Examples:
        >>> [each.name for each in review_tools()]
        ['review_changes', 'merge_changes', 'discard_changes']
    """
    return [
        effect(reads_only=True)(build_tool(_review_changes)),
        # A merge goes on where it was, and what is discarded is gone.
        *(
            effect(idempotent=True)(build_tool(function))
            for function in (_merge_changes, _discard_changes)
        ),
    ]


def build_tool(function: Callable[..., str]) -> BaseTool:
    """Return the tool of a function, with its name and docstring."""
    return StructuredTool.from_function(
        function,
        name=function.__name__.removeprefix("_"),
        parse_docstring=True,
        handle_tool_error=_describe_refusal,
    )


def _describe_refusal(error: ToolException) -> str:
    return f"Error: {error}"


@contextmanager
def _open_files(subordinate: str = "") -> Iterator[Changeset]:
    """Open the files of the calling agent, or of one below; its model reads refusals."""
    with refuse_to_model():
        yield get_changeset(find_config(), subordinate)


@contextmanager
def refuse_to_model() -> Iterator[None]:
    """Tell the model what of its call is refused, as the result of the call."""
    try:
        yield
    except WorkspaceError as error:
        raise ToolException(str(error)) from error


def find_config() -> RunnableConfig:
    """Return the config of the run that calls a tool; an empty one outside of a run."""
    try:
        return get_config()
    except RuntimeError:
        return {}


def get_call() -> str:
    """Return the idempotency key of the call of a tool; empty outside of a tree."""
    try:
        return idempotency_key(find_config())
    except ThreadError:
        return ""


def _read_file(path: str, first_line: int = 1) -> str:
    """Read a text file of the workspace, with your own changes.

    Args:
        path: The file, such as "docs/plan.md".
        first_line: The line to begin at, from 1.
    """
    with _open_files() as files:
        text = files.read(path)
        if text is None:
            raise file_refused(path, "there is no such file; list_files shows them")
    # As many lines of a text as a model is shown at once, and where to read on.
    first = max(first_line, 1)
    lines = text.split("\n")
    if first > len(lines) or not text:
        return f"[the file has {len(lines) if text else 0} lines]"
    shown, size = list[str](), 0
    for line in lines[first - 1 : first - 1 + MAX_LINES]:
        size += len(line) + 1
        if shown and size > MAX_SHOWN:
            break
        shown.append(line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]} [the line goes on]")
    after = first + len(shown)
    if after <= len(lines):
        shown.append(f"[of {len(lines)} lines; read on with first_line={after}]")
    return "\n".join(shown)


def _list_files(folder: str = "") -> str:
    """List the files of the workspace, with your own changes.

    Args:
        folder: A folder, such as "docs"; everything if left out.
    """
    with _open_files() as files:
        return cut_text("\n".join(files.list_files(folder))) or "no files"


def _search_files(pattern: str, regex: bool = False, folder: str = "") -> str:
    """Search the files of the workspace, with your own changes, and list the lines found.

    Args:
        pattern: A text, or a regular expression.
        regex: Whether it is a regular expression.
        folder: A folder, such as "docs"; everything if left out.
    """
    with _open_files() as files:
        result = search_files(files, pattern, is_regex=regex, under=folder)
    shown = "\n".join(f"{match.path}:{match.line}: {match.text}" for match in result.matches)
    if not result.is_complete:
        return cut_text(f"{shown}\n[there may be more; search for less, or in a folder]")
    return cut_text(shown) or "nothing found"


def _diff_files(path: str = "") -> str:
    """Show what you have changed in the workspace, as a diff.

    Args:
        path: A file; all your changes if left out.
    """
    with _open_files() as files:
        changes = files.list_changes([path] if path else [])
    notes = (f"{change.path}: {change.conflict}\n" for change in changes if change.conflict)
    return cut_text("".join((*notes, *(change.diff for change in changes)))) or "no changes"


def _write_file(path: str, text: str) -> str:
    """Write a text file of the workspace: a new one, or another text for one that is there.

    Args:
        path: The file, such as "docs/plan.md".
        text: Its whole text.
    """
    with _open_files() as files:
        files.write(path, text, get_call())
    return f"wrote {path}"


def _edit_file(path: str, old: str, new: str) -> str:
    """Replace a text in a file of the workspace; the text must be in it exactly once.

    Args:
        path: The file, such as "docs/plan.md".
        old: The text to replace, with enough around it to be in the file only once.
        new: The text in its place.
    """
    with _open_files() as files:
        files.edit(path, old, new, get_call())
    return f"edited {path}"


def _delete_file(path: str) -> str:
    """Remove a file of the workspace.

    Args:
        path: The file, such as "docs/plan.md".
    """
    with _open_files() as files:
        files.delete(path, get_call())
    return f"removed {path}"


def _review_changes(agent: str) -> str:
    """Show what a subordinate would change in the workspace, as a diff, and what is in conflict.

    Args:
        agent: The subordinate by its name, or an agent further down by its path.
    """
    with _open_files(_check_agent(agent)) as files:
        changes = files.list_changes()
    notes = (f"{change.path}: {change.conflict}\n" for change in changes if change.conflict)
    return cut_text("".join((*notes, *(change.diff for change in changes)))) or "no changes"


def _merge_changes(agent: str) -> str:
    """Put the changes of a subordinate into the workspace; files in conflict are left.

    Args:
        agent: The subordinate by its name, or an agent further down by its path.
    """
    with _open_files(_check_agent(agent)) as files:
        result = files.merge()
    left = "".join(f"\nleft {path}: {why}" for path, why in result.left)
    return f"merged: {', '.join(result.merged) or 'nothing'}{left}"


def _discard_changes(agent: str, paths: list[str] | None = None) -> str:
    """Forget the changes of a subordinate.

    Args:
        agent: The subordinate by its name, or an agent further down by its path.
        paths: The files whose changes are forgotten; all if left out.
    """
    with _open_files(_check_agent(agent)) as files:
        gone = files.discard(paths or ())
    return f"discarded: {', '.join(gone) or 'nothing'}"


def _check_agent(agent: str) -> str:
    if not agent.strip():
        raise ToolException("name the agent whose changes are meant")
    return agent


def cut_text(text: str) -> str:
    """Return a text, cut off where it is more than a model is shown at once."""
    if len(text) <= MAX_SHOWN:
        return text
    left = len(text) - MAX_SHOWN
    return f"{text[:MAX_SHOWN]}\n[{left} more characters are left out; name a file or a folder]"


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
    matches: list[Match] = []
    for path, text in texts:
        # Most files do not have it at all.
        if pattern not in text:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if pattern in line:
                matches.append(Match(path, number, line[:MAX_LINE]))
                if len(matches) == MAX_MATCHES:
                    return SearchResult(tuple(matches), is_complete=False)
    return SearchResult(tuple(matches), texts.is_complete)


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
    query = {
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
            input=json.dumps(query).encode("ascii"),
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
    matches = tuple(Match(named[place][0], line, text) for place, line, text in answer["found"])
    return SearchResult(matches, texts.is_complete and len(matches) < MAX_MATCHES)


def _invalid_pattern(pattern: str, why: str) -> WorkspaceError:
    return WorkspaceError(
        "{pattern} cannot be searched for: {why}",
        code="invalid_pattern",
        pattern=pattern,
        why=why,
    )
