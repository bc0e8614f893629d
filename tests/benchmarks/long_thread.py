"""One thread that grows, 1.2 KB a turn: what its Nth turn costs, and how big its file is.

The hand-written one stores its whole conversation in each checkpoint, so its file grows with the
square of the turns. It is measured to where that is affordable, ours and the floor to the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tests.benchmarks.measure import Cost, Say, Scale, in_turn, median, megabytes, settled, timed
from tests.benchmarks.model import QuickModel
from tests.benchmarks.report import Row, Target
from tests.benchmarks.rivals import AS_IT_COMES, FLOOR, FULL, NORMAL, OURS, OURS_FULL, arivals
from tests.benchmarks.trees import Role

SAID = "To be or not to be, that is what is asked here. " * 13
"""About 0.6 KB, said by the human and by the agent."""
LINEAR = (OURS, OURS_FULL, FLOOR)
NAMES = (OURS, AS_IT_COMES, NORMAL, OURS_FULL, FULL, FLOOR)
NEAR = 5
"""Turns up to the Nth of which the median is taken."""
MEGABYTES_A_TURN = 5 / 500
"""The design allows 5 MB at turn 500, growing linearly."""

Costs = dict[str, list[Cost]]
Sizes = dict[tuple[str, int], float]


def run(scale: Scale, say: Say) -> list[Row]:
    """Grow the same thread on each rival, turn by turn side by side."""
    costs, sizes = asyncio.run(_grow(scale, say))
    return [row for turn in scale.turns for row in _rows(turn, scale, costs, sizes)]


def _rows(turn: int, scale: Scale, costs: Costs, sizes: Sizes) -> Iterator[Row]:
    last = turn == max(scale.turns)
    cheap = Target(3.0) if last else None
    small = Target(MEGABYTES_A_TURN * turn, of="value") if last else None
    pairs = [(OURS, FLOOR), (OURS, AS_IT_COMES), (OURS, NORMAL), (OURS_FULL, FULL)]
    work, file = f"turn {turn} of a thread", f"file at turn {turn}"
    for own, than in [pair for pair in pairs if len(costs[pair[1]]) >= turn]:
        named = work if own == OURS else f"{work}, FULL"
        target = cheap if than == FLOOR else None
        yield Row(named, "CPU ms", _near(costs, own, turn), than, _near(costs, than, turn), target)
    yield Row(file, "MB", sizes[OURS, turn], FLOOR, sizes[FLOOR, turn], small)
    if turn <= scale.affordable:
        yield Row(file, "MB", sizes[OURS, turn], AS_IT_COMES, sizes[AS_IT_COMES, turn])


def _near(costs: Costs, name: str, turn: int) -> float:
    return median(costs[name][max(0, turn - NEAR) : turn]).cpu


async def _grow(scale: Scale, say: Say) -> tuple[Costs, Sizes]:
    costs: Costs = {name: [] for name in NAMES}
    sizes: Sizes = {}
    async with arivals(Role("root", QuickModel(answer=SAID)), NAMES) as field:
        with settled():
            for turn in range(1, max(scale.turns) + 1):
                say(f"turn {turn} of {max(scale.turns)}")
                for name in in_turn(NAMES if turn <= scale.affordable else LINEAR, turn):
                    with timed(costs[name]):
                        await field[name].ainvoke(SAID, "thread")
                    if turn in scale.turns:
                        sizes[name, turn] = megabytes(field[name].database)
    return costs, sizes
