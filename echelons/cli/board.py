"""What commands show of a database and of a run: tables, trees, and a live board."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from echelons.cli import output
from echelons.cli.command import RunOutputOptions
from echelons.cli.output import (
    escape_controls,
    format_duration,
    format_number,
    format_tool_call,
    join_lines,
    shorten_line,
)
from echelons.cli.question_text import format_question
from echelons.delegation.mail import USER
from echelons.runtime.run_events import RunEvent, RunEventKind
from echelons.tree.agent_registry import draw_guides
from echelons.tree.names import NAME_PATTERN, PATH_SEPARATOR

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from echelons.runtime.session_run import Result
    from echelons.tree.usage_report import GrantedAmount


OFFLINE_MODEL = "offline planner"
"""Model name in replies of the offline planner, whose tokens cost nothing."""


class AgentState(StrEnum):
    """What an agent is doing."""

    WAITING = "waiting"
    RUNNING = "running"
    ASKING = "asking"
    DONE = "done"
    PARTIAL = "partial"
    UNABLE = "unable"
    NEEDS_INPUT = "needs input"
    FAILED = "failed"
    STOPPED = "stopped"
    DISMISSED = "dismissed"

    @property
    def is_final(self) -> bool:
        """Whether the agent has ended by itself."""
        return self not in ("waiting", "running", "asking", "stopped")


ROOT_STATES = {"finished": AgentState.DONE, "limited": AgentState.PARTIAL}
"""The state of the root by the status of its turn; `stopped` for any other."""


@dataclass(slots=True)
class AgentRow:
    """One agent of the run, with the times on the board's clock at which it began and ended.

    `left` is what is left of its budgets, `pending` how many subordinates it waits for.
    """

    path: str
    state: AgentState = AgentState.WAITING
    detail: str = ""
    tokens: int = 0
    left: str = ""
    pending: int = 0
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.path.rpartition(PATH_SEPARATOR)[2]

    def elapsed_seconds(self, now: float) -> float | None:
        """Return the seconds since it began, up to its end; `None` if it has not begun."""
        if self.started_at is None:
            return None
        return (now if self.ended_at is None else self.ended_at) - self.started_at


class OpenQuestion(NamedTuple):
    """A question of the run that has no answer yet: the path of its agent, and its whole text."""

    path: str
    text: str


class AgentBoard:
    """The agents of a run, and the time on a clock that counts seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rows: dict[str, AgentRow] = {}
        self._called_paths: dict[tuple[str, str], str] = {}
        self.started_at = clock()
        self.models: set[str] = set()
        self.questions: dict[str, OpenQuestion] = {}
        self.root_text = ""
        self.stopping = False

    @property
    def now(self) -> float:
        """The time on the board's clock."""
        return self._clock()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self.now - self.started_at

    def list_rows(self) -> list[AgentRow]:
        """Return the agents, superiors first, subordinates in the order of their calls."""
        # A copy: the screen is drawn by another thread.
        below: dict[str, list[AgentRow]] = {}
        for row in list(self._rows.values()):
            below.setdefault(row.path.rpartition(PATH_SEPARATOR)[0], []).append(row)

        def walk(path: str) -> Iterator[AgentRow]:
            for row in below.get(path, ()):
                yield row
                yield from walk(row.path)

        return list(walk(""))

    def list_questions(self) -> list[OpenQuestion]:
        """Return the questions that have no answer yet, oldest first."""
        return [*self.questions.values()]  # a copy, too

    def apply_event(self, event: RunEvent) -> None:
        """Update the rows with an event."""
        row = self._ensure_row(event.path)
        if state := _STATES.get(event.kind):
            self._set_state(row, state, describe_event(event))
        elif handle := getattr(self, f"_on_{event.kind}", None):
            handle(row, event)

    def apply_result(self, result: Result) -> None:
        """Update the rows with the end of the run."""
        if result.questions:
            return
        ended = ROOT_STATES.get(result.status, AgentState.STOPPED)
        for row in self._rows.values():
            if row.state in (AgentState.WAITING, AgentState.RUNNING) and row.started_at is not None:
                # The root gets no response event; any other agent without one was cut short.
                is_root = PATH_SEPARATOR not in row.path
                self._set_state(row, ended if is_root else AgentState.STOPPED)

    def mark_answered(self, question_id: str) -> str:
        """Let the agent of an open question go on, as it was answered; return its path."""
        path = self.questions.pop(question_id).path
        if path not in {question.path for question in self.questions.values()}:
            self._set_state(self._ensure_row(path), AgentState.RUNNING, "answered")
        return path

    def _ensure_row(self, path: str) -> AgentRow:
        if path not in self._rows:
            superior = path.rpartition(PATH_SEPARATOR)[0]
            if superior:
                self._ensure_row(superior)
            self._rows[path] = AgentRow(path)
        return self._rows[path]

    def _set_state(self, row: AgentRow, state: AgentState, detail: str = "") -> None:
        row.state, row.detail = state, detail
        is_running = state is AgentState.RUNNING
        row.ended_at = None if is_running else self.now
        if is_running and row.started_at is None:
            row.started_at = self.now

    def note_left(self, grants: Iterable[GrantedAmount]) -> None:
        """Note what is left of the budgets of agents."""
        left: dict[str, list[str]] = {}
        for grant in grants:
            left.setdefault(grant.path, []).append(grant.describe_left())
        for row in self.list_rows():
            row.left = ", ".join(left.get(row.path, ()))

    def _on_task(self, row: AgentRow, event: RunEvent) -> None:
        self._set_state(row, AgentState.RUNNING)

    def _on_token(self, row: AgentRow, event: RunEvent) -> None:
        self._set_state(row, AgentState.RUNNING)
        if PATH_SEPARATOR not in row.path:
            self.root_text += event.content

    def _on_message(self, row: AgentRow, event: RunEvent) -> None:
        self._set_state(row, AgentState.RUNNING)
        if event.data.get("monitor"):
            # It looks now and then, and answers nobody.
            self._set_state(row, AgentState.DONE)
        model = str(event.data.get("model", ""))
        self.models.add(model)
        if model != OFFLINE_MODEL:
            row.tokens += event.usage.input_tokens + event.usage.output_tokens
        if PATH_SEPARATOR not in row.path:
            self.root_text = ""

    def _on_tool_result(self, row: AgentRow, event: RunEvent) -> None:
        called = self._called_paths.pop((row.path, str(event.data.get("id"))), None)
        if called is None:
            self._set_state(row, AgentState.RUNNING)
            return
        # The call named an unknown subordinate, whose row never began: drop the row.
        if called in self._rows and self._rows[called].started_at is None:
            del self._rows[called]
        self._count_response(row)

    def _on_delegation(self, row: AgentRow, event: RunEvent) -> None:
        row.pending += 1
        row.state, row.detail = AgentState.WAITING, ""
        # The name is the model's text and may be anything.
        arguments, name = event.data["arguments"], event.data["arguments"].get("subordinate")
        if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
            name = ""
        path = f"{row.path}{PATH_SEPARATOR}{name}"
        self._called_paths[row.path, str(event.data.get("id"))] = path
        if name and (subordinate := self._ensure_row(path)).state is not AgentState.RUNNING:
            subordinate.state = AgentState.WAITING
            subordinate.detail = shorten_line(str(arguments.get("message", "")))

    def _on_response(self, row: AgentRow, event: RunEvent) -> None:
        status = event.data["status"]
        state = AgentState.DONE if status == "fulfilled" else AgentState(status.replace("_", " "))
        if row.state is not AgentState.DISMISSED or state is not AgentState.UNABLE:
            self._set_state(row, state, shorten_line(str(event.data["reason"])))
        if event.data["final"]:
            self._count_response(self._ensure_row(row.path.rpartition(PATH_SEPARATOR)[0]))

    def _count_response(self, superior: AgentRow) -> None:
        superior.pending = max(superior.pending - 1, 0)
        if not superior.pending:
            self._set_state(superior, AgentState.RUNNING)

    def _on_question(self, row: AgentRow, event: RunEvent) -> None:
        question = format_question(event.data["value"], event.data.get("schema"))
        if event.data.get("later"):
            self._set_state(row, AgentState.RUNNING, describe_event(event))
            return
        self.questions[event.data["id"]] = OpenQuestion(row.path, question)
        self._set_state(row, AgentState.ASKING, shorten_line(question))

    def _on_answer(self, row: AgentRow, event: RunEvent) -> None:
        if event.data["question"] in self.questions:
            self.mark_answered(event.data["question"])

    _on_approval = _on_answer

    def _on_order(self, row: AgentRow, event: RunEvent) -> None:
        if event.data["order"] != "dismiss" or event.data.get("graceful"):
            return
        for below in self.list_rows():
            if below.path == row.path or below.path.startswith(row.path + PATH_SEPARATOR):
                self._set_state(below, AgentState.DISMISSED)
        self.questions = {
            key: question
            for key, question in self.questions.items()
            if self._rows[question.path].state is not AgentState.DISMISSED
        }

    def _on_warning(self, row: AgentRow, event: RunEvent) -> None:
        row.detail = describe_event(event)


