"""Replaceable clocks: the system clock and two for tests.

`ScriptedModel` waits through a `Clock`; a test injects `FakeClock` to let time pass at
once, or `ManualClock` to make a call hang until the test advances it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """A clock that can also wait. All times are in seconds."""

    def now(self) -> float:
        """Return the seconds since some fixed moment; they never decrease."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block this thread."""

    async def asleep(self, seconds: float) -> None:
        """Async version of `sleep`."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return `time.monotonic()`, in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread for that many seconds."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Async version of `sleep`."""
        await asyncio.sleep(seconds)


class FakeClock:
    """A clock on which sleeping only advances the time, without waiting.

    Concurrent sleepers advance it by the sum of their times: it shows the total of the
    requested waits, not their overlap.

    Examples:
        >>> clock = FakeClock()
        >>> clock.sleep(30)
        >>> clock.now()
        30.0
    """

    def __init__(self, start: float = 0.0) -> None:
        self._lock = threading.Lock()
        self._now = float(start)

    def now(self) -> float:
        """Return the start plus all seconds slept and advanced."""
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> None:
        """Advance the time by that many seconds.

        Raises:
            ValueError: The seconds are negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        with self._lock:
            self._now += seconds

    def sleep(self, seconds: float) -> None:
        """Advance the time and return at once."""
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Async version of `sleep`."""
        self.advance(seconds)
        await asyncio.sleep(0)  # as a real wait would, let other tasks run


class ManualClock:
    """A clock that stands still until `advance`: sleepers hang, in threads and in tasks.

    Examples:
        >>> clock = ManualClock()
        >>> sleeper = threading.Thread(target=clock.sleep, args=(5,))
        >>> sleeper.start()
        >>> clock.wait_for_sleepers(1)
        >>> clock.advance(5)
        >>> sleeper.join()
    """

    def __init__(self, start: float = 0.0) -> None:
        self._changed = threading.Condition()
        self._now = float(start)
        self._sleepers: dict[Callable[[], object], float] = {}

    def now(self) -> float:
        """Return the start plus all seconds advanced."""
        with self._changed:
            return self._now

    def sleep(self, seconds: float) -> None:
        """Block this thread until the clock has been advanced by that many seconds."""
        woken = threading.Event()
        self._add_sleeper(seconds, woken.set)
        woken.wait()

    async def asleep(self, seconds: float) -> None:
        """Async version of `sleep`."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        self._add_sleeper(seconds, wake)
        try:
            await woken.wait()
        finally:
            with self._changed:  # a cancelled task sleeps no more
                self._sleepers.pop(wake, None)

    def advance(self, seconds: float) -> None:
        """Advance the time by that many seconds, and wake the sleepers that are due.

        Raises:
            ValueError: The seconds are negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        with self._changed:
            self._now += seconds
            due = [wake for wake, until in self._sleepers.items() if until <= self._now]
            for wake in due:
                del self._sleepers[wake]
        for wake in due:
            wake()

    def wait_for_sleepers(self, count: int, timeout: float = 10.0) -> None:
        """Block until at least `count` sleepers wait; call it in a thread from async code.

        Raises:
            TimeoutError: There were fewer within `timeout` seconds of real time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._sleepers) >= count, timeout):
                raise TimeoutError(
                    f"{len(self._sleepers)} of {count} sleepers came within {timeout} s"
                )

    def _add_sleeper(self, seconds: float, wake: Callable[[], object]) -> None:
        with self._changed:
            if seconds > 0:
                self._sleepers[wake] = self._now + seconds
                self._changed.notify_all()
                return
        wake()
