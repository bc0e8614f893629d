"""Orders: for whom they hold, who may give them, and how they are taken back."""

from __future__ import annotations

from echelons.checkpoints.coordination.orders import ORDERS, ControlOrders, is_under, read_orders
from echelons.checkpoints.ledger import MemoryLedger
from echelons.checkpoints.thread_events import WriteLocation
from echelons.checkpoints.threads.control import lift_pauses
from echelons.guards.gate import Halt, Pause


def test_an_order_holds_for_an_agent_and_all_below_it() -> None:
    orders = ControlOrders(stopped=("head/north",))

    assert orders.find_order("head/north") == Halt("stopped", "head/north was told to stop")
    assert orders.find_order("head/north/camp") == orders.find_order("head/north")
    assert [orders.find_order(path) for path in ("head", "head/south", "head/northern")] == [
        None
    ] * 3


def test_a_stop_comes_before_a_pause_further_up() -> None:
    orders = ControlOrders(stopped=("head/north",), paused=("head",))

    assert isinstance(orders.find_order("head/north/camp"), Halt)
    assert orders.find_order("head/south") == Pause("head")


def test_lifting_a_pause_lifts_those_below_and_leaves_the_others() -> None:
    orders = ControlOrders(stopped=("head/a",), paused=("head/a", "head/a/b", "head/c"))

    assert orders.lift_pauses("head/a") == ControlOrders(("head/a",), ("head/c",))
    assert orders.lift_pauses(None) == ControlOrders(("head/a",))
    assert orders.lift_pauses("head/a/b").paused == ("head/a", "head/c")


def test_a_path_is_under_itself_and_what_it_begins_with() -> None:
    assert is_under("head/a/b", "head")
    assert not is_under("head", "head/a")
    assert not is_under("header", "head")


def test_orders_are_stored_for_one_turn_of_one_thread() -> None:
    ledger = MemoryLedger()
    orders = ControlOrders(("head/a",), ("head/b",))
    ledger.commit(lambda open_: ORDERS.add(open_, orders, "t", "1"))

    where = WriteLocation("t", "", "c", "t", "head")
    ledger.commit(lambda open_: lift_pauses(open_, where, "1", None, "Ann"))

    left = ledger.query(lambda open_: read_orders(open_, "t", "1"))
    assert (left.stopped, left.paused) == (("head/a",), ())
    assert [(each.order, each.path, each.by) for each in left.given] == [("resume", "head", "Ann")]
    assert ledger.query(lambda open_: read_orders(open_, "t", "2")) == ControlOrders()
