"""The stopwatch, and how much is measured.

Rivals run in turn, so that whatever else the machine does falls on all of them alike. Times of
different runs are not to be compared.
"""

from __future__ import annotations

import gc
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

Say = Callable[[str], None]
"""Tells whoever waits what is being done."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work is done.

    Attributes:
        rounds: Rounds of a work of some milliseconds that is timed; a slower one gets fewer.
        counted: Rounds of a work that is counted.
        crowd: Subordinates that work at once.
        latency: Seconds that a model of the crowd takes, where it is timed.
        turns: Turns of a long thread that are measured, rising.
        continuations: Calls of one subordinate that are measured, rising.
    """

    rounds: int = 30
    counted: int = 3
    crowd: int = 50
    latency: float = 0.05
    turns: tuple[int, ...] = (10, 100, 300)
    continuations: tuple[int, ...] = (50, 200)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run, or the median run, took.

    Attributes:
        cpu: Milliseconds of processor time, all threads of this process together.
        wall: Milliseconds that passed.
    """

    cpu: float
    wall: float


def median(costs: Sequence[Cost]) -> Cost:
    """Return the medians of some costs, each for itself."""
    return Cost(
        cpu=statistics.median(each.cpu for each in costs),
        wall=statistics.median(each.wall for each in costs),
    )


@contextmanager
def timed(costs: list[Cost]) -> Iterator[None]:
    """Append what the block costs; an earlier rival's garbage is not collected in it."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    costs.append(Cost(cpu * 1e3, wall * 1e3))


@contextmanager
def settled() -> Iterator[None]:
    """Keep what lives already out of the collections between the runs, which would be slow."""
    # There is no telling from what others have frozen, as the tests do with all that was imported.
    unfreezes = not gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if unfreezes:
            gc.unfreeze()


def in_turn(names: Sequence[str], number: int) -> list[str]:
    """Return the names with another one first each round: nobody always runs after the same."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def megabytes(database: Path) -> float:
    """Return the size of a SQLite database, what is still in its log included."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(each.stat().st_size for each in database.parent.glob(f"{database.name}*")) / 1e6
