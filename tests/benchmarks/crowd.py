"""Many subordinates at once: how far their work is from being done side by side.

Ideal are three model turns one after the other: the root's, all subordinates' at once, and
the root's again. What is above it is processor time, and waiting for a free thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from tests.benchmarks.measure import Cost, Say, Scale, ainterleave, interleave
from tests.benchmarks.report import Row, Target
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
from tests.benchmarks.trees import crowd

TASK = "Ask everybody"
NAMES = (OURS, AS_IT_COMES, NORMAL, OURS_FULL, FULL)
SLOWER = 6
"""A round takes about that many times as long as one of the chain."""


def run(scale: Scale, say: Say) -> list[Row]:
    """Measure the crowd in an event loop, with threads enough, and with threads as they come."""
    target = Target(1.8, of="value")
    return [
        *_rows(scale, "async", asyncio.run(_waiting(scale, say)), target),
        *_rows(scale, "sync, a thread each", _blocking(scale, scale.crowd, say), target),
        *_rows(scale, "sync, threads as they come", _blocking(scale, None, say), None),
    ]


async def _waiting(scale: Scale, say: Say) -> dict[str, Cost]:
    async with arivals(crowd(scale.crowd, scale.latency), NAMES) as field:
        rounds = scale.fewer(SLOWER)
        return await ainterleave(aworks(field, TASK), rounds, lambda at: say(f"async, {at}"), 1)


def _blocking(scale: Scale, at_once: int | None, say: Say) -> dict[str, Cost]:
    with rivals(crowd(scale.crowd, scale.latency), NAMES, at_once) as field:
        rounds, limit = scale.fewer(SLOWER), at_once or "a few"
        return interleave(
            works(field, TASK), rounds, lambda at: say(f"sync, {limit} at once, {at}"), 1
        )


def _rows(scale: Scale, world: str, costs: Mapping[str, Cost], target: Target | None) -> list[Row]:
    work = f"{scale.crowd} subordinates at once, {world}"
    return [
        *_versus(scale, work, costs[OURS], AS_IT_COMES, costs, target),
        *_versus(scale, work, costs[OURS], NORMAL, costs),
        *_versus(scale, f"{work}, FULL", costs[OURS_FULL], FULL, costs),
    ]


def _versus(
    scale: Scale,
    work: str,
    own: Cost,
    than: str,
    costs: Mapping[str, Cost],
    target: Target | None = None,
) -> Iterator[Row]:
    ideal, other = 3 * scale.latency * 1e3, costs[than]
    yield Row(work, "wall ÷ ideal", own.wall / ideal, than, other.wall / ideal, target)
    yield Row(work, "CPU ms", own.cpu, than, other.cpu)
