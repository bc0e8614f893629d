"""`ControlOrders`: the stops and pauses of one turn, kept in the ledger.

`threads.stop_and_pause` stores them, every gate obeys them, and the pending work of a stored run
depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal, TypeAlias

from echelons.checkpoints.ledger import Ledger, RecordKind, Transaction, build_key
from echelons.checkpoints.thread_events import EventKind, ThreadEvent, WriteLocation
from echelons.guards.gate import Halt, Pause
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class GivenOrder:
    """An order as it was given.

    Attributes:
        order: What it orders.
        path: Path of the agent that it is for, with all below it.
        by: Who gave it, as they said.
        at: When, ISO 8601, UTC.
    """

    order: Literal["stop", "pause", "resume", "dismiss"]
    path: str
    by: str
    at: str


OrderListener: TypeAlias = Callable[[Sequence[GivenOrder]], None]
"""Is told the orders of a turn, in order."""


@dataclass(frozen=True, slots=True)
class ControlOrders:
    """The stops and pauses of a turn; each also covers all agents below.

    Attributes:
        stopped: Paths of stopped agents.
        paused: Paths of paused agents.
        given: All orders that were given in the turn, in order.
    """

    stopped: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    given: tuple[GivenOrder, ...] = ()

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
        left = (each for each in self.paused if path is not None and not is_under(each, path))
        return replace(self, paused=tuple(left))

    @classmethod
    def read(cls, open_: Transaction, name: str) -> ControlOrders:
        """Return the orders stored under a key of the ledger."""
        found = open_.get_record(ORDERS, name)
        return found.value if found else cls()

    @classmethod
    def read_from(cls, ledger: Ledger, name: str) -> ControlOrders:
        """Return the orders stored under a key, in a read of its own."""
        return ledger.query(lambda open_: cls.read(open_, name))

    def store(self, open_: Transaction, name: str) -> int | None:
        """Store the orders under a key of the ledger, and return its version."""
        found = open_.get(name)
        given = [asdict(each) for each in self.given]
        value = {"stopped": list(self.stopped), "paused": list(self.paused), "given": given}
        return open_.compare_and_set(name, found.version if found else None, value)

    def store_given(
        self, open_: Transaction, name: str, given: GivenOrder, where: WriteLocation
    ) -> None:
        """Store the orders after one that was given, with its event."""
        version = replace(self, given=(*self.given, given)).store(open_, name)
        data = {"order": given.order, "path": given.path, "by": given.by}
        open_.add_event(where, ThreadEvent(EventKind.ORDER, f"{name}/{version}", data))


ORDERS: Final[RecordKind[ControlOrders]] = RecordKind("orders", ControlOrders)
"""The stops and pauses of a turn."""


def build_orders_key(thread_id: str, turn: str) -> str:
    """Return the ledger's key of a turn's orders."""
    return build_key(thread_id, "orders", turn)


def is_under(path: str, above: str) -> bool:
    """Return whether a path is another, or below it.

    Examples:
        >>> is_under("head/north/camp", "head/north"), is_under("head/northern", "head/north")
        (True, False)
    """
    return path == above or path.startswith(above + PATH_SEPARATOR)
