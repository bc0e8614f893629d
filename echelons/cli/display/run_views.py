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
from echelons.cli.display.agent_board import AgentBoard
from echelons.cli.display.text_format import format_question_value, format_tool_call, shorten_line
from echelons.cli.options import RunOutputOptions
from echelons.runtime.run_events import RunEvent, RunEventKind

STOPPING_LINE = "stopping at the end of the current step; Ctrl-C again stops at once"


class RunView(Protocol):
    """Shows a run in progress; entered before its first event, left after its last."""

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show_event(self, event: RunEvent) -> None:
        """Show an event."""
        ...

    def show_stopping(self) -> None:
        """Show that the run has been asked to stop; called in a signal handler."""
        ...

    def restore_terminal(self) -> None:
        """Restore the terminal; called in a signal handler, right before the process ends."""
        ...


def choose_view(board: AgentBoard, how: RunOutputOptions) -> RunView:
    """Return the view that fits the options and the terminal."""
    if how.json:
        return JsonView()
    if how.quiet:
        return SilentView()
    if sys.stderr.isatty():
        from echelons.cli.display.live_view import LiveView

        return LiveView(board, output.make_console(sys.stderr))
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

    def show_event(self, event: RunEvent) -> None:
        """Do nothing."""

    def show_stopping(self) -> None:
        """Do nothing; the summary says it."""

    def restore_terminal(self) -> None:
        """Do nothing; the terminal was not changed."""


class JsonView(SilentView):
    """Prints each event as a line of JSON on the standard output."""

    def show_event(self, event: RunEvent) -> None:
        """Print it."""
        output.print_json(event.as_json())


class LineView(SilentView):
    """Prints each event as a line on the standard error, for logs."""

    def __init__(self, board: AgentBoard) -> None:
        self._board = board

    def show_event(self, event: RunEvent) -> None:
        """Print it, unless it needs no line, such as a token of a message."""
        text = format_event(event)
        if text:
            output.print_remark(f"{self._board.seconds:7.2f}s  {event.path}  {text}")

    def show_stopping(self) -> None:
        """Write past Python's buffers: the signal may have come in the middle of a write."""
        os.write(sys.stderr.fileno(), f"{STOPPING_LINE}\n".encode())


def format_event(event: RunEvent) -> str:
    """Return an event as a line about its agent; empty if it needs no line."""
    formatter = _FORMATTERS.get(event.kind)
    return formatter(event) if formatter else ""


def _format_message(event: RunEvent) -> str:
    return f"says: {shorten_line(event.content)}" if event.content.strip() else ""


def _format_delegation(event: RunEvent) -> str:
    arguments: dict[str, Any] = event.data["arguments"]
    # Without a named subordinate, the request holds the one that routing found.
    sent: dict[str, Any] = event.data.get("request", {})
    whom = sent.get("current") or arguments.get("subordinate") or "whoever can"
    return f"asks {shorten_line(str(whom))}: {shorten_line(str(arguments.get('message', '')))}"


def _format_response(event: RunEvent) -> str:
    return f"is {event.data['status']}: {shorten_line(event.data['reason'] or event.content)}"


_FORMATTERS: dict[RunEventKind, Callable[[RunEvent], str]] = {
    RunEventKind.TASK: lambda event: f"begins: {shorten_line(event.content)}",
    RunEventKind.MESSAGE: _format_message,
    RunEventKind.TOOL_CALL: lambda event: (
        f"calls {shorten_line(format_tool_call(event.content, event.data['arguments']))}"
    ),
    RunEventKind.TOOL_RESULT: lambda event: f"got: {shorten_line(event.content)}",
    RunEventKind.DELEGATION: _format_delegation,
    RunEventKind.RESPONSE: _format_response,
    RunEventKind.QUESTION: lambda event: (
        f"asks you: {shorten_line(format_question_value(event.data['value']))}"
    ),
    RunEventKind.ERROR: lambda event: f"fails: {shorten_line(event.content)}",
}
