"""One subordinate called again and again, 2 KB each time: what a call costs, how its file grows.

LangGraph's own way of remembering copies the conversation into each checkpoint. Costs are
therefore compared early, and only one hand-written rival goes on to the end, for its file.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.benchmarks.measure import Cost, Say, Scale, in_turn, median, megabytes, settled, timed
from tests.benchmarks.report import Row, Target
from tests.benchmarks.rivals import (
    AS_IT_COMES,
    FULL,
    NORMAL,
    OURS,
    OURS_FULL,
    Field,
    arivals,
)
from tests.benchmarks.trees import pair

ANSWER = "A subordinate's answer, two thousand characters long. " * 37
NAMES = (OURS, AS_IT_COMES, NORMAL, OURS_FULL, FULL)
TO_THE_END = (OURS, AS_IT_COMES)
NEAR = 5
"""Calls up to the Nth of which the median is taken."""
GROWTH = "second half's growth ÷ first half's"


@dataclass(slots=True)
class Grown:
    """What the calls have cost, and how big the files were after some of them."""

    costs: dict[str, list[Cost]] = field(default_factory=lambda: {name: [] for name in NAMES})
    sizes: dict[tuple[str, int], float] = field(default_factory=dict)

    def near(self, name: str, call: int) -> float:
        """Return the processor time of the calls up to one."""
        return median(self.costs[name][max(0, call - NEAR) : call]).cpu

    def growth(self, name: str, whole: int) -> float:
        """Return the growth of the second half by that of the first: 1 is linear, 3 quadratic."""
        begun, half, end = (self.sizes[name, call] for call in (0, whole // 2, whole))
        return (end - half) / (half - begun)


def run(scale: Scale, say: Say) -> list[Row]:
    """Call the subordinate over and over, one turn of the root each."""
    whole, early = scale.continuations, scale.compared
    grown = asyncio.run(_grow(scale, say))
    work, calls = (
        f"continuation {early} of a subordinate",
        f"{whole} continuations of a subordinate",
    )
    rows = [
        Row(work, "CPU ms", grown.near(OURS, early), than, grown.near(than, early))
        for than in (AS_IT_COMES, NORMAL)
    ]
    full = grown.near(OURS_FULL, early), grown.near(FULL, early)
    late = grown.near(OURS, whole), grown.near(AS_IT_COMES, whole)
    sizes = grown.sizes[OURS, whole], grown.sizes[AS_IT_COMES, whole]
    growth = grown.growth(OURS, whole), grown.growth(AS_IT_COMES, whole)
    small, linear = Target(3 / 200 * whole, of="value"), Target(1.1, of="value")
    return [
        *rows,
        Row(f"{work}, FULL", "CPU ms", full[0], FULL, full[1]),
        Row(f"continuation {whole} of a subordinate", "CPU ms", late[0], AS_IT_COMES, late[1]),
        Row(calls, "MB", sizes[0], AS_IT_COMES, sizes[1], small),
        Row(calls, GROWTH, growth[0], AS_IT_COMES, growth[1], linear),
    ]


async def _grow(scale: Scale, say: Say) -> Grown:
    grown, whole = Grown(), scale.continuations
    async with arivals(pair(ANSWER), NAMES, remembers=True) as rivals:
        for name, rival in rivals.items():
            # The schema alone, with one other thread.
            await rival.ainvoke("Begin", "other")
            grown.sizes[name, 0] = megabytes(rival.database)
        with settled():
            for call in range(1, whole + 1):
                say(f"call {call} of {whole}")
                names = NAMES if call <= scale.compared else TO_THE_END
                await _call(rivals, in_turn(names, call), grown)
                if call in (whole // 2, whole):
                    for name in TO_THE_END:
                        grown.sizes[name, call] = megabytes(rivals[name].database)
    return grown


async def _call(rivals: Field, names: list[str], grown: Grown) -> None:
    for name in names:
        with timed(grown.costs[name]):
            await rivals[name].ainvoke("Go on", "thread")
