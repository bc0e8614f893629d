"""One thread that grows, 1.2 KB a turn: what its Nth turn costs, and how big its file is.

The design's targets are for turn 500; the last turn measured is held to them.
"""

from __future__ import annotations

import asyncio

from tests.benchmarks.measure import Cost, Say, Scale, in_turn, median, megabytes, settled, timed
from tests.benchmarks.model import QuickModel
from tests.benchmarks.report import Row, Target
from tests.benchmarks.rivals import AS_IT_COMES, FLOOR, OURS, arivals
from tests.benchmarks.trees import Role

SAID = "To be or not to be, that is what is asked here. " * 13
"""About 0.6 KB, said by the human and by the agent."""
NAMES = (OURS, AS_IT_COMES, FLOOR)
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


def _rows(turn: int, scale: Scale, costs: Costs, sizes: Sizes) -> list[Row]:
    near = {name: median(each[max(0, turn - NEAR) : turn]) for name, each in costs.items()}
    last = turn == max(scale.turns)
    cheap = Target(3.0) if last else None
    small = Target(MEGABYTES_A_TURN * turn, of="value") if last else None
    work, file = f"turn {turn} of a thread", f"file at turn {turn}"
    return [
        Row(work, "CPU ms", near[OURS].cpu, FLOOR, near[FLOOR].cpu, cheap),
        Row(work, "CPU ms", near[OURS].cpu, AS_IT_COMES, near[AS_IT_COMES].cpu),
        Row(file, "MB", sizes[OURS, turn], AS_IT_COMES, sizes[AS_IT_COMES, turn], small),
        Row(file, "MB", sizes[OURS, turn], FLOOR, sizes[FLOOR, turn]),
    ]


async def _grow(scale: Scale, say: Say) -> tuple[Costs, Sizes]:
    costs: Costs = {name: [] for name in NAMES}
    sizes: Sizes = {}
    async with arivals(Role("root", QuickModel(answer=SAID)), NAMES) as field:
        with settled():
            for turn in range(1, max(scale.turns) + 1):
                say(f"turn {turn} of {max(scale.turns)}")
                for name in in_turn(NAMES, turn):
                    with timed(costs[name]):
                        await field[name].ainvoke(SAID, "thread")
                    if turn in scale.turns:
                        sizes[name, turn] = megabytes(field[name].database)
    return costs, sizes
