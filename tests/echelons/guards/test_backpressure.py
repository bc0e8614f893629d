"""A step begins when its start has been taken, whichever thread or event loop waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from threading import Thread

import pytest

from echelons.guards.gate import Backpressure


def in_thread(work: Callable[[], object]) -> None:
    thread = Thread(target=work)
    thread.start()
    thread.join()


async def held(pressure: Backpressure, task: str = "a") -> asyncio.Task[None]:
    """Return a task of the loop that waits for the start of a step."""
    waiting = asyncio.create_task(pressure.await_start(task))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    return waiting


RELEASES: list[Callable[[Backpressure], None]] = [
    lambda pressure: pressure.take_start("a"),
    lambda pressure: pressure.lift(),
    lambda pressure: pressure.close(),
]


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("release", RELEASES)
async def test_a_loop_is_released_by_itself_and_by_any_thread(
    release: Callable[[Backpressure], None], threaded: bool
) -> None:
    pressure = Backpressure()
    waiting, other = await held(pressure), await held(pressure)

    if threaded:
        in_thread(lambda: release(pressure))
    else:
        release(pressure)

    async with asyncio.timeout(120):
        await asyncio.gather(waiting, other)


async def test_one_that_is_cancelled_takes_no_other_with_it() -> None:
    pressure = Backpressure()
    cancelled, other = await held(pressure), await held(pressure)

    cancelled.cancel()
    with suppress(asyncio.CancelledError):
        await cancelled
    pressure.take_start("a")

    async with asyncio.timeout(120):
        await other
    assert cancelled.cancelled()


def test_a_loop_that_has_ended_with_a_step_held_back_does_not_matter() -> None:
    pressure = Backpressure()

    async def leave() -> None:
        (await held(pressure)).cancel()

    asyncio.run(leave())

    pressure.take_start("a")
    pressure.close()


async def test_a_thread_and_a_loop_wait_for_the_same_step() -> None:
    pressure, begun = Backpressure(), list[bool]()
    with ExitStack() as stack:
        pressure.guard_loop(stack)
        thread = Thread(target=lambda: begun.append(pressure.wait_for_start("a")))
        thread.start()
        waiting = await held(pressure)

        pressure.take_start("a")

        await waiting
        thread.join()
    assert begun == [True]


async def test_what_was_taken_or_closed_before_waits_for_nothing() -> None:
    pressure = Backpressure()
    pressure.take_start("a")
    await pressure.await_start("a")
    pressure.take_end("a")
    await held(pressure)
    pressure.close()
    await pressure.await_start("a")


async def test_nothing_is_held_back_any_more_where_only_the_result_is_asked_for() -> None:
    pressure = Backpressure()
    with ExitStack() as stack:
        pressure.guard_loop(stack)
        pressure.lift()

        await pressure.await_start("a")
        assert pressure.wait_for_start("b")
        # Who leaves such a run lets no more steps begin, like any other.
        pressure.close()
        assert not pressure.wait_for_start("c")
