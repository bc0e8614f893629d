"""What every peer is given to do, and how it shows that it has done it.

Plain Python, for it is imported in every peer's own environment. The works are four: the
``chain`` (three levels, two model turns each, one tool call at the leaf), the ``crowd`` (many
subordinates at once with a slow model), the ``thread`` (one conversation that grows), and
``typed``, for frameworks whose subagents have typed inputs and outputs (three levels, each given
the fields of `BRIEF` and answering those of `REPORT`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.tally import TALLY

CHAIN, CROWD, THREAD, TYPED = "chain", "crowd", "thread", "typed"
TASK = "Plan a trip to Italy"
ANSWER = "done"
SUBJECT = "Rome"
BRIEF = {"subject": SUBJECT, "nights": 2}
REPORT = {"text": ANSWER, "price": 80.0}
FOUND = f"found {SUBJECT}"
"""What the leaf's tool returns. In the database, it tells that the leaf's steps are kept."""
SAID = "To be or not to be, that is what is asked here. " * 13
"""About 0.6 KB, said by the human and by the agent."""

Work = Callable[[int], Awaitable[str]]
"""Does one of the works, on the thread of that number; returns the last answer."""
Works = dict[str, Work]
"""By name; what a peer cannot do is left out."""


@dataclass(frozen=True, slots=True)
class Size:
    """How big the crowd is.

    Attributes:
        crowd: Subordinates at once.
        latency: Seconds that a model turn of the crowd takes.
    """

    crowd: int
    latency: float


def look_up(subject: str) -> str:
    """Look something up."""
    TALLY.tools += 1
    return f"found {subject}"


class Peer(Protocol):
    """A module of this folder that stands for a framework."""

    PACKAGES: tuple[str, ...]
    """Distributions whose versions belong beside its figures."""

    def opened(self, folder: Path, setting: str, size: Size) -> AbstractAsyncContextManager[Works]:
        """Build the trees, each to be stored in the ``place`` of its work."""
        ...


def place(folder: Path, work: str) -> Path:
    """Return the folder that a work stores in, made if need be."""
    made = folder / work
    made.mkdir(exist_ok=True)
    return made


def database(folder: Path, work: str) -> Path:
    """Return the file that a work stores in, where one is enough."""
    return place(folder, work) / "kept.sqlite"
