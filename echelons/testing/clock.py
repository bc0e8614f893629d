"""Time as something that can be replaced: the real clock and two for tests.

``ScriptedModel`` waits through a ``Clock``; a test injects ``FakeClock`` where time should
pass at once, or ``ManualClock`` where a call should hang until the test says so.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What tells the time and waits. All times are in seconds."""

    def now(self) -> float:
        """The time since some fixed moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait in this thread."""

    async def asleep(self, seconds: float) -> None:
        """Wait in this task, and let others run."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds of ``time.monotonic``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread for so many seconds."""
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        """Suspend this task for so many seconds."""
        await asyncio.sleep(seconds)


class FakeClock:
    """A clock that whoever sleeps moves forward, so that nobody ever waits.

    Two sleepers at once move it by the sum of their times: it shows how much waiting was
    asked for, not what would have overlapped.

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
        """The time that has been slept or advanced away."""
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass.

        Raises:
            ValueError: The time is negative.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        with self._lock:
            self._now += seconds

    def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        """Let the time pass at once, and other tasks run."""
        self.advance(seconds)
        await asyncio.sleep(0)


class ManualClock:
    """A clock that stands still until ``advance``: sleepers hang, in threads and in tasks.

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
        """The time up to which the clock has been advanced."""
        with self._changed:
            return self._now

    def sleep(self, seconds: float) -> None:
        """Block this thread until the clock has been advanced so far."""
        woken = threading.Event()
        self._enter(seconds, woken.set)
        woken.wait()

    async def asleep(self, seconds: float) -> None:
        """Suspend this task until the clock has been advanced so far."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        self._enter(seconds, wake)
        try:
            await woken.wait()
        finally:
            with self._changed:  # a cancelled task sleeps no more
                self._sleepers.pop(wake, None)

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass, and wake all whose time has come.

        Raises:
            ValueError: The time is negative.
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
        """Block until at least so many sleep; in async code call it through a thread.

        Raises:
            TimeoutError: They did not come within ``timeout`` real seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._sleepers) >= count, timeout):
                raise TimeoutError(
                    f"{len(self._sleepers)} of {count} sleepers came within {timeout} s"
                )

    def _enter(self, seconds: float, wake: Callable[[], object]) -> None:
        with self._changed:
            if seconds > 0:
                self._sleepers[wake] = self._now + seconds
                self._changed.notify_all()
                return
        wake()
