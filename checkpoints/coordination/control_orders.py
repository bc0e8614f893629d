"""`ControlOrders`: the stops and pauses of one turn, kept in the ledger.

`threads.stop_and_pause` stores them, every gate obeys them, and the pending work of a stored run
depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from echelons.checkpoints.ledger import Ledger, RecordKind, Transaction, build_key
from echelons.guards.gate import Halt, Pause
from echelons.tree.names import PATH_SEPARATOR


@dataclass(frozen=True, slots=True)
class ControlOrders:
    """The stops and pauses of a turn; each also covers all agents below.

    Attributes:
        stopped: Paths of stopped agents.
        paused: Paths of paused agents.
    """

    stopped: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()

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

    def store(self, open_: Transaction, name: str) -> None:
        """Store the orders under a key of the ledger."""
        found = open_.get(name)
        value = {"stopped": list(self.stopped), "paused": list(self.paused)}
        open_.compare_and_set(name, found.version if found else None, value)


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
