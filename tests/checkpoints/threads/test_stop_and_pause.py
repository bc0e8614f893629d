"""Orders: for whom they hold, who may give them, and how they are taken back."""

from __future__ import annotations

from echelons.checkpoints.coordination.control_orders import Orders, is_under, orders_key
from echelons.checkpoints.ledger import MemoryLedger
from echelons.checkpoints.threads.stop_and_pause import lift
from echelons.guards.gate import Halt, Pause


def test_an_order_holds_for_an_agent_and_all_below_it() -> None:
    orders = Orders(stopped=("head/north",))

    assert orders.at("head/north") == Halt("stopped", "head/north was told to stop")
    assert orders.at("head/north/camp") == orders.at("head/north")
    assert [orders.at(path) for path in ("head", "head/south", "head/northern")] == [None] * 3


def test_a_stop_comes_before_a_pause_further_up() -> None:
    orders = Orders(stopped=("head/north",), paused=("head",))

    assert isinstance(orders.at("head/north/camp"), Halt)
    assert orders.at("head/south") == Pause("head")


def test_lifting_a_pause_lifts_those_below_and_leaves_the_others() -> None:
    orders = Orders(stopped=("head/a",), paused=("head/a", "head/a/b", "head/c"))

    assert orders.lifted("head/a") == Orders(("head/a",), ("head/c",))
    assert orders.lifted(None) == Orders(("head/a",))
    assert orders.lifted("head/a/b").paused == ("head/a", "head/c")


def test_a_path_is_under_itself_and_what_it_begins_with() -> None:
    assert is_under("head/a/b", "head")
    assert not is_under("head", "head/a")
    assert not is_under("header", "head")


def test_orders_are_stored_for_one_turn_of_one_thread() -> None:
    ledger = MemoryLedger()
    name = orders_key("t", "1")
    ledger.commit(lambda open_: Orders(("head/a",), ("head/b",)).store(open_, name))

    ledger.commit(lambda open_: lift(open_, "t", "1"))

    assert Orders.look(ledger, name) == Orders(("head/a",))
    assert Orders.look(ledger, orders_key("t", "2")) == Orders()
