"""Tells the gates of this process that what they go by has changed, without a look at the ledger.

Who stops or pauses agents writes it into the ledger and then raises a signal here. Another
process cannot; its writes are noticed by their trace in the database, at each gate and, for
what runs in an event loop, by a look every now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from weakref import WeakKeyDictionary, WeakSet

from echelons.checkpoints.ledger import Ledger
from echelons.errors import StorageError

LOOK = 0.2
"""Seconds between two looks for what other processes have written, while agents run."""


class Signals:
    """The signals of one ledger."""

    def __init__(self) -> None:
        self.generation = 0
        self._lock = Lock()
        self._listeners: set[Callable[[], None]] = set()
        self._looking: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
        self._look: asyncio.Task[None] | None = None

    def give(self) -> None:
        """Tell everybody that something was written."""
        with self._lock:
            self.generation += 1
            told = list(self._listeners)
        for listener in told:
            listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have a listener called after each signal; return what ends that."""
        with self._lock:
            self._listeners.add(listener)

        def leave() -> None:
            with self._lock:
                self._listeners.discard(listener)

        return leave

    def look_out(self, ledger: Ledger) -> None:
        """While anybody listens, look in this event loop for what other processes write."""
        loop = asyncio.get_running_loop()
        if loop not in self._looking:
            self._looking.add(loop)
            loop.call_later(LOOK, self._begin_look, ledger, loop, None)

    def _begin_look(
        self, ledger: Ledger, loop: asyncio.AbstractEventLoop, seen: int | None
    ) -> None:
        if self._listeners:
            self._look = loop.create_task(self._alook(ledger, loop, seen))
        else:
            self._looking.discard(loop)

    async def _alook(
        self, ledger: Ledger, loop: asyncio.AbstractEventLoop, seen: int | None
    ) -> None:
        def look() -> int:
            writes = ledger.foreign_writes()
            if writes != seen:
                self.give()
            return writes

        with suppress(StorageError):  # who works meanwhile is told by writes of his own
            seen = await ledger.arun(look)
        loop.call_later(LOOK, self._begin_look, ledger, loop, seen)


_SIGNALS: WeakKeyDictionary[Ledger, Signals] = WeakKeyDictionary()
_LOCK = Lock()


def signals_of(ledger: Ledger) -> Signals:
    """Return the signals of a ledger, the same ones every time."""
    with _LOCK:
        return _SIGNALS.setdefault(ledger, Signals())
