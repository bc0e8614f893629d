"""The board: what each agent of a run is doing, kept up to date with its events.

One row for each agent that has something to do; several threads of one agent share it.
The live tree draws it, the summary at the end counts it.
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
    """What an agent does."""

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
        """Whether it has come to an end of its own."""
        return self not in (Doing.WAITING, Doing.RUNNING, Doing.ASKING, Doing.STOPPED)


_ENDS = {
    "fulfilled": Doing.DONE,
    "partial": Doing.PARTIAL,
    "unable": Doing.UNABLE,
    "needs_input": Doing.NEEDS_INPUT,
}


@dataclass(slots=True)
class Row:
    """One agent.

    Attributes:
        path: Where it stands.
        doing: What it does.
        detail: On what: a tool call, a question, why it is unable.
        tokens: What its own model calls read and wrote.
        asked: Subordinates that it waits for.
        began: When it was first seen at work, in seconds of the board's clock.
        ended: When it stopped.
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
        """How long it has been at work; ``None`` if it has not begun."""
        if self.began is None:
            return None
        return (now if self.ended is None else self.ended) - self.began


class Board:
    """The agents of a run.

    Args:
        clock: Tells the time in seconds, from any moment on.
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
        """How long the run has been going on."""
        return self.now - self.began

    def rows(self) -> list[Row]:
        """Return the agents, superiors first, subordinates in the order of their calls."""
        # A copy: the screen is drawn by another thread.
        below: dict[str, list[Row]] = {}
        for row in list(self._rows.values()):
            below.setdefault(row.path.rpartition(PATH_SEPARATOR)[0], []).append(row)
        return list(_walk("", below))

    def show(self, event: RunEvent) -> None:
        """Take an event in."""
        told: Callable[[Row, RunEvent], None] | None = getattr(self, f"_{event.kind}", None)
        if told is not None:
            told(self._row(event.path), event)

    def end(self, result: Result) -> None:
        """Take in how the run ended."""
        for row in self._rows.values():
            if row.doing in (Doing.WAITING, Doing.RUNNING) and row.began is not None:
                if result.finished:
                    # Nobody answers the root; who else has not answered was cut short.
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

    def _task(self, row: Row, event: RunEvent) -> None:
        self._work(row)

    def _token(self, row: Row, event: RunEvent) -> None:
        self._work(row)
        if PATH_SEPARATOR not in row.path:
            self.speech += event.content

    def _message(self, row: Row, event: RunEvent) -> None:
        self._work(row)
        row.tokens += event.usage.input_tokens + event.usage.output_tokens
        self.models.add(str(event.data.get("model", "")))
        if PATH_SEPARATOR not in row.path:
            self.speech = ""

    def _tool_call(self, row: Row, event: RunEvent) -> None:
        self._work(row, brief(call(event.content, event.data["arguments"])))

    def _tool_result(self, row: Row, event: RunEvent) -> None:
        called = self._called.pop((row.path, str(event.data.get("id"))), None)
        if called is None:
            self._work(row)
            return
        # A call of somebody who is not there: nobody is waited for.
        if called in self._rows and self._rows[called].began is None:
            del self._rows[called]
        self._answered(row)

    def _delegation(self, row: Row, event: RunEvent) -> None:
        row.asked += 1
        row.doing, row.detail = Doing.WAITING, ""
        # What a model calls a subordinate is data.
        arguments, name = event.data["arguments"], event.data["arguments"].get("subordinate")
        if not isinstance(name, str) or not PATTERN.fullmatch(name):
            name = ""
        path = f"{row.path}{PATH_SEPARATOR}{name}"
        self._called[row.path, str(event.data.get("id"))] = path
        if name and self._row(path).doing is not Doing.RUNNING:
            subordinate = self._row(path)
            subordinate.doing = Doing.WAITING
            subordinate.detail = brief(str(arguments.get("message", "")))

    def _response(self, row: Row, event: RunEvent) -> None:
        self._over(row, _ENDS[event.data["status"]], brief(str(event.data["reason"])))
        if event.data["final"]:
            self._answered(self._row(row.path.rpartition(PATH_SEPARATOR)[0]))

    def _answered(self, superior: Row) -> None:
        superior.asked = max(superior.asked - 1, 0)
        if not superior.asked:
            self._work(superior)

    def _question(self, row: Row, event: RunEvent) -> None:
        self._over(row, Doing.ASKING, brief(asked(event.data["value"])))

    def _error(self, row: Row, event: RunEvent) -> None:
        self._over(row, Doing.FAILED, brief(event.content))


def _walk(path: str, below: dict[str, list[Row]]) -> Iterator[Row]:
    for row in below.get(path, ()):
        yield row
        yield from _walk(row.path, below)
