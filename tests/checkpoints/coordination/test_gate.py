"""The gate of a run: cheap while nobody says anything, and never deaf."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.errors import GraphDrained

from echelons import Limits, SqliteCheckpointer
from echelons.checkpoints.coordination.gate import TreeGate
from echelons.checkpoints.coordination.orders import ORDERS, ControlOrders, get_signals
from echelons.checkpoints.coordination.turns import AnswerMark, mark_answers_left
from echelons.checkpoints.ledger import Fence, Ledger, MemoryLedger, build_key, get_ledger
from echelons.errors import LeaseLost, StorageError
from echelons.guards.gate import Halt, Pause, ScopedGate, Step
from echelons.identity.lineage import Identity

ROOT = Identity(agent="head", path=("head",), thread_id="t", tree="x", turn="1")


class OtherGate(ScopedGate):
    """A gate around another that lets everything pass."""

    @property
    def halt(self) -> None:
        return None


def config(path: str) -> Mapping[str, Any]:
    return {"metadata": {"agent_path": path}}


def gate(saver: SqliteCheckpointer | None, **limits: Any) -> TreeGate:
    return TreeGate(ROOT, "t", Limits(**limits), get_ledger(saver) if saver else MemoryLedger())


def order(ledger: Ledger, orders: ControlOrders) -> None:
    ledger.commit(lambda open_: ORDERS.put(open_, orders, "t", "1"))


def test_passing_reads_no_orders_until_a_write(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        passed = gate(saver)
        passed.enter(Step.MODEL, config("head"))
        said: list[str] = []
        saver.conn.set_trace_callback(said.append)

        passed.leave(AIMessage("", tool_calls=[]), config("head/north"))
        assert said == ["PRAGMA data_version"]
        passed.enter(Step.TOOL, config("head"))

    # What was written before the transaction is seen in it.
    assert said[1:3] == ["BEGIN IMMEDIATE", "PRAGMA data_version"]
    assert any("/meter/" in statement for statement in said)
    assert not any("/orders/" in statement for statement in said)


def test_what_another_connection_writes_is_noticed_at_the_next_step(tmp_path: Path) -> None:
    with (
        SqliteCheckpointer(tmp_path / "t.sqlite") as saver,
        SqliteCheckpointer(tmp_path / "t.sqlite") as other,
    ):
        passing = gate(saver)
        assert passing.enter(Step.MODEL, config("head/north")) is None

        order(other.ledger, ControlOrders(stopped=("head/north",)))

        assert isinstance(passing.leave(AIMessage("late"), config("head/north")), Halt)
        assert isinstance(passing.enter(Step.TOOL, config("head/north")), Halt)
        assert passing.enter(Step.TOOL, config("head")) is None


def test_what_this_process_writes_is_noticed_after_a_signal() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        passing = gate(saver)
        passing.enter(Step.MODEL, config("head"))

        order(saver.ledger, ControlOrders(paused=("head",)))
        get_signals(saver.ledger).notify()

        assert passing.enter(Step.MODEL, config("head")) == Pause("head")


def leave_an_answer(ledger: Ledger) -> None:
    assert ledger.commit(lambda open_: mark_answers_left(open_, "t"))


def marked_gate(saver: SqliteCheckpointer, mark: AnswerMark) -> TreeGate:
    passing = gate(saver)
    passing.answer_mark = mark
    return passing


def test_no_step_begins_once_an_answer_is_left_to_the_run_until_it_is_taken(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.sqlite"
    with SqliteCheckpointer(path) as saver, SqliteCheckpointer(path) as other:
        with saver.ledger.lease(build_key("t")) as lease:
            mark = AnswerMark("t", lease.fence)
            saver.ledger.commit(mark.open)
            passing = marked_gate(saver, mark)
            assert passing.enter(Step.MODEL, config("head")) is None

            leave_an_answer(other.ledger)

            for step in set(Step) - {Step.PERMISSION, Step.RETURN}:
                with pytest.raises(GraphDrained, match="answered"):
                    passing.enter(step, config("head/north"))
            with pytest.raises(GraphDrained):
                OtherGate(passing).check_hold()
            assert mark.has_held
            # The next run of the tree begins when they are taken.
            saver.ledger.commit(mark.take)
            passing = marked_gate(saver, mark)
            assert passing.enter(Step.MODEL, config("head")) is None
            passing.check_hold()
            assert not mark.has_held


def test_an_agent_that_is_stopped_ends_though_an_answer_is_left_to_the_run() -> None:
    with SqliteCheckpointer(":memory:") as saver, saver.ledger.lease(build_key("t")) as lease:
        mark = AnswerMark("t", lease.fence)
        saver.ledger.commit(mark.open)
        passing = marked_gate(saver, mark)
        leave_an_answer(saver.ledger)
        order(saver.ledger, ControlOrders(stopped=("head/north",)))

        assert isinstance(passing.enter(Step.TOOL, config("head/north")), Halt)
        with pytest.raises(GraphDrained):
            passing.enter(Step.TOOL, config("head"))


def test_a_pause_holds_up_models_only() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        order(saver.ledger, ControlOrders(paused=("head",)))

        assert gate(saver).enter(Step.TOOL, config("head")) is None
        assert gate(saver).enter(Step.SUBORDINATE, config("head/north")) is None
        assert gate(saver).leave(AIMessage("said"), config("head")) is None


@pytest.mark.parametrize("step", [Step.PERMISSION, Step.RETURN])
def test_what_is_neither_work_nor_a_call_is_not_counted_and_only_a_stop_forbids_it(
    step: Step,
) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        order(saver.ledger, ControlOrders(paused=("head",), stopped=("head/north",)))
        passing = gate(saver, steps=1)

        for _ in range(2):
            assert passing.enter(step, config("head")) is None
        assert passing.enter(Step.TOOL, config("head")) is None
        assert isinstance(passing.enter(Step.TOOL, config("head")), Halt)
        assert passing.enter(step, config("head")) is None
        assert isinstance(passing.enter(step, config("head/north")), Halt)


def test_fifty_threads_at_once_take_no_step_too_many() -> None:
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with SqliteCheckpointer(":memory:") as saver, ThreadPoolExecutor(50) as pool:
            passing = gate(saver, steps=1000)
            asked = [pool.submit(passing.enter, Step.TOOL, config("head")) for _ in range(1500)]
            taken = [each.result() for each in asked]
    finally:
        sys.setswitchinterval(patience)

    assert taken.count(None) == 1000


def test_two_threads_never_take_each_others_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteCheckpointer(":memory:") as saver, ThreadPoolExecutor(1) as pool:
        passing = gate(saver, steps=1)
        commit = saver.ledger.commit
        others: list[Future[Any]] = []

        def commit_and_be_overtaken(work: Any) -> Any:
            found = commit(work)
            if not others:
                others.append(pool.submit(passing.enter, Step.TOOL, config("head")))
                wait(others, timeout=0.2)  # the other thread waits for the gate meanwhile
            return found

        monkeypatch.setattr(saver.ledger, "commit", commit_and_be_overtaken)
        taken = [passing.enter(Step.TOOL, config("head")), others[0].result()]

    assert taken == [None, Halt("limit", "1 of 1 steps")]


def test_without_a_saver_it_counts_in_memory() -> None:
    passing = gate(None, steps=2)

    taken = [passing.enter(Step.TOOL, config("head")) for _ in range(3)]

    assert taken == [None, None, Halt("limit", "2 of 2 steps")]


def test_a_turn_at_its_end_writes_nothing_more() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        ending, asking = gate(saver), gate(saver)
        for each in (ending, asking):
            each.enter(Step.MODEL, config("head"))
        before = saver.conn.total_changes

        ending.leave(AIMessage("the end"), config("head"))
        ending.close()
        assert saver.conn.total_changes == before
        asking.leave(AIMessage("the end of a subordinate"), config("head/north"))
        asking.close()
        assert saver.conn.total_changes > before


def test_a_run_that_has_lost_its_thread_counts_nothing_more() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        lost = TreeGate(ROOT, "t", Limits(), get_ledger(saver), Fence("thread/t", 7))
        with pytest.raises(LeaseLost):
            lost.enter(Step.MODEL, config("head"))
        lost.close()


@pytest.mark.parametrize("ended_by", [None, KeyboardInterrupt, GeneratorExit])
async def test_a_write_that_fails_at_the_end_is_named_and_replaces_nothing_that_ends_the_run(
    ended_by: type[BaseException] | None, tmp_path: Path
) -> None:
    expected = ended_by or StorageError
    with SqliteCheckpointer(tmp_path / "t.sqlite", busy_timeout=0.01) as saver:
        for world in ("sync", "async"):
            closing = gate(saver)
            closing.enter(Step.MODEL, config("head"))
            other = sqlite3.connect(tmp_path / "t.sqlite")
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(expected):
                if world == "sync":
                    with closing:
                        end(ended_by)
                else:
                    async with closing:
                        end(ended_by)
            other.close()


def end(by: type[BaseException] | None) -> None:
    if by is not None:
        raise by


def test_a_tree_in_a_tree_has_counts_of_its_own() -> None:
    inner = Identity(agent="in", path=("head", "in"), thread_id="i", tree="x", turn="1")
    with SqliteCheckpointer(":memory:") as saver:
        gate(saver, steps=1).enter(Step.TOOL, config("head"))

        passing = TreeGate(inner, "t", Limits(steps=1), get_ledger(saver))

        assert passing.enter(Step.TOOL, config("head/in")) is None
        assert isinstance(passing.enter(Step.TOOL, config("head/in")), Halt)


async def test_a_listener_hears_of_its_own_stop_and_of_no_other() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        heard: list[Halt] = []
        leave = gate(saver).listen(config("head/north/camp"), heard.append)

        order(saver.ledger, ControlOrders(stopped=("head/south",), paused=("head",)))
        get_signals(saver.ledger).notify()
        assert heard == []
        order(saver.ledger, ControlOrders(stopped=("head/north",)))
        get_signals(saver.ledger).notify()
        assert heard == [Halt("stopped", "head/north was told to stop")]

        leave()
        get_signals(saver.ledger).notify()
        assert len(heard) == 1
