"""The state of each agent of a run, updated by the run's events.

One row for each agent that has work; several threads of one agent share a row. The live
tree draws the rows, the summary at the end counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from echelons.cli.display.text_format import asked, brief, call
from echelons.tree.names import PATH_SEPARATOR, PATTERN

if TYPE_CHECKING:
    from echelons.runtime.run_events import RunEvent
    from echelons.runtime.session_run import Result


class Doing(StrEnum):
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

    @property
    def is_over(self) -> bool:
        """Whether the agent has ended by itself."""
        return self not in (Doing.WAITING, Doing.RUNNING, Doing.ASKING, Doing.STOPPED)


_ENDS = {
    "fulfilled": Doing.DONE,
    "partial": Doing.PARTIAL,
    "unable": Doing.UNABLE,
    "needs_input": Doing.NEEDS_INPUT,
}


@dataclass(slots=True)
class Row:
    """One agent of the run.

    Attributes:
        path: Its path in the tree.
        doing: Its state.
        detail: Its tool call, its question, or the reason why it is unable.
        tokens: Input and output tokens of its own model calls.
        asked: Number of subordinates that it waits for.
        began: When it was first seen running, in seconds of the board's clock.
        ended: When it stopped, in seconds of the board's clock.
    """

    path: str
    doing: Doing = Doing.WAITING
    detail: str = ""
    tokens: int = 0
    asked: int = 0
    began: float | None = None
    ended: float | None = None

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.path.rpartition(PATH_SEPARATOR)[2]

    def seconds(self, now: float) -> float | None:
        """Return the seconds since it began, up to its end; `None` if it has not begun."""
        if self.began is None:
            return None
        return (now if self.ended is None else self.ended) - self.began


class Board:
    """The agents of a run.

    Args:
        clock: Returns the time in seconds since some fixed moment.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._rows: dict[str, Row] = {}
        self._called: dict[tuple[str, str], str] = {}
        self.began = clock()
        self.models: set[str] = set()
        self.speech = ""
        self.stopping = False

    @property
    def now(self) -> float:
        """The time on the board's clock."""
        return self._clock()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self.now - self.began

    def rows(self) -> list[Row]:
        """Return the agents, superiors first, subordinates in the order of their calls."""
        # A copy: the screen is drawn by another thread.
        below: dict[str, list[Row]] = {}
        for row in list(self._rows.values()):
            below.setdefault(row.path.rpartition(PATH_SEPARATOR)[0], []).append(row)
        return list(_walk("", below))

    def show(self, event: RunEvent) -> None:
        """Update the rows with an event."""
        handle: Callable[[Row, RunEvent], None] | None = getattr(self, f"_on_{event.kind}", None)
        if handle is not None:
            handle(self._row(event.path), event)

    def end(self, result: Result) -> None:
        """Update the rows with the end of the run."""
        for row in self._rows.values():
            if row.doing in (Doing.WAITING, Doing.RUNNING) and row.began is not None:
                if result.finished:
                    # The root gets no response event; any other agent without one was cut short.
                    cut = PATH_SEPARATOR in row.path
                    self._over(row, Doing.STOPPED if cut else Doing.DONE)
                elif not result.questions:
                    self._over(row, Doing.STOPPED)

    def _row(self, path: str) -> Row:
        if path not in self._rows:
            superior = path.rpartition(PATH_SEPARATOR)[0]
            if superior:
                self._row(superior)
            self._rows[path] = Row(path)
        return self._rows[path]

    def _over(self, row: Row, doing: Doing, detail: str = "") -> None:
        row.doing, row.detail = doing, detail
        row.ended = self.now

    def _work(self, row: Row, detail: str = "") -> None:
        row.doing, row.detail, row.ended = Doing.RUNNING, detail, None
        if row.began is None:
            row.began = self.now

    def _on_task(self, row: Row, event: RunEvent) -> None:
        self._work(row)

    def _on_token(self, row: Row, event: RunEvent) -> None:
        self._work(row)
        if PATH_SEPARATOR not in row.path:
            self.speech += event.content

    def _on_message(self, row: Row, event: RunEvent) -> None:
        self._work(row)
        row.tokens += event.usage.input_tokens + event.usage.output_tokens
        self.models.add(str(event.data.get("model", "")))
        if PATH_SEPARATOR not in row.path:
            self.speech = ""

    def _on_tool_call(self, row: Row, event: RunEvent) -> None:
        self._work(row, brief(call(event.content, event.data["arguments"])))

    def _on_tool_result(self, row: Row, event: RunEvent) -> None:
        called = self._called.pop((row.path, str(event.data.get("id"))), None)
        if called is None:
            self._work(row)
            return
        # The call named an unknown subordinate, whose row never began: drop the row.
        if called in self._rows and self._rows[called].began is None:
            del self._rows[called]
        self._answered(row)

    def _on_delegation(self, row: Row, event: RunEvent) -> None:
        row.asked += 1
        row.doing, row.detail = Doing.WAITING, ""
        # The name is the model's text and may be anything.
        arguments, name = event.data["arguments"], event.data["arguments"].get("subordinate")
        if not isinstance(name, str) or not PATTERN.fullmatch(name):
            name = ""
        path = f"{row.path}{PATH_SEPARATOR}{name}"
        self._called[row.path, str(event.data.get("id"))] = path
        if name and self._row(path).doing is not Doing.RUNNING:
            subordinate = self._row(path)
            subordinate.doing = Doing.WAITING
            subordinate.detail = brief(str(arguments.get("message", "")))

    def _on_response(self, row: Row, event: RunEvent) -> None:
        self._over(row, _ENDS[event.data["status"]], brief(str(event.data["reason"])))
        if event.data["final"]:
            self._answered(self._row(row.path.rpartition(PATH_SEPARATOR)[0]))

    def _answered(self, superior: Row) -> None:
        superior.asked = max(superior.asked - 1, 0)
        if not superior.asked:
            self._work(superior)

    def _on_question(self, row: Row, event: RunEvent) -> None:
        self._over(row, Doing.ASKING, brief(asked(event.data["value"])))

    def _on_error(self, row: Row, event: RunEvent) -> None:
        self._over(row, Doing.FAILED, brief(event.content))


def _walk(path: str, below: dict[str, list[Row]]) -> Iterator[Row]:
    for row in below.get(path, ()):
        yield row
        yield from _walk(row.path, below)
