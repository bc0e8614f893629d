"""`ControlOrders`: the stops and pauses of a turn, and the signals that tell gates of new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, Literal, TypeAlias
from weakref import WeakKeyDictionary, WeakSet

from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Ledger, Transaction
from echelons.checkpoints.thread_events import EventKind, ThreadEvent, WriteLocation
from echelons.errors import StorageError
from echelons.guards.gate import Halt, Pause
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class GivenOrder:
    """An order as it was given."""

    order: Literal["stop", "pause", "resume", "dismiss"]
    path: str  # path of the agent that it is for, with all below it
    by: str  # who gave it, as they said
    at: str  # when, ISO 8601, UTC


OrderListener: TypeAlias = Callable[[Sequence[GivenOrder]], None]
"""Is told the orders of a turn, in order."""


@dataclass(frozen=True, slots=True)
class ControlOrders:
    """The stops and pauses of a turn; each also covers all agents below."""

    stopped: tuple[str, ...] = ()  # paths of stopped agents
    paused: tuple[str, ...] = ()  # paths of paused agents
    given: tuple[GivenOrder, ...] = ()  # all orders that were given in the turn, in order

    def find_order(self, agent_path: str) -> Halt | Pause | None:
        """Return the order for an agent, `None` if it has none; a stop comes before a pause."""
        for stopped in self.stopped:
            if is_under(agent_path, stopped):
                return Halt("stopped", f"{stopped} was told to stop")
        for paused in self.paused:
            if is_under(agent_path, paused):
                return Pause(paused)
        return None

    def lift_pauses(self, path: str | None) -> ControlOrders:
        """Return the orders without the pauses of an agent and all below it, or without any."""
        left = (paused for paused in self.paused if path is not None and not is_under(paused, path))
        return replace(self, paused=tuple(left))


ORDERS: Final = Records[ControlOrders]("orders", ControlOrders, raw=1)
"""The stops and pauses of a turn, by its id."""


def read_orders(open_: Transaction, thread_id: str, turn: str) -> ControlOrders:
    """Return the orders of a turn."""
    return ORDERS.get(open_, thread_id, turn) or ControlOrders()


def record_order(
    open_: Transaction, orders: ControlOrders, order: GivenOrder, where: WriteLocation, turn: str
) -> None:
    """Store the orders of a turn after one that was given, with its event."""
    thread_id = where.thread_id
    version = ORDERS.put(open_, replace(orders, given=(*orders.given, order)), thread_id, turn)
    data = {"order": order.order, "path": order.path, "by": order.by}
    key = f"{ORDERS.key(thread_id, turn)}/{version}"
    open_.add_event(where, ThreadEvent(EventKind.ORDER, key, data))


def is_under(path: str, ancestor: str) -> bool:
    """Return whether a path is another, or below it.

    Examples:
        >>> is_under("head/north/camp", "head/north"), is_under("head/northern", "head/north")
        (True, False)
    """
    return path == ancestor or path.startswith(ancestor + PATH_SEPARATOR)


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
