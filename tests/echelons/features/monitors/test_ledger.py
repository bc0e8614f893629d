"""What a monitor has read and what it says are one record, and what is damaged stops nobody."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from echelons import Limits, SqliteCheckpointer
from echelons.checkpoints.coordination.mailbox import MAILBOX, StoredMail, add_mail
from echelons.checkpoints.coordination.orders import ORDERS, ControlOrders
from echelons.checkpoints.coordination.turns import Turn
from echelons.checkpoints.ledger import Lease, build_key
from echelons.delegation.mail import MAX_UNREAD
from echelons.errors import LeaseLost, LedgerDamaged
from echelons.features.monitors.ledger import (
    MONITOR,
    JudgedEvents,
    MonitorLedger,
    PlacedMonitor,
    Verdict,
)
from echelons.features.registry import find_members
from echelons.guards.budget import Budget
from echelons.guards.gate import CallUsage, Halt
from echelons.monitors import Alert, Monitor
from echelons.tree.agent_registry import AgentKind

THREAD, SCOUT = "t", "head/scout"
ALERT = Alert("head/watch", SCOUT, "It loops.")


@pytest.fixture
def lease(saver: SqliteCheckpointer) -> Any:
    with saver.ledger.lease(build_key(THREAD)) as lease:
        yield lease


@pytest.fixture
def saver() -> Any:
    with SqliteCheckpointer(":memory:") as saver:
        yield saver


def build(saver: SqliteCheckpointer, lease: Lease, **given: Any) -> MonitorLedger:
    turn = Turn(THREAD, "1", lease.fence)
    limits = given.pop("limits", Limits())
    placed = PlacedMonitor(Monitor("watch", **given), "head/watch", "head", SCOUT, None)
    return MonitorLedger(saver.ledger, turn, placed, limits)


def judge(cursor: int, tokens: int = 0) -> JudgedEvents:
    used = CallUsage("scripted", {"input_tokens": tokens, "output_tokens": 0})
    return JudgedEvents(cursor, AIMessage("nothing"), used, "")


def read_orders(saver: SqliteCheckpointer) -> ControlOrders:
    return saver.ledger.query(lambda open_: ORDERS.get(open_, THREAD, "1")) or ControlOrders()


def count_mail(saver: SqliteCheckpointer) -> int:
    found = saver.ledger.get_record(MAILBOX, build_key(THREAD, MAILBOX.name, "head"))
    return found.value.sent if found else 0


def test_it_goes_on_where_it_was_in_the_turn(saver: SqliteCheckpointer, lease: Lease) -> None:
    assert build(saver, lease).begin(7).cursor == 7
    build(saver, lease).store_verdict(judge(12), Verdict(reports=("Fine.",)), ())

    again = build(saver, lease).begin(99)

    assert (again.cursor, again.said, again.notes) == (12, 1, ("report: Fine.",))
    assert saver.ledger.query(lambda open_: find_members(open_, THREAD, "1")) == {
        "head/watch": AgentKind.MONITOR
    }


def test_it_remembers_its_latest_verdicts(saver: SqliteCheckpointer, lease: Lease) -> None:
    record = build(saver, lease)
    for number in range(15):
        record.store_verdict(judge(number), Verdict(reports=(str(number),)), ())

    assert record.begin(0).notes == tuple(f"report: {number}" for number in range(5, 15))


def test_a_call_is_counted_before_it_is_made(saver: SqliteCheckpointer, lease: Lease) -> None:
    record = build(saver, lease, budget=Budget(calls=2))

    assert [record.reserve_call() for _ in range(3)] == [
        None,
        None,
        Halt("limit", "2 of 2 model calls of its budget"),
    ]
    assert record.begin(0).calls == 2


def test_its_tokens_are_spent_when_they_are_known(saver: SqliteCheckpointer, lease: Lease) -> None:
    record = build(saver, lease, budget=Budget(tokens=1000))
    assert record.reserve_call() is None
    record.store_verdict(judge(1, tokens=1500), Verdict(), ())

    assert record.reserve_call() == Halt("limit", "1,500 of 1,000 tokens of its budget")


def test_the_limits_of_the_tree_hold_for_it(saver: SqliteCheckpointer, lease: Lease) -> None:
    record = build(saver, lease, limits=Limits(calls=1))

    assert [record.reserve_call() for _ in range(2)] == [None, Halt("limit", "1 of 1 model calls")]


def test_stopped_agent_is_not_stopped_again(saver: SqliteCheckpointer, lease: Lease) -> None:
    record = build(saver, lease)
    below = Alert("head/watch", f"{SCOUT}/camp", "It loops, too.")
    record.store_verdict(judge(1), Verdict((ALERT,)), ("stop",))
    record.store_verdict(judge(2), Verdict((ALERT, below)), ("stop", "stop"))

    assert read_orders(saver).stopped == (SCOUT,)
    assert count_mail(saver) == 1


def test_a_full_mailbox_hinders_no_order(saver: SqliteCheckpointer, lease: Lease) -> None:
    mail = StoredMail("the user", "hello", "2026-05-01T12:00:00+00:00")
    for _ in range(MAX_UNREAD):
        saver.ledger.commit(lambda open_: add_mail(open_, THREAD, "head", mail))
    record = build(saver, lease)

    record.store_verdict(judge(1), Verdict((ALERT,)), ("stop",))

    assert read_orders(saver).stopped == (SCOUT,)
    assert count_mail(saver) == MAX_UNREAD


def test_without_the_lease_nothing_is_stored(saver: SqliteCheckpointer) -> None:
    with saver.ledger.lease(build_key(THREAD)) as lease:
        record = build(saver, lease)
        record.begin(0)
    with saver.ledger.lease(build_key(THREAD)):
        for attempt in (
            record.reserve_call,
            lambda: record.begin(0),
            lambda: record.store_verdict(judge(9), Verdict((ALERT,)), ("stop",)),
        ):
            with pytest.raises(LeaseLost):
                attempt()

    assert read_orders(saver).stopped == ()
    assert count_mail(saver) == 0


@pytest.mark.parametrize("damage", ["?", "[]", '{"cursor": "7"}', '{"calls": null}'])
def test_a_damaged_record_lets_it_spend_nothing(
    saver: SqliteCheckpointer, lease: Lease, damage: str
) -> None:
    record = build(saver, lease)
    record.begin(0)
    with saver.cursor() as cursor:
        cursor.execute("UPDATE ledger_values SET value = ? WHERE key LIKE '%/monitor/%'", (damage,))

    with pytest.raises(LedgerDamaged, match=MONITOR.name):
        record.reserve_call()
    with pytest.raises(LedgerDamaged):
        record.store_verdict(judge(9), Verdict((ALERT,)), ("stop",))
    assert read_orders(saver).stopped == ()
