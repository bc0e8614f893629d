# ruff: noqa: E501  the texts are what is stored
"""The bytes of keys and values in the ledger, which every later version has to read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from echelons import Limits, SqliteCheckpointer
from echelons.checkpoints.coordination.agent_aliases import assign_alias
from echelons.checkpoints.coordination.candidates import TreeBreakers, TreeRaces
from echelons.checkpoints.coordination.decisions import LedgerDecisions
from echelons.checkpoints.coordination.dismissal_ledger import commit_dismissal
from echelons.checkpoints.coordination.gate import Meter
from echelons.checkpoints.coordination.grants import grant_turn
from echelons.checkpoints.coordination.journal import LedgerFailures
from echelons.checkpoints.coordination.mailbox import (
    StoredMail,
    add_mail,
    mark_read,
)
from echelons.checkpoints.coordination.orders import ControlOrders, GivenOrder, record_order
from echelons.checkpoints.coordination.records import build_branch
from echelons.checkpoints.coordination.repairs import store_hidden_messages
from echelons.checkpoints.coordination.turns import AnswerMark, Turn
from echelons.checkpoints.ledger import Lease, Transaction, build_key
from echelons.checkpoints.queries import run_plan
from echelons.checkpoints.thread_events import WriteLocation
from echelons.delegation.approvals import Decision, GuardedCall
from echelons.delegation.join import RaceEntry
from echelons.features.mail.guard import SentMail, TreeMailboxes
from echelons.features.monitors.ledger import JudgedEvents, MonitorLedger, PlacedMonitor, Verdict
from echelons.features.notes.feature import LedgerNotes
from echelons.features.workspace.changes import FileChange
from echelons.features.workspace.feature import LedgerChanges
from echelons.guards.budget import Budget
from echelons.guards.circuit_breaker import AttemptOutcome, BreakerPolicy
from echelons.guards.dismissals import Dismissal
from echelons.guards.gate import CallUsage, Step
from echelons.identity.failures import LoggedFailure
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import CHECKPOINT_MAP_KEY, CHECKPOINTER_KEY
from echelons.monitors import Alert, Monitor
from echelons.tree.name_themes import NameTheme

THREAD, SCOUT = "my trip/ü", "head/north ü"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
THEME = NameTheme("small", tuple(f"{one}{two}" for one in "abcdefgh" for two in "abcdefgh"))

STORED = {
    "alias-name//gb": '{"root_thread":"my trip/ü","agent_id":"agent/1"}',
    "circuit/acme/head/eat": '{"failures":1,"opened_at":null,"probe":0,"probed_at":null,"seconds":60.0}',
    "intensity/acme/head": "[1767323045.0]",
    "/alias/agent%2F1": '{"alias":"gb","root_thread":"my trip/ü","path":"head/north ü"}',
    "/approval/3da13310aae496c7b5c0b620fc1c268aa69f591f5ecdcc643168dc6f6a445fdf": '[{"decision":{"type":"approve","scope":"thread"},"thread":"my trip/ü","after":"c/1"}]',
    "/dismissal/head%2Fnorth%20%C3%BC/c%2F1/c%2F1": '{"by":"user","at":"2026-01-02T03:04:05+00:00","graceful":false}',
    "/failure/1": '{"id":"f1","at":"2026-01-02T03:04:05+00:00","path":"head/north ü","thread_id":"","request_id":"r","tool":"","error":"no","traceback":"trace","number":1}',
    "/failures": "1",
    "/grant/turn/1/root": '{"path":"head","granted":{"tokens":100,"money":"1.5"},"spent":{},"reserved":{},"warn_at":0.8,"thread_id":"my trip/ü","currency":"USD"}',
    "/later/275be4b45def5867ae0ffc2f0fac138e": '{"question":{"text":"alert about head/north ü: loops"},"path":"head/watch","agent_thread_id":"8af9bb3e-493f-5544-81c6-fa6f9423d698","at":"2026-01-02T03:04:05+00:00","after":"c/1","answered":false,"reader":"head"}',
    "/later/6007d8506ec85974bd471cc33731754f": '{"question":{"text":"which?","options":{"a":[1,2.5,null]}},"path":"head/north ü","agent_thread_id":"agent","at":"2026-01-02T03:04:05+00:00","after":"c/1","answered":false,"reader":""}',
    "/mail-read/head%2Fnorth%20%C3%BC/c%2F1": "[[1,1]]",
    "/mail-sent/head%2Fnorth%20%C3%BC": '{"turn":"turn/1","counts":{"head":1}}',
    "/mail/head%2Fnorth%20%C3%BC/1": '{"sender":"user","text":"Hällo\\n\\"you\\"","at":"2026-01-02T03:04:05+00:00","after":"c/1","kind":"intervention"}',
    "/mail/head%2Fnorth%20%C3%BC/2": '{"sender":"user","text":"it","at":"2026-01-02T03:04:05+00:00","after":"","kind":"copy","to":"head/x"}',
    "/mail/head/1": '{"sender":"head/north ü","text":"hi","at":"2026-01-02T03:04:05+00:00","after":"c/1","kind":"message"}',
    "/mail/head/2": '{"sender":"head/watch","text":"loops","at":"2026-01-02T03:04:05+00:00","after":"c/1","kind":"alert","to":"head/north ü"}',
    "/mailbox/head": '{"sent":2,"read":[]}',
    "/mailbox/head%2Fnorth%20%C3%BC": '{"sent":2,"read":[[1,1]]}',
    "/meter/turn/1": '{"steps":2,"calls":2,"tokens":3,"seconds":0.0}',
    "/monitor/turn/1/head%2Fwatch": '{"cursor":5,"calls":1,"tokens":3,"said":2,"notes":["alert about head/north ü: loops","report: Fine."],"money":"0","fault":""}',
    "/note/head/5b6c989793686afecb5feed05741abb163f5dae0e1a8d0462eccc2122853e877/c%2F1/c%2F1": '{"name":"hotels","text":"Roma","author":"head/north ü","at":"2026-01-02T03:04:05+00:00","calls":["call"]}',
    "/open": "1",
    "/orders/turn/1": '{"stopped":["head/a"],"paused":["head/b"],"given":[{"order":"stop","path":"head/a","by":"user","at":"2026-01-02T03:04:05+00:00"}]}',
    "/race/turn/1/level/race|1": "[1]",
    "/repair/hidden//": '{"messages":["m1","m2"],"by":"user","at":"2026-01-02T03:04:05+00:00"}',
    "/steered/head%2Fnorth%20%C3%BC": "1",
    "/workspace/head%2Fnorth%20%C3%BC/fecccc97532467adbf93017b357c8b17e0c75527df76a143de5cfecc2613f615/c%2F1/c%2F1": '{"file":"a.md","text":"Rome","bases":[null,"x"],"at":"2026-01-02T03:04:05+00:00","state":"proposed","calls":["k"],"root":"/root"}',
    "/workspace/head%2Fnorth%20%C3%BC/fecccc97532467adbf93017b357c8b17e0c75527df76a143de5cfecc2613f615/c%2F2/c%2F2": '{"file":"a.md","text":null,"bases":[null,"x"],"at":"2026-01-02T03:04:05+00:00","state":"proposed","calls":["k"],"root":"/root","removed":true}',
}


@pytest.fixture
def saver() -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(":memory:", clock=lambda: NOW) as saver:
        yield saver


def build_config(saver: SqliteCheckpointer, checkpoint: str = "c/1") -> dict[str, Any]:
    return {
        "configurable": {
            "thread_id": THREAD,
            CHECKPOINTER_KEY: saver,
            CHECKPOINT_MAP_KEY: {"": checkpoint},
            "__pregel_task_id": "task",
        },
        "metadata": Identity("head", ("head", "north ü"), "agent", "agent", "turn/1").to_metadata(),
    }


def read(saver: SqliteCheckpointer) -> dict[str, str]:
    """Return all stored values by their keys, without what all keys begin with."""
    with saver.cursor() as cursor:
        cursor.execute("SELECT key, CAST(value AS TEXT) FROM ledger_values ORDER BY key")
        return {key.removeprefix(build_key(THREAD)): value for key, value in cursor.fetchall()}


def store_mail(saver: SqliteCheckpointer) -> None:
    at = NOW.isoformat()
    intervention = StoredMail("user", 'Hällo\n"you"', at, "c/1", "intervention")
    copy = StoredMail("user", "it", at, "", "copy", "head/x")
    sent = SentMail(THREAD, "head", StoredMail(SCOUT, "hi", at, "c/1"), "turn/1", "head")

    def store(open_: Transaction) -> None:
        add_mail(open_, THREAD, SCOUT, intervention)
        add_mail(open_, THREAD, SCOUT, copy)
        mark_read(open_, THREAD, SCOUT, "c/1", [1])
        sent.store(open_)

    saver.ledger.commit(store)
    question = {"text": "which?", "options": {"a": [1, 2.5, None]}}
    TreeMailboxes(saver, THREAD).keep_question(question, "call", build_config(saver))


def store_monitor(saver: SqliteCheckpointer, lease: Lease) -> None:
    placed = PlacedMonitor(Monitor("watch"), "head/watch", "head", SCOUT, None)
    monitor = MonitorLedger(saver.ledger, Turn(THREAD, "turn/1", lease.fence), placed, Limits())
    monitor.begin(3)
    monitor.reserve_call()
    used = CallUsage("scripted", {"input_tokens": 3, "output_tokens": 0})
    verdict = Verdict(alerts=(Alert("head/watch", SCOUT, "loops"),), reports=("Fine.",))
    monitor.store_verdict(JudgedEvents(5, AIMessage("x"), used, "c/1"), verdict, ("tell",))


def store_decisions(saver: SqliteCheckpointer, lease: Lease) -> None:
    call = GuardedCall(THREAD, "head", "tool", "mail", {"to": "bob"}, "c1")
    LedgerDecisions().keep(call, Decision("approve", scope="thread"), build_config(saver))
    run_plan(saver, store_hidden_messages(THREAD, ["m2", "m1"], None, "user", lease.fence))
    TreeRaces(saver.ledger, THREAD, "turn/1", lease.fence).place(RaceEntry("level/race|1", 1, 2))
    where = WriteLocation(THREAD, "", "c/1", "agent", SCOUT)
    commit_dismissal(saver.ledger, where, Dismissal(SCOUT, "user", "", graceful=False), ())
    order = GivenOrder("stop", "head/a", "user", NOW.isoformat())
    orders = ControlOrders(("head/a",), ("head/b",))
    saver.ledger.commit(lambda open_: record_order(open_, orders, order, where, "turn/1"))
    saver.ledger.commit(AnswerMark(THREAD, lease.fence).open)


def store_changes(saver: SqliteCheckpointer) -> None:
    branch = build_branch({"c/1": None}, "c/1")
    changes = LedgerChanges(saver.ledger, THREAD, SCOUT, branch, None, "/root")
    changes.replace("a.md", None, FileChange("Rome", (None, "x"), "proposed", ("k",)))
    branch = build_branch({"c/1": None, "c/2": "c/1"}, "c/2")
    changes = LedgerChanges(saver.ledger, THREAD, SCOUT, branch, None, "/root")
    changes.replace("a.md", changes.find("a.md"), None)
    LedgerNotes(saver).write("hotels", "Roma", "call", build_config(saver))


def store_failures(saver: SqliteCheckpointer) -> None:
    failure = LoggedFailure("f1", NOW.isoformat(), SCOUT, THREAD, "r", "", "no", "trace")
    LedgerFailures().store(failure, build_config(saver))
    breakers = TreeBreakers(saver.ledger, "acme", BreakerPolicy(intensity=3), lambda: NOW)
    breakers.note("head/eat", breakers.admit("head/eat"), AttemptOutcome.FAILED)


def store_turn(saver: SqliteCheckpointer) -> None:
    budget = Budget(tokens=100, money=Decimal("1.50"))
    meter = Meter(build_key(THREAD, "meter", "turn/1"), Limits(), lambda: 0.0)

    def store(open_: Transaction) -> None:
        grant_turn(open_, THREAD, "turn/1", "head", budget, "USD")
        assign_alias(open_, THREAD, "agent/1", THEME, "seed", SCOUT)
        meter.count(open_, Step.MODEL)

    saver.ledger.commit(store)


def test_keys_and_values_are_the_stored_ones(saver: SqliteCheckpointer) -> None:
    store_mail(saver)
    with saver.ledger.lease(build_key(THREAD)) as lease:
        store_monitor(saver, lease)
        store_decisions(saver, lease)
    store_changes(saver)
    store_failures(saver)
    store_turn(saver)

    assert read(saver) == STORED
