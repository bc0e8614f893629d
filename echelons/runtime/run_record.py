"""The record of a run in progress: its control, usage and events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langgraph.runtime import RunControl
from langgraph.types import Command

from echelons.delegation.request import Usage
from echelons.runtime.run_end import Continue, RunEnd, RunProgress
from echelons.runtime.run_events import STREAM_MODES, EventTranslator, RunEvent, RunEventKind
from echelons.tree.names import PATH_SEPARATOR


class RunRecord:
    """The record of one run; the engine writes it, `Run` and `AsyncRun` show it.

    Attributes:
        control: Stops the tree at the end of its current step.
        usage: Usage of all agents of the run together.
        started: Whether its first event has been requested.
        paused: Whether the tree was stopped that way.
        run_end: The result; `None` until it ends.
    """

    def __init__(self) -> None:
        self.control = RunControl()
        self.usage = Usage()
        self.started = False
        self.paused = False
        self.run_end: RunEnd | None = None
        self._translator = EventTranslator()
        self._last_text: str | None = None
        self._delivered: set[str] = set()
        self._withdrawn: set[str] = set()

    @property
    def stream_options(self) -> dict[str, Any]:
        """The stream options of LangGraph, with the control that stops it."""
        return {"stream_mode": list(STREAM_MODES), "subgraphs": True, "control": self.control}

    @property
    def progress(self) -> RunProgress:
        """The state that decides how the run ends."""
        return RunProgress(
            self._last_text, frozenset(self._delivered), self.paused, frozenset(self._withdrawn)
        )

    def record_part(self, part: Any) -> Iterator[RunEvent]:
        """Yield the events of a part of LangGraph's stream, and record them."""
        for event in self._translator.translate_part(part):
            if event.kind is RunEventKind.MESSAGE:
                self.usage += event.usage
                if PATH_SEPARATOR not in event.path:
                    self._last_text = event.content
            yield event

    def record_delivery(self, given: Any) -> None:
        """Record the answers that an input delivers."""
        if isinstance(given, Command) and isinstance(given.resume, dict):
            self._delivered.update(given.resume)

    def record_end(self, settled: RunEnd | Continue) -> Command[Any] | None:
        """Record the end, or return the next input of the run."""
        if isinstance(settled, RunEnd):
            self.run_end = settled
            return None
        self._withdrawn.update(settled.withdrawn)
        return settled.graph_input
