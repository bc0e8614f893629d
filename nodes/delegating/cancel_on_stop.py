"""A context manager that cancels the code inside when the agent of a config is stopped.

Async subordinates and tools run inside it. It cancels the current task, as `asyncio.timeout`
does, and takes the cancellation back when the block ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from echelons.guards.gate import Halt, get_gate


class CancelOnStop:
    """A block that is cancelled when the agent of a config is stopped.

    Attributes:
        halt: Why the block was cancelled; `None` if it was not.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.halt: Halt | None = None
        self._config = config
        self._inside = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a subordinate is run outside of a task")
        self._loop, self._task, self._before = task.get_loop(), task, task.cancelling()
        self._inside = True
        self._stop_listening = get_gate(self._config).listen(self._config, self._on_halt)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._inside = False
        self._stop_listening()
        if self.halt is None:
            return False
        # Another cancellation of the task must stay in effect.
        only_ours = self._task.uncancel() <= self._before
        return only_ours and kind is asyncio.CancelledError

    def _on_halt(self, halt: Halt) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing runs any more
            self._loop.call_soon_threadsafe(self._cancel, halt)

    def _cancel(self, halt: Halt) -> None:
        if self._inside and self.halt is None:
            self.halt = halt
            self._task.cancel()
