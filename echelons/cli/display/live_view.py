"""The live tree: a run on a terminal, redrawn several times a second.

`draw_frame` is pure: it turns a board into a Rich renderable. `LiveView` shows it, for a
run whose standard error is a terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from echelons.cli.display.agent_board import AgentBoard, AgentRow, AgentState, OpenQuestion
from echelons.cli.display.run_views import RunView
from echelons.cli.display.text_format import escape_controls, format_count, format_duration
from echelons.tree.drawing import draw_guides
from echelons.tree.names import PATH_SEPARATOR

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
STOPPING_TEXT = "Stopping at the end of the current step. Ctrl-C again stops at once."
SHOW_CURSOR = b"\x1b[?25h\n"
MARGIN_LINES = 4
"""Lines of the terminal that the tree leaves free."""


class LiveView(RunView):
    """Shows a run on a terminal: each drawing reads the board, which has had every event."""

    shows_budgets = True

    def __init__(self, board: AgentBoard, console: Console) -> None:
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
        rows = self._board.list_rows()
        if self._ended:
            return Group(*format_rows(rows, self._board.now, self._console.width))
        return draw_frame(self._board, rows, self._console)


def draw_frame(board: AgentBoard, rows: Sequence[AgentRow], console: Console) -> RenderableType:
    """Return a drawing of a run that fits the terminal: the tree, then the root's text."""
    room = max(console.height - MARGIN_LINES, 1)
    shown = select_rows(rows, room)
    parts: list[RenderableType] = [*format_rows(shown, board.now, console.width)]
    if len(shown) < len(rows):
        parts.append(Text(f"and {len(rows) - len(shown)} more", style="dim"))
    room -= len(shown)
    asked = [line for each in board.list_questions() for line in _format_question(each, console)]
    parts += asked[: max(room, 0)]
    room -= len(asked)
    if board.root_text and room > 0:
        lines = Text(escape_controls(board.root_text).rstrip()).wrap(console, console.width)
        parts += [Text(), *lines[-room:]]
    if board.stopping:
        parts.append(Text(STOPPING_TEXT, style="yellow"))
    return Group(*parts)


def _format_question(question: OpenQuestion, console: Console) -> Iterator[Text]:
    yield Text()
    yield Text(f"{question.path} asks:", style=STATE_STYLES[AgentState.ASKING])
    for line in Text(question.text).wrap(console, max(console.width - 2, 1)):
        yield Text("  ").append_text(line)


def select_rows(rows: Sequence[AgentRow], room: int) -> list[AgentRow]:
    """Return the rows that fit, in their order: first those at work, with their superiors.

    Args:
        rows: All rows.
        room: Number of lines for them.
    """
    busy = [row for row in rows if not row.state.is_final]
    rest = [row for row in rows if row.state.is_final]
    chosen: dict[str, None] = {}
    for row in (*busy, *reversed(rest)):
        names = row.path.split(PATH_SEPARATOR)
        above = [PATH_SEPARATOR.join(names[: place + 1]) for place in range(len(names))]
        new = [path for path in above if path not in chosen]
        if len(chosen) + len(new) <= room:
            chosen.update(dict.fromkeys(new))
    return [row for row in rows if row.path in chosen]


def format_rows(rows: Sequence[AgentRow], now: float, width: int) -> list[Text]:
    """Return rows as lines of aligned columns: agent, state, time, tokens, detail.

    Args:
        rows: The rows, superiors first.
        now: The time on the board's clock, in seconds.
        width: Columns of the terminal; longer lines are truncated.
    """
    cells = [
        (
            f"{guide}{row.name}",
            row.state.value,
            "" if (seconds := row.elapsed_seconds(now)) is None else format_duration(seconds),
            f"{format_count(row.tokens)} tok" if row.tokens else "",
        )
        for guide, row in zip(
            draw_guides([row.path.count(PATH_SEPARATOR) for row in rows]), rows, strict=True
        )
    ]
    name, doing, time, tokens = (
        max((len(cell[place]) for cell in cells), default=0) for place in range(4)
    )
    lines: list[Text] = []
    for row, (who, what, spent, cost) in zip(rows, cells, strict=True):
        guide = len(who) - len(row.name)
        line = Text.assemble(
            (who[:guide], "dim"),
            (f"{who[guide:]:<{name - guide}}  ", "bold"),
            (f"{what:<{doing}}  ", STATE_STYLES[row.state]),
            f"{spent:>{time}}  {cost:>{tokens}}  ",
            # Who has ended has nothing left to spend.
            (f"{row.left}  " if row.left and not row.state.is_final else "", "dim"),
            (row.detail, "dim"),
        )
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines
