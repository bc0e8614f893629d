"""Runs plans: generators of blocking steps, each written once for sync and async callers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class PlanStep(NamedTuple):
    """A blocking operation of a plan, in its sync and its async form."""

    run: Callable[[], Any]
    arun: Callable[[], Awaitable[Any]]


Plan: TypeAlias = Generator[PlanStep, Any, T]
"""A generator of blocking operations that returns a result."""


def build_step(work: Callable[[], Any], arun: Callable[[Callable[[], Any]], Any]) -> PlanStep:
    """Return blocking work as a step; in an event loop, `arun` runs it."""
    return PlanStep(work, partial(arun, work))


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
                result = run(step)
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                step = plan.throw(error)
            else:
                step = plan.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # typeshed knows no better


async def adrive_plan(plan: Generator[S, Any, T], run: Callable[[S], Awaitable[Any]]) -> T:
    """Async version of `drive_plan`."""
    try:
        step = next(plan)
        while True:
            try:
                result = await run(step)
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                step = plan.throw(error)
            else:
                step = plan.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # typeshed knows no better


def run_plan_steps(plan: Plan[T]) -> T:
    """Run a plan of blocking operations in the calling thread."""
    return drive_plan(plan, _run_step)


async def arun_plan_steps(plan: Plan[T]) -> T:
    """Async version of `run_plan_steps`."""
    return await adrive_plan(plan, _arun_step)


def _run_step(step: PlanStep) -> Any:
    return step.run()


def _arun_step(step: PlanStep) -> Awaitable[Any]:
    return step.arun()
