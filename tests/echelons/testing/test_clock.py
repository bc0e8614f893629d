"""The clocks that tests inject."""

from __future__ import annotations

import asyncio
import threading

import pytest

from echelons.testing import FakeClock, ManualClock, SystemClock


def test_a_sleeper_moves_the_fake_clock_by_its_time() -> None:
    clock = FakeClock(start=5)
    clock.sleep(2.5)
    assert clock.now() == 7.5


async def test_an_async_sleeper_on_the_fake_clock_lets_others_run() -> None:
    clock = FakeClock()
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    task = asyncio.create_task(other())
    await clock.asleep(60)
    order.append("sleeper")
    await task
    assert order == ["other", "sleeper"]
    assert clock.now() == 60


@pytest.mark.parametrize("clock", [FakeClock(), ManualClock()])
def test_no_test_clock_goes_back(clock: FakeClock | ManualClock) -> None:
    with pytest.raises(ValueError, match="go back by 1 s"):
        clock.advance(-1)


def test_a_thread_on_the_manual_clock_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = ManualClock()
    sleeper = threading.Thread(target=clock.sleep, args=(10,))
    sleeper.start()
    clock.wait_for_sleepers(1)
    clock.advance(9)
    clock.wait_for_sleepers(1)
    assert sleeper.is_alive()
    clock.advance(1)
    sleeper.join(timeout=120)
    assert not sleeper.is_alive()


async def test_tasks_on_the_manual_clock_wake_in_the_order_of_their_times() -> None:
    clock = ManualClock()
    woken: list[int] = []

    async def sleeper(seconds: int) -> None:
        await clock.asleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (20, 10)]
    await asyncio.to_thread(clock.wait_for_sleepers, 2)
    clock.advance(10)
    await tasks[1]
    assert woken == [10]
    clock.advance(10)
    await tasks[0]
    assert woken == [10, 20]


async def test_a_cancelled_task_no_longer_counts_as_a_sleeper() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.asleep(10))
    await asyncio.to_thread(clock.wait_for_sleepers, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(TimeoutError, match="0 of 1 sleepers"):
        clock.wait_for_sleepers(1, timeout=0)


async def test_zero_wait_on_manual_clock_ends_at_once() -> None:
    clock = ManualClock()
    clock.sleep(0)
    await clock.asleep(0)
    assert clock.now() == 0


async def test_the_system_clock_never_goes_back() -> None:
    clock = SystemClock()
    before = clock.now()
    clock.sleep(0)
    await clock.asleep(0)
    assert clock.now() >= before
