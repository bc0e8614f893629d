"""`Backpressure`: no step of a run begins before the events of the steps before have been taken.

The start of a step is an event itself, and comes after those of the step before. So a step waits
until its consumer has taken its start and asks for more; a run that is not driven stands still.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import ExitStack
from threading import Lock


class Backpressure:
    """Holds back the steps of one run; its consumer and the threads of the steps share it.

    A step is named by the id of its LangGraph task.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: set[str] = set()
        self._held: dict[str, Future[None]] = {}
        self._has_loop = False
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
            held = self._held.pop(task, None)
        if held:
            held.set_result(None)

    def take_end(self, task: str) -> None:
        """Forget a step that has ended: it may run again, after an answer."""
        with self._lock:
            self._taken.discard(task)

    def close(self) -> None:
        """Let no more steps begin: its consumer has left."""
        self._is_closed = True
        self._release_held()

    def wait_for_start(self, task: str) -> bool:
        """Wait until a step may begin; return whether it may, or must not begin any more.

        Only threads of a guarded loop wait here: an event loop waits in `await_start`.
        """
        held = self._hold(task) if self._has_loop else None
        if held:
            held.result()
        return self.is_open

    async def await_start(self, task: str) -> None:
        """Wait in an event loop until the start of a step is taken, or nothing begins any more."""
        held = self._hold(task)
        if held:
            await asyncio.wrap_future(held)

    def _hold(self, task: str) -> Future[None] | None:
        with self._lock:
            if task in self._taken or not self.is_open:
                return None
            held = self._held.setdefault(task, Future())
            # From now on a cancelled task of an event loop does not cancel it for others.
            if not held.running():
                held.set_running_or_notify_cancel()
            return held

    def _end_loop(self) -> None:
        self._is_ending = True
        self._release_held()

    def _release_held(self) -> None:
        with self._lock:
            held, self._held = self._held, {}
        for each in held.values():
            each.set_result(None)