def describe_event(event: RunEvent) -> str:
    """Return what an agent does by an event, as one line; empty if it needs none."""
    data, text = event.data, event.content
    title = _TITLES.get(event.kind, "").format_map({**data, "by": data.get("by") or "its deadline"})
    match event.kind:
        case RunEventKind.QUESTION:
            when = " for later" if data.get("later") else ""
            question = join_lines(format_question(data["value"], data.get("schema")))
            return f"asks you{when}: {question}"
        case RunEventKind.ORDER:
            return f"{text} ordered by {data['by']}"
        case RunEventKind.DELEGATION:
            # Without a named subordinate, the request holds the one that routing chose.
            agent = data.get("request", {}).get("current") or data["arguments"].get("subordinate")
            title = f"asks {shorten_line(str(agent or 'an agent that can'))}:"
            text = str(data["arguments"].get("message", ""))
        case RunEventKind.TASK if data.get("resumed"):
            title = "goes on:"
        case RunEventKind.MAIL if data.get("to") == USER:
            title = "tells you:"
        case RunEventKind.TOOL_CALL:
            text = format_tool_call(text, data["arguments"])
        case RunEventKind.RESPONSE:
            text = data["reason"] or text
        case RunEventKind.MESSAGE if not text.strip():
            return ""
    return f"{title} {shorten_line(text)}" if title else ""


