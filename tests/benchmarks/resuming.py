"""Going on after a question that the third level asked: what the resume costs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from langgraph.types import Command

from tests.benchmarks.measure import WARM_UP, Cost, Say, Scale, ainterleave, interleave
from tests.benchmarks.report import Row, Target, versus
from tests.benchmarks.rivals import (
    AS_IT_COMES,
    FULL,
    NORMAL,
    OURS,
    OURS_FULL,
    arivals,
    aworks,
    rivals,
    works,
)
from tests.benchmarks.trees import ask, chain

TASK = "Plan a trip to Italy"
NAMES = (OURS, AS_IT_COMES, NORMAL, OURS_FULL, FULL)
YES: Command[Any] = Command(resume="yes")


def run(scale: Scale, say: Say) -> list[Row]:
    """Measure the resume in both worlds."""
    waiting = asyncio.run(_waiting(scale, lambda what: say(f"async, {what}")))
    blocking = _blocking(scale, lambda what: say(f"sync, {what}"))
    return [*_rows("async", waiting), *_rows("sync", blocking)]


async def _waiting(scale: Scale, say: Say) -> dict[str, Cost]:
    async with arivals(chain(ask), NAMES) as field:
        say("asking the questions")
        for begin in aworks(field, TASK).values():
            for number in range(WARM_UP + scale.rounds):
                await begin(number)
        return await ainterleave(aworks(field, YES), scale.rounds, say)


def _blocking(scale: Scale, say: Say) -> dict[str, Cost]:
    with rivals(chain(ask), NAMES) as field:
        say("asking the questions")
        for begin in works(field, TASK).values():
            for number in range(WARM_UP + scale.rounds):
                begin(number)
        return interleave(works(field, YES), scale.rounds, say)


def _rows(world: str, costs: Mapping[str, Cost]) -> list[Row]:
    work = f"resume in the third level, {world}"
    return [
        *versus(work, costs[OURS], AS_IT_COMES, costs[AS_IT_COMES], Target(0.6)),
        *versus(work, costs[OURS], NORMAL, costs[NORMAL]),
        *versus(f"{work}, FULL", costs[OURS_FULL], FULL, costs[FULL]),
    ]
