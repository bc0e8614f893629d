"""Three levels, one after the other: what a step of ours costs, everything stored.

A root, its subordinate and theirs, two model turns each, one tool call at the leaf, and a
model that takes no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.benchmarks.measure import Cost, Say, Scale, ainterleave, interleave
from tests.benchmarks.report import Row, Target, versus
from tests.benchmarks.rivals import (
    AS_IT_COMES,
    FLOOR,
    FULL,
    NORMAL,
    OURS,
    OURS_FULL,
    arivals,
    aworks,
    rivals,
    works,
)
from tests.benchmarks.trees import chain

TASK = "Plan a trip to Italy"


def run(scale: Scale, say: Say) -> list[Row]:
    """Measure the chain in both worlds."""
    waiting = asyncio.run(_waiting(scale, lambda what: say(f"async, {what}")))
    with rivals(chain()) as field:
        blocking = interleave(works(field, TASK), scale.rounds, lambda what: say(f"sync, {what}"))
    return [
        *_rows("async", waiting, Target(0.6, then=0.45)),
        *_rows("sync", blocking, Target(1.0, then=0.65)),
    ]


async def _waiting(scale: Scale, say: Say) -> dict[str, Cost]:
    async with arivals(chain()) as field:
        return await ainterleave(aworks(field, TASK), scale.rounds, say)


def _rows(world: str, costs: Mapping[str, Cost], target: Target) -> list[Row]:
    work = f"three-level chain, {world}"
    return [
        *versus(work, costs[OURS], AS_IT_COMES, costs[AS_IT_COMES], target),
        *versus(work, costs[OURS], NORMAL, costs[NORMAL]),
        *versus(f"{work}, FULL", costs[OURS_FULL], FULL, costs[FULL]),
        *versus(work, costs[OURS], FLOOR, costs[FLOOR]),
    ]
