"""Plans that stop, pause and resume the agents of a thread's current turn.

Used by sessions; any process with the saver and the thread's id can run them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.coordination.change_signals import signals_of
from echelons.checkpoints.coordination.control_orders import Orders, is_under, orders_key
from echelons.checkpoints.ledger import Ledger, Transaction
from echelons.checkpoints.queries import AllCheckpoints, InLedger, OneCheckpoint, Plan
from echelons.checkpoints.threads.pending_work import is_at_work
from echelons.errors import NothingRunning, NotPaused, ThreadNotFound, UnknownPath
from echelons.identity.lineage import Identity
from echelons.tree.names import PATH_SEPARATOR

ControlOrder = Literal["stopped", "paused"]
"""The order that an agent is given; the field of `Orders` that holds its path."""


def give_order(
    order: ControlOrder, thread_id: str, path: str | None, known: Collection[str] = ()
) -> Plan[str]:
    """Order an agent and all below it to stop or to pause in the current turn; return its path.

    Args:
        order: `"stopped"` ends them, `"paused"` holds them before their next model call.
        thread_id: The root's thread.
        path: Path of the agent; `None` for the root, which pauses the whole tree.
        known: Paths of the tree. An agent that has begun in this turn may be named, too.

    Raises:
        ThreadNotFound: The thread has never run.
        NothingRunning: Its last turn has ended.
        UnknownPath: There is no such agent.
    """
    saved: CheckpointTuple | None = yield OneCheckpoint(thread_id)
    identity = Identity.read(saved.metadata) if saved else None
    if saved is None or identity is None:
        raise ThreadNotFound(thread_id)
    if not is_at_work(saved):
        raise NothingRunning(identity.thread_name or thread_id)
    wanted = PATH_SEPARATOR.join(identity.path) if path is None else path
    if path is not None and path not in known:
        rows: list[CheckpointTuple] = yield AllCheckpoints(thread_id, {"turn_id": identity.turn})
        begun = {str(row.metadata.get("agent_path", "")) for row in rows}
        if path not in begun:
            raise UnknownPath(path, sorted(begun.union(known)))
    name = orders_key(thread_id, identity.turn)

    def add_order(open_: Transaction) -> bool:
        orders = Orders.read(open_, name)
        paths: tuple[str, ...] = getattr(orders, order)
        if wanted in paths:
            return False
        replace(orders, **{order: (*paths, wanted)}).store(open_, name)
        return True

    def add_and_signal(ledger: Ledger) -> None:
        if ledger.commit(add_order):
            signals_of(ledger).give()

    yield InLedger(add_and_signal)
    return wanted


def lift(open_: Transaction, thread_id: str, turn: str, path: str | None = None) -> None:
    """Lift the pauses of a turn: those of an agent and all below it, or all of them."""
    name = orders_key(thread_id, turn)
    orders = Orders.read(open_, name)
    if orders.paused:
        orders.lifted(path).store(open_, name)


def check_paused(thread_id: str, path: str) -> Plan[None]:
    """Check that there is a pause to lift.

    Raises:
        NotPaused: Neither the agent nor any below it is paused.
    """
    paused = (yield from orders_plan(thread_id)).paused
    if not any(is_under(each, path) for each in paused):
        raise NotPaused(path, paused)


def orders_plan(thread_id: str) -> Plan[Orders]:
    """Return the control orders of a thread's current turn."""
    saved: CheckpointTuple | None = yield OneCheckpoint(thread_id)
    identity = Identity.read(saved.metadata) if saved else None
    if identity is None:
        return Orders()
    name = orders_key(thread_id, identity.turn)
    found: Orders = yield InLedger(lambda ledger: Orders.look(ledger, name))
    return found
