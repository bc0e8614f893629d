"""Views of a run in progress: as lines, as JSON, or silent.

`LiveView` is the fourth. `choose_view` picks one; `turn_runner` passes it every event.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from echelons.cli import output
from echelons.cli.display.agent_board import Board
from echelons.cli.display.text_format import asked, brief, call
from echelons.cli.options import RunOutput
from echelons.runtime.run_events import Kind, RunEvent

STOPPING = "stopping at the end of the current step; Ctrl-C again stops at once"


class View(Protocol):
    """Shows a run in progress; entered before its first event, left after its last."""

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, event: RunEvent) -> None:
        """Show an event."""
        ...

    def stopping(self) -> None:
        """Show that the run has been asked to stop; called in a signal handler."""
        ...

    def abandon(self) -> None:
        """Restore the terminal; called in a signal handler, right before the process ends."""
        ...


def view_of(board: Board, how: RunOutput) -> View:
    """Return the view that fits the options and the terminal."""
    if how.json:
        return JsonView()
    if how.quiet:
        return SilentView()
    if sys.stderr.isatty():
        from echelons.cli.display.live_view import LiveView

        return LiveView(board, output.console(sys.stderr))
    return LineView(board)


class SilentView:
    """Shows nothing; the answer is printed at the end."""

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, event: RunEvent) -> None:
        """Do nothing."""

    def stopping(self) -> None:
        """Do nothing; the summary says it."""

    def abandon(self) -> None:
        """Do nothing; the terminal was not changed."""


class JsonView(SilentView):
    """Prints each event as a line of JSON on the standard output."""

    def show(self, event: RunEvent) -> None:
        """Print it."""
        output.tell_json(event.as_json())


class LineView(SilentView):
    """Prints each event as a line on the standard error, for logs."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def show(self, event: RunEvent) -> None:
        """Print it, unless it needs no line, such as a token of a message."""
        text = line(event)
        if text:
            output.remark(f"{self._board.seconds:7.2f}s  {event.path}  {text}")

    def stopping(self) -> None:
        """Write past Python's buffers: the signal may have come in the middle of a write."""
        os.write(sys.stderr.fileno(), f"{STOPPING}\n".encode())


def line(event: RunEvent) -> str:
    """Return an event as a line about its agent; empty if it needs no line."""
    formatter = _LINES.get(event.kind)
    return formatter(event) if formatter else ""


def _message(event: RunEvent) -> str:
    return f"says: {brief(event.content)}" if event.content.strip() else ""


def _delegation(event: RunEvent) -> str:
    arguments: dict[str, Any] = event.data["arguments"]
    # Without a named subordinate, the request holds the one that routing found.
    sent: dict[str, Any] = event.data.get("request", {})
    whom = sent.get("current") or arguments.get("subordinate") or "whoever can"
    return f"asks {brief(str(whom))}: {brief(str(arguments.get('message', '')))}"


def _response(event: RunEvent) -> str:
    return f"is {event.data['status']}: {brief(event.data['reason'] or event.content)}"


_LINES: dict[Kind, Callable[[RunEvent], str]] = {
    Kind.TASK: lambda event: f"begins: {brief(event.content)}",
    Kind.MESSAGE: _message,
    Kind.TOOL_CALL: lambda event: f"calls {brief(call(event.content, event.data['arguments']))}",
    Kind.TOOL_RESULT: lambda event: f"got: {brief(event.content)}",
    Kind.DELEGATION: _delegation,
    Kind.RESPONSE: _response,
    Kind.QUESTION: lambda event: f"asks you: {brief(asked(event.data['value']))}",
    Kind.ERROR: lambda event: f"fails: {brief(event.content)}",
}
