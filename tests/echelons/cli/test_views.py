"""The live tree: what is drawn, and that a terminal gets it."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO

from rich.console import Console

from echelons.cli.board import (
    AgentBoard,
    AgentRow,
    AgentState,
    LiveView,
    build_table,
    draw_frame,
    select_rows,
)
from echelons.runtime.run_events import RunEvent, RunEventKind
from echelons.testing import FakeClock


def terminal(height: int = 20, width: int = 80) -> Console:
    return Console(
        file=StringIO(), width=width, height=height, force_terminal=True, color_system=None
    )


def drawn(console: Console) -> list[str]:
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_row_shows_agent_work_duration_and_cost() -> None:
    rows = [
        AgentRow("head", AgentState.WAITING, started_at=0.0, tokens=1321, left="7 of 9 calls left"),
        AgentRow(
            "head/flights",
            AgentState.RUNNING,
            "find_flights(destination='Rome')",
            954,
            started_at=1.5,
        ),
        AgentRow("head/hotels"),
    ]

    console = terminal(width=60)
    console.print(build_table(rows, now=4.0))

    assert drawn(console) == [
        "head         waiting  4.0 s  1.3k tok  7 of 9 calls left",
        "├── flights  running  2.5 s   954 tok  find_flights(destina…",
        "└── hotels   waiting",
    ]


def test_where_there_is_too_little_room_those_at_work_are_shown_with_their_superiors() -> None:
    done = [AgentRow(f"head/d{number}", AgentState.DONE) for number in range(50)]
    rows = [
        AgentRow("head"),
        *done[:25],
        AgentRow("head/x"),
        AgentRow("head/x/y", AgentState.RUNNING),
        *done[25:],
    ]

    shown = [row.path for row in select_rows(rows, 5)]

    assert shown == ["head", "head/x", "head/x/y", "head/d48", "head/d49"]


def test_a_frame_fits_the_terminal_and_counts_what_it_leaves_out() -> None:
    console = terminal(height=10)
    board = AgentBoard(FakeClock().now)
    for number in range(30):
        board.apply_event(RunEvent(f"head/a{number}", RunEventKind.TASK))
    board.apply_event(RunEvent("head", RunEventKind.TOKEN, "many words " * 200))

    console.print(draw_frame(board, console))

    assert len(drawn(console)) <= 10
    assert "and 25 more" in drawn(console)


def test_the_roots_last_words_stream_below_the_tree() -> None:
    console = terminal(height=8)
    board = AgentBoard(FakeClock().now)
    for number in range(9):
        board.apply_event(RunEvent("head", RunEventKind.TOKEN, f"line {number} [b]\x1b[31m\n"))

    console.print(draw_frame(board, console))

    assert drawn(console)[-2:] == ["line 7 [b]\\x1b[31m", "line 8 [b]\\x1b[31m"]
    assert drawn(console)[0].startswith("head  running")


def test_open_questions_are_drawn_whole_below_the_tree() -> None:
    console = terminal()
    board = AgentBoard(FakeClock().now)
    value = {"question": "Which of them? " * 6, "choices": ["Savoy", "Hassler"]}
    board.apply_event(RunEvent("head", RunEventKind.QUESTION, data={"id": "q", "value": value}))

    console.print(draw_frame(board, console))

    tree, *below = drawn(console)
    assert re.match(r"head  asking +Which of them\? Which", tree)
    assert below == [
        "",
        "head asks:",
        "  Which of them? Which of them? Which of them? Which of them? Which of them?",
        "  Which of them?",
        "  choices: Savoy, Hassler",
    ]


def test_the_first_ctrl_c_is_acknowledged_on_the_screen() -> None:
    console = terminal()
    board = AgentBoard(FakeClock().now)
    board.stopping = True

    console.print(draw_frame(board, console))

    assert "Ctrl-C again stops at once." in drawn(console)[-1]


def test_what_stays_on_the_screen_is_the_tree_without_the_words() -> None:
    console = terminal()
    board = AgentBoard(FakeClock().now)
    view = LiveView(board, console)
    with view:
        board.apply_event(RunEvent("head", RunEventKind.TASK))
        board.apply_event(RunEvent("head", RunEventKind.TOKEN, "Fine."))

    *_, last, cursor = drawn(console)
    assert "Fine." not in last
    assert "head  running" in last
    assert cursor == "\x1b[?25h"


def test_a_terminal_gets_the_tree_and_then_the_answer(
    terminal: Callable[..., tuple[int, str]],
) -> None:
    code, shown = terminal("run", "trips:unable", "A room", columns=100)

    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert code == 0
    assert re.search(r"└── hotels +unable .* all booked", plain)
    assert plain.index("all booked") < plain.index("No room.") < plain.index("go on with:")
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is back"
