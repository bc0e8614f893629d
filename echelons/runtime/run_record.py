"""The record of a run in progress: its control, usage and events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langgraph.runtime import RunControl
from langgraph.types import Command

from echelons.delegation.request import Usage
from echelons.runtime.run_end import Ending, GoOn, Progress
from echelons.runtime.run_events import STREAM_MODES, Kind, RunEvent, Translator
from echelons.tree.names import PATH_SEPARATOR


class Tally:
    """The record of one run; the engine writes it, `Run` and `AsyncRun` show it.

    Attributes:
        control: Stops the tree at the end of its current step.
        usage: Usage of all agents of the run together.
        begun: Whether its first event has been requested.
        paused: Whether the tree was stopped that way.
        ending: The result; `None` until it ends.
    """

    def __init__(self) -> None:
        self.control = RunControl()
        self.usage = Usage()
        self.begun = False
        self.paused = False
        self.ending: Ending | None = None
        self._translator = Translator()
        self._said: str | None = None
        self._delivered: set[str] = set()
        self._withdrawn: set[str] = set()

    @property
    def streaming(self) -> dict[str, Any]:
        """The stream options of LangGraph, with the control that stops it."""
        return {"stream_mode": list(STREAM_MODES), "subgraphs": True, "control": self.control}

    @property
    def progress(self) -> Progress:
        """The state that decides how the run ends."""
        return Progress(
            self._said, frozenset(self._delivered), self.paused, frozenset(self._withdrawn)
        )

    def events(self, part: Any) -> Iterator[RunEvent]:
        """Yield the events of a part of LangGraph's stream, and record them."""
        for event in self._translator.events(part):
            if event.kind is Kind.MESSAGE:
                self.usage += event.usage
                if PATH_SEPARATOR not in event.path:
                    self._said = event.content
            yield event

    def delivers(self, given: Any) -> None:
        """Record the answers that an input delivers."""
        if isinstance(given, Command) and isinstance(given.resume, dict):
            self._delivered.update(given.resume)

    def end(self, settled: Ending | GoOn) -> Command[Any] | None:
        """Record the end, or return the next input of the run."""
        if isinstance(settled, Ending):
            self.ending = settled
            return None
        self._withdrawn.update(settled.withdrawn)
        return settled.given
