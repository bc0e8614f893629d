"""The journal keeps what it must, as long as it must, and lets nobody else write in between."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from echelons import Agent, SqliteCheckpointer
from echelons.checkpoints.coordination import journal
from echelons.checkpoints.coordination.journal import LedgerJournal, build_call_key
from echelons.checkpoints.coordination.turns import Turn
from echelons.checkpoints.ledger import build_key, get_ledger
from echelons.delegation.effects import (
    CallQuestion,
    CallState,
    EffectCall,
    EffectKind,
    JournalEntry,
)
from echelons.errors import CheckpointTampered, LeaseLost, LedgerDamaged
from echelons.langgraph_internals import CHECKPOINTER_KEY
from echelons.run_context import CONTEXT_KEY, RunContext
from echelons.testing import Call as Made
from echelons.testing import ScriptedModel
from tests.error_codes import raises_code

Saver = BaseCheckpointSaver[Any]
JOURNAL = LedgerJournal()


@pytest.fixture
def saver(any_saver: Saver) -> Saver:
    return any_saver


def call(call_id: str = "1", task: str = "task") -> EffectCall:
    return EffectCall("t", task, call_id, "book", "head/scout", {"city": "Rome"}, EffectKind.ONCE)


def config(saver: Saver, **more: Any) -> dict[str, Any]:
    return {"configurable": {CHECKPOINTER_KEY: saver, **more}}


def begun(saver: Saver, of: EffectCall | None = None) -> JournalEntry:
    return JOURNAL.begin(of or call(), config(saver)).entry


def test_a_call_is_begun_once(saver: Saver) -> None:
    first = JOURNAL.begin(call(), config(saver))
    second = JOURNAL.begin(call(), config(saver))
    other = JOURNAL.begin(call("2"), config(saver))

    assert (first.fresh, second.fresh, other.fresh) == (True, False, True)
    assert first.entry == second.entry
    assert first.entry.state is CallState.STARTED


async def test_an_event_loop_keeps_the_same_journal(saver: Saver) -> None:
    begin = partial(JOURNAL.begin, call(), config(saver))
    fresh = await JOURNAL.arun(begin, config(saver))
    waits = replace(fresh.entry, state=CallState.SUSPENDED, waits_for=("q",), heard=2)
    noted = await JOURNAL.arun(lambda: JOURNAL.note(call(), waits, config(saver)), config(saver))
    assert JOURNAL.begin(call(), config(saver)).entry == noted

    await JOURNAL.arun(
        lambda: JOURNAL.end(call(), noted, {"messages": []}, config(saver)), config(saver)
    )

    found = (await JOURNAL.arun(begin, config(saver))).entry
    assert (found.state, found.result) == (CallState.DONE, {"messages": []})


def test_everything_that_is_noted_is_read_back(saver: Saver) -> None:
    waits = JournalEntry(
        CallState.SUSPENDED,
        "2026-01-01T00:00:00+00:00",
        begun(saver).version,
        answers=("yes", {"outcome": "run_again"}, None),
        ours=(1,),
        asked=3,
        waits_for=("a", "b"),
        heard=3,
        told=(CallQuestion("a", "Which?", "this"), CallQuestion("b", "May it?", is_review=True)),
    )

    noted = JOURNAL.note(call(), waits, config(saver))

    assert begun(saver) == noted
    assert replace(noted, version=waits.version) == waits


@pytest.mark.parametrize(
    "result",
    [
        {"messages": [ToolMessage("booked", tool_call_id="1", artifact={"room": 7})]},
        [Command(update={"messages": [ToolMessage("x", tool_call_id="1")]}, goto=["reason"])],
        [{"messages": []}, Command(graph="__parent__")],
    ],
    ids=["messages", "command", "both"],
)
def test_a_result_is_read_back_as_it_was_returned(saver: Saver, result: Any) -> None:
    JOURNAL.end(call(), begun(saver), result, config(saver))

    assert begun(saver).result == result


def test_a_result_that_is_too_large_is_left_out_with_the_reason(saver: Saver) -> None:
    JOURNAL.end(call(), begun(saver), {"text": "x" * 9_000_000}, config(saver))

    found = begun(saver)

    assert (found.state, found.result) == (CallState.DONE, None)
    assert "the limit is 8388608" in found.lost


@pytest.mark.parametrize("result", [{"text": "x" * 9_000_000}, object()], ids=["large", "odd"])
def test_what_a_human_had_answered_is_kept_with_a_result_that_is_lost(
    saver: Saver, result: Any
) -> None:
    entry = JOURNAL.begin(call(), config(saver), [{"type": "approve"}]).entry
    assert (entry.answers, entry.ours) == (({"type": "approve"},), (0,))
    assert JOURNAL.find(call(), config(saver)) == entry
    entry = replace(entry, told=(CallQuestion("b", "Which?", "this"),))

    JOURNAL.end(call(), entry, result, config(saver))

    found = JOURNAL.find(call(), config(saver))
    assert found
    assert found.lost
    assert (found.answers, found.ours, found.told) == (entry.answers, entry.ours, entry.told)
    assert JOURNAL.find(call("2"), config(saver)) is None


def test_overtaken_run_may_not_continue(saver: Saver) -> None:
    mine = begun(saver)
    JOURNAL.note(call(), replace(mine, at=""), config(saver))

    with raises_code("call_contested") as refused:
        JOURNAL.note(call(), mine, config(saver))
    JOURNAL.end(call(), mine, {"messages": []}, config(saver))

    assert (refused.value.tool, refused.value.call_id) == ("book", "1")
    assert begun(saver).state is CallState.STARTED


def test_what_a_call_came_to_is_kept_while_a_human_is_asked_about_it(saver: Saver) -> None:
    mine = begun(saver)
    JOURNAL.note(call(), replace(mine, asked=0), config(saver))

    JOURNAL.end(call(), mine, {"messages": ["late"]}, config(saver))
    JOURNAL.end(call(), mine, {"messages": ["another"]}, config(saver))

    found = begun(saver)
    assert (found.state, found.result) == (CallState.DONE, {"messages": ["late"]})


def test_a_run_that_has_lost_its_thread_begins_nothing_but_may_say_what_happened(
    saver: Saver,
) -> None:
    ledger = get_ledger(saver)
    with ledger.lease(build_key("t")) as lease:
        around = config(saver, **{CONTEXT_KEY: RunContext(Turn("t", "1", lease.fence))})
        mine = JOURNAL.begin(call(), around).entry
        taken = ledger.take_over(build_key("t"))

        with pytest.raises(LeaseLost):
            JOURNAL.begin(call("2"), around)
        with pytest.raises(LeaseLost):
            JOURNAL.note(call(), mine, around)
        JOURNAL.end(call(), mine, {"messages": []}, around)
        taken.release()

    assert begun(saver).state is CallState.DONE
    assert ledger.get(build_call_key(call("2"))) is None


@pytest.mark.parametrize(
    "stored",
    [
        None,
        7,
        [],
        {},
        {"state": "done"},
        {"state": "unheard of", "at": ""},
        {"state": "done", "at": "", "told": [{"text": "Which?"}]},
    ],
    ids=repr,
)
def test_an_entry_that_is_none_is_named(saver: Saver, stored: Any) -> None:
    get_ledger(saver).compare_and_set(build_call_key(call()), None, stored)

    with pytest.raises(LedgerDamaged):
        begun(saver)


def test_entry_runs_no_injected_code() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        JOURNAL.end(call(), begun(saver), "x", config(saver))
        found = saver.ledger.get(build_call_key(call()))
        assert found is not None
        evil = {**found.value, "result": ["pickle", "gASVCgAAAAAAAACMAm9zlIwGc3lzdGVtlJOULg=="]}
        saver.ledger.compare_and_set(build_call_key(call()), found.version, evil)

        with pytest.raises(CheckpointTampered):
            begun(saver)


def test_no_journal_is_kept_without_a_saver_or_of_a_run_that_stores_only_its_end() -> None:
    assert not JOURNAL.keeps({"configurable": {}})
    assert not JOURNAL.keeps(config(InMemorySaver(), __pregel_durability="exit"))
    assert JOURNAL.keeps(config(InMemorySaver(), __pregel_durability="sync"))


def test_entries_do_not_pile_up_in_a_file() -> None:
    calls = [[Made("look", {}, f"{turn}-{each}") for each in range(3)] for turn in range(20)]
    steps = [step for turn in calls for step in (turn, "over")]

    def look() -> str:
        """Look."""
        return "x" * 1000

    with SqliteCheckpointer(":memory:") as saver:
        graph = Agent("head", model=ScriptedModel(steps), tools=[look]).compile(saver)
        for _ in calls:
            graph.invoke({"messages": [("user", "go")]}, {"configurable": {"thread_id": "t"}})

        [left] = saver.conn.execute("SELECT count(*) FROM ledger_values WHERE key LIKE '%effect%'")
        [floor] = saver.conn.execute("SELECT version FROM ledger_floor")

    assert left == (0,)
    assert floor > (0,)


def test_a_foreign_saver_keeps_only_the_latest_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_KEPT_RESULTS", 4)
    saver = InMemorySaver()

    for number in range(10):
        of = call(task=f"task-{number}")
        JOURNAL.end(of, begun(saver, of), {"messages": []}, config(saver))

    assert len(get_ledger(saver).list_keys(build_key("t", "effect"))) == 4
    assert begun(saver, call(task="task-9")).state is CallState.DONE


# Earlier versions


def leave(saver: Saver, **entry: Any) -> str:
    """Leave an entry for the call as the migration of an old database does; return its key."""
    ledger = get_ledger(saver)
    ledger.has_earlier_calls = True
    key = build_key("t", "effect", "head/scout", "1")
    header = {"state": "started", "at": "2026-01-01", "tool": "book", "call_id": "1"}
    ledger.compare_and_set(key, None, {**header, **entry})
    return key


@pytest.mark.parametrize("entry", [{}, {"arguments": call().digest}])
def test_a_call_that_an_earlier_version_has_begun_is_known_once(
    saver: Saver, entry: dict[str, Any]
) -> None:
    key = leave(saver, **entry)

    first, second = (JOURNAL.begin(call(), config(saver)) for _ in range(2))

    assert (first.fresh, second.fresh, first.entry.at) == (False, False, "2026-01-01")
    assert first.entry == second.entry
    assert get_ledger(saver).get(key) is None
    assert JOURNAL.begin(call(task="later"), config(saver)).fresh


@pytest.mark.parametrize("entry", [{"tool": "cancel"}, {"arguments": "another"}])
def test_another_call_of_an_earlier_version_is_not_taken_for_it(
    saver: Saver, entry: dict[str, Any]
) -> None:
    key = leave(saver, **entry)

    assert JOURNAL.begin(call(), config(saver)).fresh
    assert get_ledger(saver).get(key) is not None


def test_a_call_that_waited_for_its_first_answer_under_an_earlier_version_is_fresh(
    saver: Saver,
) -> None:
    leave(saver)
    get_ledger(saver).compare_and_set(build_key("t", "asked", "task"), None, True)

    assert JOURNAL.begin(call(), config(saver)).fresh


def test_a_damaged_entry_of_an_earlier_version_is_refused(saver: Saver) -> None:
    ledger = get_ledger(saver)
    ledger.has_earlier_calls = True
    ledger.compare_and_set(build_key("t", "effect", "head/scout", "1"), None, "started")

    with pytest.raises(LedgerDamaged):
        JOURNAL.begin(call(), config(saver))
