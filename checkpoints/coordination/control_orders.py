"""`ControlOrders`: the stops and pauses of one turn, kept in the ledger.

`threads.stop_and_pause` stores them, every gate obeys them, and the pending work of a stored run
depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from echelons.checkpoints.coordination.records import Records
from echelons.checkpoints.ledger import Transaction
from echelons.checkpoints.thread_events import EventKind, ThreadEvent, WriteLocation
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
