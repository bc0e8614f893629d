"""One subordinate called again and again, 2 KB each time: how its file grows."""

from __future__ import annotations

import asyncio

from tests.benchmarks.measure import Say, Scale, megabytes
from tests.benchmarks.report import Row, Target
from tests.benchmarks.rivals import AS_IT_COMES, OURS, arivals
from tests.benchmarks.trees import pair

ANSWER = "A subordinate's answer, two thousand characters long. " * 37
NAMES = (OURS, AS_IT_COMES)
GROWTH = "second half's growth ÷ first half's"


def run(scale: Scale, say: Say) -> list[Row]:
    """Call the subordinate over and over, one turn of the root each."""
    half, whole = scale.continuations // 2, scale.continuations
    sizes = asyncio.run(_grow(half, whole, say))
    growth = {
        name: (sizes[name, whole] - sizes[name, half]) / (sizes[name, half] - sizes[name, 0])
        for name in NAMES
    }
    work = f"{whole} continuations of a subordinate"
    return [
        Row(
            work,
            "MB",
            sizes[OURS, whole],
            AS_IT_COMES,
            sizes[AS_IT_COMES, whole],
            Target(3 / 200 * whole, of="value"),
        ),
        # 1 is linear, 3 is quadratic.
        Row(work, GROWTH, growth[OURS], AS_IT_COMES, growth[AS_IT_COMES], Target(1.1, of="value")),
    ]


async def _grow(half: int, whole: int, say: Say) -> dict[tuple[str, int], float]:
    sizes: dict[tuple[str, int], float] = {}
    async with arivals(pair(ANSWER), NAMES, remembers=True) as field:
        for name, rival in field.items():
            # The schema alone, with one other thread.
            await rival.ainvoke("Begin", "other")
            sizes[name, 0] = megabytes(rival.database)
        for turn in range(1, whole + 1):
            say(f"call {turn} of {whole}")
            for name, rival in field.items():
                await rival.ainvoke("Go on", "thread")
                if turn in (half, whole):
                    sizes[name, turn] = megabytes(rival.database)
    return sizes
