"""Plans that control a turn from outside: stop, pause, resume and take over, or send a message."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

from langgraph.checkpoint.base import CheckpointTuple

from echelons.checkpoints.coordination.dismissal_ledger import read_dismissals
from echelons.checkpoints.coordination.mailbox import StoredMail, add_mail, check_room
from echelons.checkpoints.coordination.orders import (
    ControlOrders,
    GivenOrder,
    get_signals,
    is_under,
    read_orders,
    record_order,
)
from echelons.checkpoints.ledger import LeaseHolder, Ledger, Transaction, build_key
from echelons.checkpoints.ledger.transaction import HOST
from echelons.checkpoints.queries import AllCheckpoints, LedgerQuery, OneCheckpoint, ReadPlan
from echelons.checkpoints.thread_events import WriteLocation
from echelons.checkpoints.threads.pending_work import has_work_left
from echelons.delegation.mail import USER, MailKind, check_mail_text
from echelons.errors import (
    ControlError,
    LeaseLost,
    ThreadNotFound,
    UnknownPath,
    message_refused,
    not_paused,
)
from echelons.guards.gate import Halt
from echelons.identity.lineage import Identity
from echelons.text.input_limits import read_text
from echelons.tree.names import PATH_SEPARATOR, RUN

ControlOrder = Literal["stopped", "paused"]
"""The order that an agent is given; the field of `ControlOrders` that holds its path."""


def give_order(
    order: ControlOrder,
    thread_id: str,
    path: str | None,
    declared: Collection[str] = (),
    by: str = "",
) -> ReadPlan[str]:
    """Order an agent and all below it to stop or to pause in the current turn; return its path.

    Args:
        order: `"stopped"` ends them, `"paused"` holds them before their next model call.
        thread_id: The root's thread.
        path: Path of the agent; `None` for the root, which pauses the whole tree.
        declared: Paths of the tree. An agent that has begun in this turn may be named, too.
        by: The person that gives it.

    Raises:
        ThreadNotFound: The thread has never run.
        ControlError: Its last turn has ended.
        UnknownPath: There is no such agent.
    """
    if path is not None and (path := read_text(raw := path)) is None:
        raise UnknownPath(raw, sorted(declared))
    saved: CheckpointTuple | None = yield OneCheckpoint(thread_id)
    identity = Identity.from_metadata(saved.metadata) if saved else None
    if saved is None or identity is None:
        raise ThreadNotFound(thread_id)
    if not has_work_left(saved):
        raise ControlError(
            "no turn of thread {thread!r} is on its way, so nothing can be stopped or paused; an "
            "order holds for the turn that it is given in, and begins with it",
            code="nothing_running",
            thread=identity.thread_name or thread_id,
        )
    wanted = PATH_SEPARATOR.join(identity.path) if path is None else path
    if path is not None and path not in declared:
        rows: list[CheckpointTuple] = yield AllCheckpoints(thread_id, {"turn_id": identity.turn})
        begun = {str(row.metadata.get("agent_path", "")) for row in rows}
        if path not in begun:
            raise UnknownPath(path, sorted(begun.union(declared)))
    turn, where = identity.turn, locate_order(saved, thread_id, path)

    def add_order(open_: Transaction) -> bool:
        orders = read_orders(open_, thread_id, turn)
        paths: tuple[str, ...] = getattr(orders, order)
        if wanted not in paths:
            new = GivenOrder("stop" if order == "stopped" else "pause", wanted, by, open_.now)
            changed: dict[str, Any] = {order: (*paths, wanted)}
            record_order(open_, replace(orders, **changed), new, where, turn)
        return wanted not in paths

    def add_and_signal(ledger: Ledger) -> None:
        if ledger.commit(add_order):
            get_signals(ledger).notify()

    yield LedgerQuery(add_and_signal)
    return wanted


def lift_pauses(
    open_: Transaction, where: WriteLocation, turn: str, path: str | None, by: str
) -> None:
    """Lift the pauses of a turn: those of an agent and all below it, or all of them.

    Args:
        open_: The open transaction of the ledger.
        where: The root's checkpoint.
        turn: The turn.
        path: The agent; `None` for all.
        by: The person that lifts them.
    """
    orders = read_orders(open_, where.thread_id, turn)
    if orders.paused:
        order = GivenOrder("resume", where.agent_path, by, open_.now)
        record_order(open_, orders.lift_pauses(path), order, where, turn)


def locate_order(saved: CheckpointTuple, thread_id: str, path: str | None) -> WriteLocation:
    """Return where the event of an order is stored: with a root's checkpoint, on its thread.

    Args:
        saved: The checkpoint.
        thread_id: The root's thread.
        path: The agent that the order is for; `None` for the root.
    """
    checkpoint_id = str(saved.config["configurable"]["checkpoint_id"])
    identity = Identity.from_metadata(saved.metadata)
    agent_thread_id = identity.thread_id if identity else thread_id
    if path is None:
        path = PATH_SEPARATOR.join(identity.path) if identity else ""
    return WriteLocation(thread_id, "", checkpoint_id, agent_thread_id, path)


def check_paused(thread_id: str, path: str) -> ReadPlan[None]:
    """Check that there is a pause to lift.

    Raises:
        ControlError: Neither the agent nor any below it is paused.
    """
    paused = (yield from read_control_orders(thread_id)).paused
    if not any(is_under(paused_path, path) for paused_path in paused):
        raise not_paused(path, paused)


def is_root_stopped(thread_id: str, root: str) -> ReadPlan[bool]:
    """Return whether the root got an order to stop in the thread's current turn."""
    orders = yield from read_control_orders(thread_id)
    return root in orders.stopped


