"""Views of a run in progress: a live tree on a terminal, lines, JSON, or silent.

`choose_view` picks one, which is passed every event after the board has had it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from echelons.cli import output
from echelons.cli.board import AgentBoard, AgentRow, AgentState, describe_event
from echelons.cli.command import RunOutputOptions
from echelons.cli.output import escape_controls, format_duration, format_number
from echelons.tree.drawing import draw_guides
from echelons.tree.names import PATH_SEPARATOR

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from echelons.runtime.run_events import RunEvent

STATE_STYLES = {
    AgentState.WAITING: "dim",
    AgentState.RUNNING: "cyan",
    AgentState.ASKING: "bold yellow",
    AgentState.DONE: "green",
    AgentState.PARTIAL: "yellow",
    AgentState.UNABLE: "red",
    AgentState.NEEDS_INPUT: "yellow",
    AgentState.FAILED: "bold red",
    AgentState.STOPPED: "yellow",
    AgentState.DISMISSED: "dim",
}
STOPPING_LINE = "stopping at the end of the current step; Ctrl-C again stops at once"
STOPPING_TEXT = "Stopping at the end of the current step. Ctrl-C again stops at once."
SHOW_CURSOR = b"\x1b[?25h\n"
MARGIN_LINES = 4
"""Lines of the terminal that the tree leaves free."""


class RunView:
    """Shows a run in progress, entered before its first event and left after its last.

    The base class shows nothing; the answer is printed at the end.
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
    is_terminal = sys.stderr.isatty()
    return LiveView(board, output.make_console(sys.stderr)) if is_terminal else LineView(board)


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
        if text := describe_event(event):
            self._print_line(event.path, text)

    def show_answered(self, path: str) -> None:
        """Print it."""
        self._print_line(path, "was answered by another process")

    def _print_line(self, path: str, text: str) -> None:
        output.print_remark(f"{self._board.seconds:7.2f}s  {path}  {text}")

    def show_stopping(self) -> None:
        """Write past Python's buffers: the signal may have come in the middle of a write."""
        os.write(sys.stderr.fileno(), f"{STOPPING_LINE}\n".encode())


class LiveView(RunView):
    """Draws a run on a terminal several times a second, from what the board has by then."""

    shows_budgets = True

    def __init__(self, board: AgentBoard, console: Console) -> None:
        from rich.live import Live

        self._board = board
        self._console = console
        self._ended = False
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=8)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *raised: object) -> None:
        self._ended = True
        self._live.stop()

    def restore_terminal(self) -> None:
        """Show the terminal's cursor again."""
        # Not through Rich, whose locks the interrupted code may hold.
        os.write(self._console.file.fileno(), SHOW_CURSOR)

    def _draw(self) -> RenderableType:
        if self._ended:
            return build_table(self._board.list_rows(), self._board.now)
        return draw_frame(self._board, self._console)


def draw_frame(board: AgentBoard, console: Console) -> RenderableType:
    """Return a drawing of a run that fits the terminal: the tree, then the root's text."""
    from rich.console import Group
    from rich.text import Text

    room = max(console.height - MARGIN_LINES, 1)
    rows = board.list_rows()
    shown = select_rows(rows, room)
    parts: list[RenderableType] = [build_table(shown, board.now)]
    if len(shown) < len(rows):
        parts.append(Text(f"and {len(rows) - len(shown)} more", style="dim"))
    room -= len(shown)
    questions: list[Text] = []
    for question in board.list_questions():
        questions += (Text(), Text(f"{question.path} asks:", STATE_STYLES[AgentState.ASKING]))
        for line in Text(question.text).wrap(console, max(console.width - 2, 1)):
            questions.append(Text("  ").append_text(line))
    parts += questions[: max(room, 0)]
    room -= len(questions)
    if board.root_text and room > 0:
        lines = Text(escape_controls(board.root_text).rstrip()).wrap(console, console.width)
        parts += [Text(), *lines[-room:]]
    if board.stopping:
        parts.append(Text(STOPPING_TEXT, style="yellow"))
    return Group(*parts)


def select_rows(rows: Sequence[AgentRow], room: int) -> list[AgentRow]:
    """Return the rows that fit, in their order: first those at work, with their superiors."""
    busy = [row for row in rows if not row.state.is_final]
    rest = [row for row in rows if row.state.is_final]
    chosen: dict[str, None] = {}
    for row in (*busy, *reversed(rest)):
        names = row.path.split(PATH_SEPARATOR)
        paths = (PATH_SEPARATOR.join(names[: place + 1]) for place in range(len(names)))
        new = [path for path in paths if path not in chosen]
        if len(chosen) + len(new) <= room:
            chosen.update(dict.fromkeys(new))
    return [row for row in rows if row.path in chosen]


def build_table(rows: Sequence[AgentRow], now: float) -> Table:
    """Return a line for each agent, superiors first: its state, time, tokens, budget, detail."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_column()  # alone has less room on a narrow terminal
    guides = draw_guides([row.path.count(PATH_SEPARATOR) for row in rows])
    for guide, row in zip(guides, rows, strict=True):
        seconds = row.elapsed_seconds(now)
        # Agents that have ended have nothing left to spend.
        left = f"{row.left}  " if row.left and not row.state.is_final else ""
        table.add_row(
            Text.assemble((guide, "dim"), (row.name, "bold")),
            Text(row.state.value, STATE_STYLES[row.state]),
            "" if seconds is None else format_duration(seconds),
            f"{format_number(row.tokens)} tok" if row.tokens else "",
            Text(f"{left}{row.detail}", "dim", no_wrap=True, overflow="ellipsis"),
        )
    return table
