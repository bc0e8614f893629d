"""Views of a run in progress: as lines, as JSON, or silent.

`LiveView` is the fourth. `choose_view` picks one; `turn_runner` passes it every event.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from echelons.cli import output
from echelons.cli.display.agent_board import AgentBoard
from echelons.cli.display.question_text import format_question
from echelons.cli.display.text_format import format_tool_call, join_lines, shorten_line
from echelons.cli.options import RunOutputOptions
from echelons.messaging.mail import USER
from echelons.runtime.run_events import RunEvent, RunEventKind

STOPPING_LINE = "stopping at the end of the current step; Ctrl-C again stops at once"


class RunView:
    """Shows a run in progress, entered before its first event and left after its last.

    The base class shows nothing; the answer is printed at the end.

    Attributes:
        shows_budgets: Whether it shows what is left of the budgets of agents.
    """

    shows_budgets = False

    def __enter__(self) -> None: ...

    def __exit__(self, *raised: object) -> None: ...

    def show_event(self, event: RunEvent) -> None:
        """Show an event."""

    def show_answered(self, path: str) -> None:
        """Show that a question of an agent was answered elsewhere."""

    def show_stopping(self) -> None:
        """Show that the run has been asked to stop; called in a signal handler."""

    def restore_terminal(self) -> None:
        """Restore the terminal; called in a signal handler, right before the process ends."""


def choose_view(board: AgentBoard, how: RunOutputOptions) -> RunView:
    """Return the view that fits the options and the terminal."""
    if how.json:
        return JsonView()
    if how.quiet:
        return RunView()
    if sys.stderr.isatty():
        from echelons.cli.display.live_view import LiveView

        return LiveView(board, output.make_console(sys.stderr))
    return LineView(board)


class JsonView(RunView):
    """Prints each event as a line of JSON on the standard output."""

    def show_event(self, event: RunEvent) -> None:
        """Print it."""
        output.print_json(event.as_json())


class LineView(RunView):
    """Prints each event as a line on the standard error, for logs."""

    def __init__(self, board: AgentBoard) -> None:
        self._board = board

    def show_event(self, event: RunEvent) -> None:
        """Print it, unless it needs no line, such as a token of a message."""
        formatter = _FORMATTERS.get(event.kind)
        if formatter and (text := formatter(event)):
            self._print_line(event.path, text)

    def show_answered(self, path: str) -> None:
        """Print it."""
        self._print_line(path, "was answered by another process")

    def _print_line(self, path: str, text: str) -> None:
        output.print_remark(f"{self._board.seconds:7.2f}s  {path}  {text}")

    def show_stopping(self) -> None:
        """Write past Python's buffers: the signal may have come in the middle of a write."""
        os.write(sys.stderr.fileno(), f"{STOPPING_LINE}\n".encode())


def _format_delegation(event: RunEvent) -> str:
    arguments: dict[str, Any] = event.data["arguments"]
    # Without a named subordinate, the request holds the one that routing found.
    sent: dict[str, Any] = event.data.get("request", {})
    whom = sent.get("current") or arguments.get("subordinate") or "an agent that can"
    return f"asks {shorten_line(str(whom))}: {shorten_line(str(arguments.get('message', '')))}"


def _format_question_line(event: RunEvent) -> str:
    when = " for later" if event.data.get("later") else ""
    question = format_question(event.data["value"], event.data.get("schema"))
    return f"asks you{when}: {join_lines(question)}"


_FORMATTERS: dict[RunEventKind, Callable[[RunEvent], str]] = {
    RunEventKind.TASK: lambda event: (
        f"{'goes on' if event.data.get('resumed') else 'begins'}: {shorten_line(event.content)}"
    ),
    RunEventKind.MESSAGE: lambda event: (
        f"says: {shorten_line(event.content)}" if event.content.strip() else ""
    ),
    RunEventKind.TOOL_CALL: lambda event: (
        f"calls {shorten_line(format_tool_call(event.content, event.data['arguments']))}"
    ),
    RunEventKind.TOOL_RESULT: lambda event: f"got: {shorten_line(event.content)}",
    RunEventKind.DELEGATION: _format_delegation,
    RunEventKind.RESPONSE: lambda event: (
        f"is {event.data['status']}: {shorten_line(event.data['reason'] or event.content)}"
    ),
    RunEventKind.QUESTION: _format_question_line,
    RunEventKind.WARNING: lambda event: f"is warned: {shorten_line(event.content)}",
    RunEventKind.ERROR: lambda event: f"fails: {shorten_line(event.content)}",
    RunEventKind.MAIL: lambda event: (
        f"tells you: {shorten_line(event.content)}"
        if event.data.get("to") == USER
        else f"reads from {event.data['from']}: {shorten_line(event.content)}"
    ),
    RunEventKind.INTERVENTION: lambda event: (
        f"is redirected by {event.data['from']}: {shorten_line(event.content)}"
    ),
    RunEventKind.ANSWER: lambda event: (
        f"is answered by {event.data['by'] or 'its deadline'}: {shorten_line(event.content)}"
    ),
    RunEventKind.APPROVAL: lambda event: (
        f"is told by {event.data['by'] or 'its deadline'}: {shorten_line(event.content)}"
    ),
    RunEventKind.ORDER: lambda event: f"{event.content} ordered by {event.data['by']}",
    RunEventKind.ALERT: lambda event: (
        f"alerts about {event.data['about']} ({event.data['decision']}): "
        f"{shorten_line(event.content)}"
    ),
    RunEventKind.REPORT: lambda event: f"reports: {shorten_line(event.content)}",
    RunEventKind.CUSTOM: lambda event: f"writes: {shorten_line(event.content)}",
}
