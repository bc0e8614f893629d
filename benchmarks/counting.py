"""Counts what a run does: figures that are the same on a slow, a fast and a loaded machine.

They depend on the versions of Python and of the packages, which are stored beside them.
"""

from __future__ import annotations

import gc
import resource
import selectors
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

SELECT = selectors.DefaultSelector.select.__code__


@dataclass(frozen=True, slots=True)
class Counts:
    """What one run did, in all threads together.

    Attributes:
        calls: Calls of functions, Python's and C's.
        switches: Times that a thread gave up the processor of its own accord, to wait.
        polls: Times that an event loop looked for what is ready.
        commits: Transactions that SQLite committed.
    """

    calls: int
    switches: int
    polls: int
    commits: int


class Counter:
    """Counts the threads and connections that begin in its context."""

    def __init__(self) -> None:
        self._calls = 0
        self._polls = 0
        self._statements: list[str] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the threads that are started and the connections that are opened."""
        connect: Callable[..., Any] = sqlite3.connect

        def connect_traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **kwargs)
            # A method in C that SQLite calls itself: no call that the profile would see.
            connection.set_trace_callback(self._statements.append)
            return connection

        sqlite3.connect = connect_traced  # type: ignore[assignment]
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(None)
            sqlite3.connect = connect

    @contextmanager
    def count(self, samples: list[Counts]) -> Iterator[None]:
        """Append what the block does; no garbage is collected in it."""
        gc.collect()
        gc.disable()
        self._statements.clear()
        calls, polls, switches = self._calls, self._polls, _switches()
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            gc.enable()
        commits = sum(each.startswith("COMMIT") for each in self._statements)
        samples.append(
            Counts(self._calls - calls, _switches() - switches, self._polls - polls, commits)
        )

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._calls += 1
            self._polls += frame.f_code is SELECT
        elif event == "c_call":
            self._calls += 1


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
