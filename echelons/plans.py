"""Runs plans: generators of blocking steps, each written once for sync and async callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")


def drive_plan(plan: Generator[S, Any, T], run: Callable[[S], Any]) -> T:
    """Run a plan and return its result.

    Args:
        plan: Yields steps, and is sent the result of each, or gets its error thrown in.
        run: Runs one step and returns its result.
    """
    try:
        step = next(plan)
        while True:
            try:
                found = run(step)
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                step = plan.throw(error)
            else:
                step = plan.send(found)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # typeshed knows no better


async def adrive_plan(plan: Generator[S, Any, T], run: Callable[[S], Awaitable[Any]]) -> T:
    """Async version of `drive_plan`."""
    try:
        step = next(plan)
        while True:
            try:
                found = await run(step)
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                step = plan.throw(error)
            else:
                step = plan.send(found)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # typeshed knows no better
