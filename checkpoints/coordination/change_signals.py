"""Signals to the gates of this process that orders have changed, without a read of the ledger.

A caller that stops or pauses agents writes the order into the ledger and then signals here.
Another process cannot; its writes are noticed by the database's change counter, at each gate
and, for agents in an event loop, by polling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from weakref import WeakKeyDictionary, WeakSet

from echelons.checkpoints.ledger import Ledger
from echelons.errors import StorageError

POLL_INTERVAL = 0.15
"""Seconds between two polls for writes of other processes, while agents run: what another process
has stopped is to be cancelled within 0.2 s."""


class ChangeSignals:
    """The listeners of one ledger, called after each signal."""

    def __init__(self) -> None:
        # How many signals there have been.
        self.generation = 0
        self._lock = Lock()
        self._listeners: set[Callable[[], None]] = set()
        self._polling_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        self._poll_task: asyncio.Task[None] | None = None

    def notify(self) -> None:
        """Call all listeners: something was written."""
        with self._lock:
            self.generation += 1
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def count_write(self) -> None:
        """Let the gates look again at their next step: something was written, and no order."""
        with self._lock:
            self.generation += 1

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Add a listener, called after each signal; return a function that removes it."""
        with self._lock:
            self._listeners.add(listener)

        def remove() -> None:
            with self._lock:
                self._listeners.discard(listener)

        return remove

    def start_polling(self, ledger: Ledger) -> None:
        """Poll in this event loop for writes of other processes, as long as there are listeners."""
        loop = asyncio.get_running_loop()
        if loop not in self._polling_loops:
            self._polling_loops.add(loop)
            loop.call_later(POLL_INTERVAL, self._begin_poll, ledger, loop, None)

    def _begin_poll(
        self, ledger: Ledger, loop: asyncio.AbstractEventLoop, seen: int | None
    ) -> None:
        if self._listeners:
            self._poll_task = loop.create_task(self._apoll(ledger, loop, seen))
        else:
            self._polling_loops.discard(loop)

    async def _apoll(
        self, ledger: Ledger, loop: asyncio.AbstractEventLoop, seen: int | None
    ) -> None:
        def poll() -> int:
            writes = ledger.foreign_writes()
            if writes != seen:
                self.notify()
            return writes

        with suppress(StorageError):  # an agent at work meets the error at its own next write
            seen = await ledger.arun(poll)
        loop.call_later(POLL_INTERVAL, self._begin_poll, ledger, loop, seen)


_SIGNALS: WeakKeyDictionary[Ledger, ChangeSignals] = WeakKeyDictionary()
_SIGNALS_LOCK = Lock()


def get_signals(ledger: Ledger) -> ChangeSignals:
    """Return the signals of a ledger, the same object every time."""
    with _SIGNALS_LOCK:
        return _SIGNALS.setdefault(ledger, ChangeSignals())
