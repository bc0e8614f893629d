"""The stopwatch: runs rivals in turn, and keeps the medians of what each has cost.

Every benchmark measures with ``interleave`` or ``ainterleave``, so that whatever else the
machine does falls on all rivals alike. Figures of different runs are not to be compared.
"""

from __future__ import annotations

import gc
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

Say = Callable[[str], None]
"""Tells whoever waits what is being done."""

WARM_UP = 2
"""Rounds that are run first and not counted: imports, caches, lazily compiled levels."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work the benchmarks do; the defaults are the design's.

    Attributes:
        rounds: Rounds of a benchmark of some milliseconds; slower ones make fewer.
        crowd: Subordinates that work at once.
        latency: Seconds that a model of the crowd takes.
        turns: Turns of a long thread whose cost is reported, rising.
        affordable: The last of them that is measured on rivals whose file grows with the square.
        continuations: Times that one subordinate is called again.
        compared: The call of them at which the rivals' costs are compared.
        agents: Agents of the tree that is built, at three levels.
        population: Agents of the big tree.
    """

    rounds: int = 30
    crowd: int = 50
    latency: float = 0.05
    turns: tuple[int, ...] = (10, 100, 200, 500)
    affordable: int = 200
    continuations: int = 200
    compared: int = 50
    agents: int = 40
    population: int = 2000

    def fewer(self, times: int) -> int:
        """Return the rounds of a benchmark that takes so many times longer."""
        return max(1, self.rounds // times)


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
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def interleave(
    rivals: Mapping[str, Callable[[int], object]],
    rounds: int,
    say: Say,
    warm_up: int = WARM_UP,
) -> dict[str, Cost]:
    """Run each rival once a round, and return the median cost of each.

    Args:
        rivals: What to run, by name; called with the number of the round.
        rounds: Rounds that count.
        say: Told each round.
        warm_up: Rounds before them that do not.
    """
    costs: dict[str, list[Cost]] = {name: [] for name in rivals}
    with settled():
        for number in range(warm_up + rounds):
            say(f"round {number + 1} of {warm_up + rounds}")
            for name in in_turn(list(rivals), number):
                with timed(costs[name]):
                    rivals[name](number)
    return {name: median(each[warm_up:]) for name, each in costs.items()}


async def ainterleave(
    rivals: Mapping[str, Callable[[int], Awaitable[object]]],
    rounds: int,
    say: Say,
    warm_up: int = WARM_UP,
) -> dict[str, Cost]:
    """Do what ``interleave`` does in an event loop."""
    costs: dict[str, list[Cost]] = {name: [] for name in rivals}
    with settled():
        for number in range(warm_up + rounds):
            say(f"round {number + 1} of {warm_up + rounds}")
            for name in in_turn(list(rivals), number):
                with timed(costs[name]):
                    await rivals[name](number)
    return {name: median(each[warm_up:]) for name, each in costs.items()}


def in_turn(names: Sequence[str], number: int) -> list[str]:
    """Return the names with another one first each round: nobody always runs after the same."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def megabytes(database: Path) -> float:
    """Return the size of a SQLite database, what is still in its log included."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(each.stat().st_size for each in database.parent.glob(f"{database.name}*")) / 1e6