def read_control_orders(thread_id: str) -> ReadPlan[ControlOrders]:
    """Return the control orders of a thread's current turn."""
    saved: CheckpointTuple | None = yield OneCheckpoint(thread_id)
    identity = Identity.from_metadata(saved.metadata) if saved else None
    if identity is None:
        return ControlOrders()
    turn = identity.turn
    orders: ControlOrders = yield LedgerQuery(
        lambda ledger: ledger.query(lambda open_: read_orders(open_, thread_id, turn))
    )
    return orders


def take_over_thread(
    thread_id: str, thread: str, shown: LeaseHolder | None = None
) -> ReadPlan[LeaseHolder]:
    """Take a thread from a run of another process, and free it; return that run's lease.

    Args:
        thread_id: The root's thread.
        thread: Its name, for errors.
        shown: The holder that is meant; by default the present one.

    Raises:
        ThreadNotFound: The thread has never run.
        ControlError: No run holds it, one of this process does, or not the one that is meant.
    """
    key = build_key(thread_id)
    holder: LeaseHolder | None = yield LedgerQuery(lambda ledger: ledger.get_holder(key))
    if holder is None and shown is None:
        if (yield OneCheckpoint(thread_id)) is None:
            raise ThreadNotFound(thread)
        raise _not_taken_over(
            thread, "no run holds it; go on with it (`echelons resume`, Session.resume())"
        )
    changed = "its holder has changed in the meantime; look who holds it now, and try again"
    if holder is None or shown not in (None, holder):
        raise _not_taken_over(thread, changed)
    if holder.pid == os.getpid() and holder.host in ("", HOST):
        why = "a run of this process holds it; end that run (Run.close(), Session.close())"
        raise _not_taken_over(thread, why)
    epoch = holder.epoch
    try:
        # In one call: were it cancelled in between, the lease would be held by the taker.
        yield LedgerQuery(lambda ledger: ledger.take_over(key, epoch).release())
    except LeaseLost as error:
        raise _not_taken_over(thread, changed) from error
    return holder


def _not_taken_over(thread: str, why: str) -> ControlError:
    return ControlError(
        "thread {thread!r} was not taken over: {why}. Nothing was changed",
        code="not_taken_over",
        thread=thread,
        why=why,
    )


NO_MODEL = "it is no Agent, and has no model that could read it"


def post_mail(
    thread_id: str,
    path: str,
    text: str,
    declared: Collection[str] = (),
    kind: MailKind = "message",
) -> ReadPlan[str]:
    """Send an agent a message, whether it is at work or not; return its path.

    Args:
        thread_id: The root's thread.
        path: Path of the agent.
        text: The message.
        declared: Paths of the tree. An agent that has ever begun may be named, too.
        kind: Its kind.

    Raises:
        InvalidInput: The text is refused.
        ThreadNotFound: The thread has never run, and nothing is known of its tree.
        UnknownPath: There is no such agent.
        ControlError: It was stopped in this turn, or is no agent; it was dismissed; it has too many
            unread messages.
    """
    text = check_mail_text(text)
    saved: CheckpointTuple | None = yield OneCheckpoint(thread_id)
    identity = Identity.from_metadata(saved.metadata) if saved else None
    if path not in declared:
        if identity is None and not declared:
            raise ThreadNotFound(thread_id)
        begun: list[CheckpointTuple] = yield AllCheckpoints(thread_id, {"agent_path": path})
        if not begun:
            every: list[CheckpointTuple] = yield AllCheckpoints(thread_id)
            paths = {str(row.metadata.get("agent_path", "")) for row in every} - {""}
            raise UnknownPath(path, sorted(paths.union(declared)))
        if any(RUN in row.checkpoint["versions_seen"] for row in begun):
            raise message_refused(path, NO_MODEL)
    if dismissal := (yield from read_dismissals(thread_id)).find(path):
        raise dismissal.build_error(path)
    after = str(saved.config["configurable"]["checkpoint_id"]) if saved else ""
    running = identity if saved and has_work_left(saved) else None

    def add(open_: Transaction, at: str) -> None:
        if running:
            orders = read_orders(open_, thread_id, running.turn)
            order = orders.find_order(path)
            if isinstance(order, Halt):
                raise message_refused(path, f"{order.why}; send it in the next turn")
        check_room(open_, thread_id, path)
        add_mail(open_, thread_id, path, StoredMail(USER, text, at, after, kind))

    def add_and_signal(ledger: Ledger) -> None:
        at = ledger.get_time().isoformat()
        ledger.commit(lambda open_: add(open_, at))
        get_signals(ledger).notify()

    yield LedgerQuery(add_and_signal)
    return path
