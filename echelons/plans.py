"""Runs plans: generators of blocking steps, each written once for sync and async callers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import aclosing, closing, suppress
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple, TypeAlias, TypeVar

S = TypeVar("S")
T = TypeVar("T")


class PlanStep(NamedTuple):
    """A blocking operation of a plan, in its sync and its async form."""

    run: Callable[[], Any]
    arun: Callable[[], Awaitable[Any]]


class PlanStream(NamedTuple):
    """A stream that a plan passes on, in its sync and its async form, and the items of a part."""

    stream: Callable[[], Any]
    astream: Callable[[], Any]
    list_items: Callable[[Any], Iterable[Any]]


Plan: TypeAlias = Generator[PlanStep, Any, T]
"""A generator of blocking operations that returns a result."""
StreamPlan: TypeAlias = Generator[Any, Any, T]
"""A plan that yields items beside its blocking operations, and streams that have some."""


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
            step = _take_step(plan, step, run)
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
    return drive_plan(plan, _RUN)


async def arun_plan_steps(plan: Plan[T]) -> T:
    """Async version of `run_plan_steps`."""
    return await adrive_plan(plan, _ARUN)


def stream_plan(plan: StreamPlan[None]) -> Generator[Any]:
    """Run a plan in the calling thread, and yield its items and those of its streams.

    If it is closed, the plan gets `GeneratorExit` thrown in, and may run further steps.
    """
    try:
        yield from _stream_steps(plan)
    except GeneratorExit as left:
        _run_rest(plan, left)


async def astream_plan(plan: StreamPlan[None]) -> AsyncGenerator[Any]:
    """Async version of `stream_plan`."""
    with suppress(StopIteration):
        step = next(plan)
        while True:
            result = None
            try:
                if isinstance(step, PlanStep):
                    result = await step.arun()
                elif isinstance(step, PlanStream):
                    async with aclosing(step.astream()) as parts:
                        async for part in parts:
                            for item in step.list_items(part):
                                yield item
                else:
                    yield step
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                step = plan.throw(error)
            else:
                step = plan.send(result)


# Without a function of ours for each step.
_RUN, _ARUN = methodcaller("run"), methodcaller("arun")


def _take_step(plan: Generator[S, Any, T], step: S, run: Callable[[S], Any]) -> S:
    try:
        result = run(step)
    except BaseException as error:  # noqa: BLE001  the plan raises it again
        return plan.throw(error)
    return plan.send(result)


def _stream_steps(plan: StreamPlan[None]) -> Generator[Any]:
    with suppress(StopIteration):
        step = next(plan)
        while True:
            result = None
            try:
                if isinstance(step, PlanStep):
                    result = step.run()
                elif isinstance(step, PlanStream):
                    with closing(step.stream()) as parts:
                        for part in parts:
                            yield from step.list_items(part)
                else:
                    yield step
            except GeneratorExit:
                # A generator that is closed may yield no more, and so run no step.
                raise
            except BaseException as error:  # noqa: BLE001  the plan raises it again
                step = plan.throw(error)
            else:
                step = plan.send(result)


def _run_rest(plan: StreamPlan[None], error: BaseException) -> None:
    """Throw an error into a plan, and run the steps that it ends with."""
    step = plan.throw(error)
    while True:
        step = _take_step(plan, step, _RUN)