_TITLES = {
    RunEventKind.TASK: "begins:",
    RunEventKind.MESSAGE: "says:",
    RunEventKind.TOOL_CALL: "calls",
    RunEventKind.TOOL_RESULT: "got:",
    RunEventKind.RESPONSE: "is {status}:",
    RunEventKind.WARNING: "is warned:",
    RunEventKind.ERROR: "fails:",
    RunEventKind.MAIL: "reads from {from}:",
    RunEventKind.INTERVENTION: "is redirected by {from}:",
    RunEventKind.ANSWER: "is answered by {by}:",
    RunEventKind.APPROVAL: "is told by {by}:",
    RunEventKind.ALERT: "alerts about {about} ({decision}):",
    RunEventKind.REPORT: "reports:",
    RunEventKind.CUSTOM: "writes:",
}
"""What is said of an event before its text."""
_STATES = {
    RunEventKind.TOOL_CALL: AgentState.RUNNING,
    RunEventKind.CUSTOM: AgentState.RUNNING,
    RunEventKind.MAIL: AgentState.RUNNING,
    RunEventKind.INTERVENTION: AgentState.RUNNING,
    RunEventKind.ALERT: AgentState.DONE,
    RunEventKind.REPORT: AgentState.DONE,
    RunEventKind.ERROR: AgentState.FAILED,
}
"""The states of agents whose event is their detail."""


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
