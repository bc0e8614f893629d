"""The live tree: a run on a terminal, drawn anew several times a second.

``frame`` is pure: a board in, something for Rich out. ``LiveView`` shows it and is the view
of a run whose standard error is a terminal.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from echelons.cli.board import Board, Doing, Row
from echelons.cli.words import clean, count, duration
from echelons.names import PATH_SEPARATOR
from echelons.runtime.events import RunEvent

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
        board: What is shown.
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
        """Nothing: the board knows the event, and the next drawing shows it."""

    def stopping(self) -> None:
        """Nothing: the next drawing says it."""

    def abandon(self) -> None:
        """Give the terminal its cursor back, for the process is about to end."""
        # Not through Rich, whose locks may be held by what is being interrupted.
        os.write(self._console.file.fileno(), SHOW_CURSOR)

    def _frame(self) -> RenderableType:
        rows = self._board.rows()
        if self._ended:
            return table(rows, self._board.now)
        return frame(self._board, rows, self._console)


def frame(board: Board, rows: Sequence[Row], console: Console) -> RenderableType:
    """Return a drawing of a run that fits the terminal: the tree, then the root's words."""
    room = max(console.height - MARGIN, 1)
    shown = fitting(rows, room)
    parts: list[RenderableType] = [table(shown, board.now)]
    if len(shown) < len(rows):
        parts.append(Text(f"and {len(rows) - len(shown)} more", style="dim"))
    room -= len(shown)
    if board.speech and room > 0:
        lines = Text(clean(board.speech)).wrap(console, console.width)
        parts += [Text(), *lines[-room:]]
    if board.stopping:
        parts.append(Text(STOPPING, style="yellow"))
    return Group(*parts)


def fitting(rows: Sequence[Row], room: int) -> list[Row]:
    """Return the rows that matter most, in their order: those at work, and their superiors.

    Args:
        rows: All rows.
        room: How many lines there are for them.
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


def table(rows: Sequence[Row], now: float) -> Table:
    """Return some rows as aligned columns: agent, state, time, tokens, what it is at."""
    drawn = Table.grid(padding=(0, 2))
    drawn.add_column(no_wrap=True)
    drawn.add_column(no_wrap=True)
    drawn.add_column(no_wrap=True, justify="right")
    drawn.add_column(no_wrap=True, justify="right")
    drawn.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for guide, row in zip(guides([row.path for row in rows]), rows, strict=True):
        seconds = row.seconds(now)
        drawn.add_row(
            Text(guide, style="dim").append(row.name, style="bold not dim"),
            Text(row.doing, style=STYLES[row.doing]),
            "" if seconds is None else duration(seconds),
            f"{count(row.tokens)} tok" if row.tokens else "",
            Text(row.detail, style="dim"),
        )
    return drawn


def guides(paths: Sequence[str]) -> list[str]:
    """Return what stands before each name to draw paths as a tree.

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
    """Whether a line at a level of the tree goes on below a path."""
    for path in after:
        depth = path.count(PATH_SEPARATOR)
        if depth <= level:
            return depth == level
    return False
