"""`Backpressure`: no step of a run begins before the events of the steps before have been taken.

The start of a step is an event itself, and comes after those of the step before. So a step waits
until its consumer has taken its start and asks for more; a run that is not driven stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from threading import Lock

from echelons.plans import PlanStep


class Backpressure:
    """Holds back the steps of one run; its consumer and the threads of the steps share it.

    A step is named by the id of its LangGraph task.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: set[str] = set()
        self._held: dict[str, Future[None]] = {}
        self._awaiting: dict[str, list[asyncio.Future[None]]] = {}
        self._has_loop = False
        self._is_lifted = False
        self._is_closed = False
        self._is_ending = False

    @property
    def is_open(self) -> bool:
        """Whether steps may begin: its consumer has not left, and its loop is not ending."""
        return not (self._is_closed or self._is_ending)

    def guard_loop(self, stack: ExitStack) -> None:
        """Hold back steps in threads, until the stack of the root's loop is unwound.

        A loop waits for its threads when it ends, also after an error or Ctrl-C: then they must
        not wait for events to be taken.
        """
        self._has_loop, self._is_ending = True, False
        stack.callback(self._end_loop)

    def take_start(self, task: str) -> None:
        """Let a step begin: its consumer has taken its start, and asks for more."""
        with self._lock:
            self._taken.add(task)
            held, awaiting = self._held.pop(task, None), self._awaiting.pop(task, None)
        if held:
            held.set_result(None)
        if awaiting:
            _release(awaiting)

    def take_end(self, task: str) -> None:
        """Forget a step that has ended: it may run again, after an answer."""
        with self._lock:
            self._taken.discard(task)

    def lift(self) -> None:
        """Hold back no more steps: its consumer asks for the result alone, and takes no events."""
        self._is_lifted = True
        self._release_held()

    def forget_starts(self) -> None:
        """Forget the steps that were held: they begin again, without having ended."""
        with self._lock:
            self._taken.clear()

    def close(self) -> None:
        """Let no more steps begin: its consumer has left."""
        self._is_closed = True
        self._release_held()

    def wait_for_start(self, task: str) -> bool:
        """Wait until a step may begin; return whether it may, or must not begin any more.

        Only threads of a guarded loop wait here: an event loop waits in `await_start`.
        """
        if self._has_loop:
            with self._lock:
                held = self._held.setdefault(task, Future()) if self._must_wait(task) else None
            if held:
                held.result()
        return self.is_open

    async def await_start(self, task: str) -> None:
        """Wait in an event loop until the start of a step is taken, or nothing begins any more."""
        with self._lock:
            if not self._must_wait(task):
                return
            # Every waiting task has a future, as a cancelled task cancels the one that it awaits.
            held = asyncio.get_running_loop().create_future()
            self._awaiting.setdefault(task, []).append(held)
        await held

    def build_start_step(self, task: str) -> PlanStep:
        """Return `await_start` as a step of a plan; threads wait where their step begins."""
        return PlanStep(lambda: None, partial(self.await_start, task))

    def _must_wait(self, task: str) -> bool:
        return not self._is_lifted and task not in self._taken and self.is_open

    def _end_loop(self) -> None:
        self._is_ending = True
        self._release_held()

    def _release_held(self) -> None:
        with self._lock:
            held, self._held = self._held, {}
            awaiting, self._awaiting = self._awaiting, {}
        for future in held.values():
            future.set_result(None)
        for futures in awaiting.values():
            _release(futures)


def _release(futures: Sequence[asyncio.Future[None]]) -> None:
    """Set the futures of event loops, from the thread of a loop or from any other."""
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    for future in futures:
        loop = future.get_loop()
        if loop is running:
            _set_unless_done(future)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(_set_unless_done, future)


def _set_unless_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
