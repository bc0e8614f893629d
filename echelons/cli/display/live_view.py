"""The live tree: a run on a terminal, redrawn several times a second.

`draw_frame` is pure: it turns a board into a Rich renderable. `LiveView` shows it, for a
run whose standard error is a terminal.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from echelons.cli.display.agent_board import Board, Doing, Row
from echelons.cli.display.text_format import clean, count, duration
from echelons.runtime.run_events import RunEvent
from echelons.tree.names import PATH_SEPARATOR

STYLES = {
    Doing.WAITING: "dim",
    Doing.RUNNING: "cyan",
    Doing.ASKING: "bold yellow",
    Doing.DONE: "green",
    Doing.PARTIAL: "yellow",
    Doing.UNABLE: "red",
    Doing.NEEDS_INPUT: "yellow",
    Doing.FAILED: "bold red",
    Doing.STOPPED: "yellow",
}
STOPPING = "Stopping at the end of the current step. Ctrl-C again stops at once."
SHOW_CURSOR = b"\x1b[?25h\n"
FRAMES = 8
"""Drawings a second."""
MARGIN = 4
"""Lines of the terminal that the tree leaves free."""


class LiveView:
    """Shows a run on a terminal.

    Args:
        board: The agents of the run.
        console: The terminal.
    """

    def __init__(self, board: Board, console: Console) -> None:
        self._board = board
        self._console = console
        self._ended = False
        self._live = Live(get_renderable=self._frame, console=console, refresh_per_second=FRAMES)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = True
        self._live.stop()

    def show(self, event: RunEvent) -> None:
        """Do nothing: the board has the event, and the next drawing shows it."""

    def stopping(self) -> None:
        """Do nothing: the next drawing says it."""

    def abandon(self) -> None:
        """Show the terminal's cursor again, because the process is about to end."""
        # Not through Rich, whose locks the interrupted code may hold.
        os.write(self._console.file.fileno(), SHOW_CURSOR)

    def _frame(self) -> RenderableType:
        rows = self._board.rows()
        if self._ended:
            return Group(*lines_of(rows, self._board.now, self._console.width))
        return frame(self._board, rows, self._console)


def frame(board: Board, rows: Sequence[Row], console: Console) -> RenderableType:
    """Return a drawing of a run that fits the terminal: the tree, then the root's text."""
    room = max(console.height - MARGIN, 1)
    shown = fitting(rows, room)
    parts: list[RenderableType] = [*lines_of(shown, board.now, console.width)]
    if len(shown) < len(rows):
        parts.append(Text(f"and {len(rows) - len(shown)} more", style="dim"))
    room -= len(shown)
    if board.speech and room > 0:
        lines = Text(clean(board.speech).rstrip()).wrap(console, console.width)
        parts += [Text(), *lines[-room:]]
    if board.stopping:
        parts.append(Text(STOPPING, style="yellow"))
    return Group(*parts)


def fitting(rows: Sequence[Row], room: int) -> list[Row]:
    """Return the rows that fit, in their order: first those at work, with their superiors.

    Args:
        rows: All rows.
        room: Number of lines for them.
    """
    busy = [row for row in rows if not row.doing.is_over]
    rest = [row for row in rows if row.doing.is_over]
    chosen: dict[str, None] = {}
    for row in (*busy, *reversed(rest)):
        names = row.path.split(PATH_SEPARATOR)
        above = [PATH_SEPARATOR.join(names[: place + 1]) for place in range(len(names))]
        new = [path for path in above if path not in chosen]
        if len(chosen) + len(new) <= room:
            chosen.update(dict.fromkeys(new))
    return [row for row in rows if row.path in chosen]


def lines_of(rows: Sequence[Row], now: float, width: int) -> list[Text]:
    """Return rows as lines of aligned columns: agent, state, time, tokens, detail.

    Args:
        rows: The rows, superiors first.
        now: The time on the board's clock, in seconds.
        width: Columns of the terminal; longer lines are truncated.
    """
    cells = [
        (f"{guide}{row.name}", row.doing.value, _time(row, now), _tokens(row))
        for guide, row in zip(guides([row.path for row in rows]), rows, strict=True)
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
            (f"{what:<{doing}}  ", STYLES[row.doing]),
            f"{spent:>{time}}  {cost:>{tokens}}  ",
            (row.detail, "dim"),
        )
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return lines


def _time(row: Row, now: float) -> str:
    seconds = row.seconds(now)
    return "" if seconds is None else duration(seconds)


def _tokens(row: Row) -> str:
    return f"{count(row.tokens)} tok" if row.tokens else ""


def guides(paths: Sequence[str]) -> list[str]:
    """Return the guides before each name that draw paths as a tree.

    >>> guides(["head", "head/a", "head/a/x", "head/b"])
    ['', '├── ', '│   └── ', '└── ']
    """
    drawn: list[str] = []
    for place, path in enumerate(paths):
        depth = path.count(PATH_SEPARATOR)
        parts = [_open(paths[place + 1 :], level) for level in range(1, depth + 1)]
        above = "".join("│   " if goes_on else "    " for goes_on in parts[:-1])
        drawn.append(above + ("├── " if parts[-1] else "└── ") if parts else "")
    return drawn


def _open(after: Sequence[str], level: int) -> bool:
    """Whether a guide at a level continues below, given the paths that follow."""
    for path in after:
        depth = path.count(PATH_SEPARATOR)
        if depth <= level:
            return depth == level
    return False
