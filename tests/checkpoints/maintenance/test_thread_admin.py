"""Threads are deleted, copied, rolled back and pruned, and what is left can still be used."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from echelons import Agent, Budget, Session
from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.ledger import build_key
from echelons.checkpoints.threads.store import ThreadStore
from echelons.identity.lineage import derive_root_thread_id
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.error_codes import raises_code

TABLES = ("checkpoints", "writes", "events")
OTHER = "11111111-2222-4333-8444-555555555555"


def ask(question: str) -> str:
    """Ask a human."""
    return f"a human said {interrupt(question)}"


def expedition(asks: bool = False) -> tuple[Agent, ScriptedModel]:
    """Return a tree of three levels whose subordinates go on with their threads."""
    scout: list[Any] = [Call("ask", {"question": "north?"}), "scouted"] if asks else ["scouted"]
    model = ScriptedModel(
        {
            "head": [delegate("camp", "look"), "done"],
            "camp": [delegate("scout", "go"), "seen"],
            "scout": scout,
        }
    )
    leaf = Agent("scout", "Scouts", tools=[ask])
    return Agent(
        "head", "Leads", model=model, subordinates=[Agent("camp", "Camps", subordinates=[leaf])]
    ), model


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(tmp_path / "threads.sqlite") as opened:
        yield opened


def rows(saver: SqliteCheckpointer, thread_id: str) -> dict[str, int]:
    counted = {}
    for table in TABLES:
        query = f"SELECT count(*) FROM {table} WHERE thread_id = ?"
        counted[table] = int(saver.conn.execute(query, (thread_id,)).fetchone()[0])
    return counted


def conversations(saver: SqliteCheckpointer, root: str) -> dict[str, list[BaseMessage]]:
    """Return the messages of every thread under a root, by the thread's id."""
    store = ThreadStore(saver)
    return {
        each.thread_id: list(store.get(each.thread_id, root).messages)
        for each in store.trace(root).walk()
    }


def run(session: Session, task: str, **metadata: str) -> None:
    config: RunnableConfig = {**session.config, "metadata": metadata}
    session.graph.invoke({"messages": [("user", task)]}, config)


# Deleting


def test_a_deleted_thread_leaves_no_row_and_no_other_thread_loses_one(
    saver: SqliteCheckpointer,
) -> None:
    tree, _ = expedition()
    gone, stays = (Session(tree, saver, thread=name) for name in ("gone", "stays"))
    gone.send("Go.").result()
    stays.send("Go.").result()
    before = rows(saver, stays.thread_id)

    saver.delete_thread(gone.thread_id)

    assert rows(saver, gone.thread_id) == dict.fromkeys(TABLES, 0)
    assert rows(saver, stays.thread_id) == before
    assert [root.name for root in stays.threads()] == ["stays"]


# Rolling back runs


def test_a_run_that_is_rolled_back_was_never_there(saver: SqliteCheckpointer) -> None:
    tree, model = expedition()
    session = Session(tree, saver, thread="trip")
    run(session, "First.", run_id="1")
    before = conversations(saver, session.thread_id)
    run(session, "Second.", run_id="2")

    saver.delete_for_runs(["2", "never heard of"])

    assert conversations(saver, session.thread_id) == before
    assert not saver.conn.execute(
        'SELECT 1 FROM checkpoints WHERE CAST(metadata AS TEXT) LIKE \'%"run_id": "2"%\''
    ).fetchall()
    run(session, "Third.", run_id="3")
    said = [message.content for message in model.calls[-1].messages]
    assert "Third." in said
    assert "Second." not in said


def test_a_rolled_back_run_leaves_no_events_of_its_subordinates(saver: SqliteCheckpointer) -> None:
    session = Session(expedition()[0], saver, thread="trip")
    run(session, "First.", run_id="1")
    kept = saver.conn.execute("SELECT count(*) FROM events WHERE agent_path <> 'head'").fetchone()
    run(session, "Second.", run_id="2")

    saver.delete_for_runs(["2"])

    left = saver.conn.execute("SELECT count(*) FROM events WHERE agent_path <> 'head'").fetchone()
    assert left == kept


def test_a_run_in_the_middle_leaves_what_later_ones_are_rebuilt_from(
    saver: SqliteCheckpointer,
) -> None:
    tree, model = expedition()
    session = Session(tree, saver, thread="trip")
    for number in "123":
        run(session, f"Task {number}.", run_id=number)
    before = conversations(saver, session.thread_id)
    counted = rows(saver, session.thread_id)

    saver.delete_for_runs(["2"])

    assert conversations(saver, session.thread_id) == before
    assert rows(saver, session.thread_id)["checkpoints"] < counted["checkpoints"]
    run(session, "Task 4.")
    heard = [call for call in model.calls if call.agent == "scout"][-1].messages
    assert [message.content for message in heard].count("go") == 4


# Copying


def test_a_copy_has_every_conversation_and_goes_its_own_way(saver: SqliteCheckpointer) -> None:
    tree, model = expedition()
    session = Session(tree, saver, thread="trip")
    session.send("First.").result()
    source = session.thread_id
    before = conversations(saver, source)

    saver.copy_thread(source, OTHER)

    copied = conversations(saver, OTHER)
    assert list(copied.values()) == list(before.values())
    assert set(copied) - set(before) == {OTHER}
    Session(tree, saver, thread=OTHER).send("Second.").result()
    assert conversations(saver, source) == before
    heard = [call for call in model.calls if call.agent == "scout"][-1].messages
    assert [message.content for message in heard].count("go") == 2
    assert ThreadStore(saver).trace(OTHER).status == "root"
    assert all(link.holds for link in ThreadStore(saver).verify(OTHER))


def test_a_question_is_answered_in_the_copy_and_stays_open_in_the_source(
    saver: SqliteCheckpointer,
) -> None:
    tree, _ = expedition(asks=True)
    session = Session(tree, saver, thread="trip")
    session.send("First.").result()

    saver.copy_thread(session.thread_id, OTHER)

    copy = Session(tree, saver, thread=OTHER)
    [question] = copy.inbox()
    assert copy.answer(question.id, "yes").result().finished
    assert [each.value for each in session.inbox()] == ["north?"]


@pytest.mark.parametrize("budget", [None, Budget(tokens=1000)])
def test_inherited_calls_count_in_no_sum(saver: SqliteCheckpointer, budget: Budget | None) -> None:
    replies = [Reply("", [Call("ask", {"question": "north?"})], usage=(40, 10))]
    model = ScriptedModel([*replies, Reply("done", usage=(30, 5))])
    tree = Agent("head", model=model, tools=[ask])
    source = Session(tree, saver, thread="trip")
    source.send("First.", budget=budget).result()
    saver.copy_thread(source.thread_id, OTHER)
    saver.copy_thread(OTHER, "third")
    copy = Session(tree, saver, thread=OTHER)

    [question] = copy.inbox()
    copy.answer(question.id, "yes").result()

    store = ThreadStore(saver)
    tokens = {root: store.usage(root).total.tokens for root in (source.thread_id, OTHER, "third")}
    assert tokens == {source.thread_id: 50, OTHER: 35, "third": 0}
    assert store.usage(OTHER).inherited.tokens == store.usage("third").inherited.tokens == 50
    assert store.usage().total.tokens == 85
    view = "SELECT sum(input_tokens + output_tokens) FROM usage"
    assert saver.conn.execute(view).fetchone() == (85,)
    if budget:
        [grant] = store.usage(OTHER).grants
        assert grant.spent == 85
    saver.prune([OTHER])
    saver.delete_thread("third")
    assert store.usage(OTHER).total.tokens == 35
    saver.delete_thread(OTHER)
    assert saver.conn.execute("SELECT count(*) FROM inherited_calls").fetchone() == (0,)


def test_a_copy_has_no_name_and_its_events_are_its_own(saver: SqliteCheckpointer) -> None:
    session = Session(expedition()[0], saver, thread="trip")
    session.send("First.").result()

    saver.copy_thread(session.thread_id, OTHER)

    assert {root.id: root.name for root in session.threads()} == {
        session.thread_id: "trip",
        OTHER: "",
    }
    query = "SELECT kind, key, data FROM events WHERE thread_id = ? AND agent_thread_id = ?"
    events = saver.conn.execute(query, (OTHER, OTHER)).fetchall()
    assert events
    assert events == saver.conn.execute(query, (session.thread_id,) * 2).fetchall()


def test_a_copy_onto_a_thread_that_is_there_is_refused_and_changes_nothing(
    saver: SqliteCheckpointer,
) -> None:
    tree, _ = expedition()
    one, two = (Session(tree, saver, thread=name) for name in ("one", "two"))
    one.send("First.").result()
    two.send("First.").result()
    before = rows(saver, two.thread_id)

    with raises_code("thread_taken", match=two.thread_id):
        saver.copy_thread(one.thread_id, two.thread_id)

    assert rows(saver, two.thread_id) == before


def test_a_thread_that_never_ran_is_copied_as_one(saver: SqliteCheckpointer) -> None:
    saver.copy_thread("nothing here", OTHER)

    assert rows(saver, OTHER) == dict.fromkeys(TABLES, 0)


# The ledger


def test_what_the_ledger_knows_of_a_thread_is_deleted_with_it(saver: SqliteCheckpointer) -> None:
    ledger = saver.ledger
    for thread in ("trip", "trip2", "trip/1"):
        ledger.append(build_key(thread, "mail"), thread)
        ledger.compare_and_set(build_key(thread, "turn", "1"), None, thread)
    ledger.append("thread/tripe", "another's")
    with ledger.lease(build_key("trip")) as lease:
        epoch = lease.fence.epoch

    saver.delete_thread("trip")

    assert ledger.list_keys() == [build_key("trip/1", "turn", "1"), build_key("trip2", "turn", "1")]
    assert ledger.get_last_sequence(build_key("trip", "mail")) == 0
    assert [ledger.get_last_sequence(build_key(each, "mail")) for each in ("trip2", "trip/1")] == [
        1,
        1,
    ]
    with ledger.lease(build_key("trip")) as later:
        assert later.fence.epoch > epoch


def test_a_key_of_a_deleted_thread_never_has_an_old_version_again(
    saver: SqliteCheckpointer,
) -> None:
    name, versions = build_key("trip", "turn", "1"), []
    for _ in range(3):
        first = saver.ledger.compare_and_set(name, None, "begun")
        versions += [first, saver.ledger.compare_and_set(name, first, "ended")]
        saver.delete_thread("trip")

    assert versions == sorted(set(versions), key=versions.index)
    assert None not in versions


def test_a_copy_knows_the_turns_of_its_source_and_gets_none_of_its_mail(
    saver: SqliteCheckpointer,
) -> None:
    tree, _ = expedition()
    session = Session(tree, saver, thread="trip")
    session.send("look around", turn_id="1").result()
    source = derive_root_thread_id("trip")
    saver.ledger.append(build_key(source, "mail"), "hello")
    before = saver.ledger.list_keys(build_key(source) + "/")

    saver.copy_thread(source, OTHER)

    after = saver.ledger.list_keys(build_key(OTHER) + "/")
    assert before
    assert after == [name.replace(source, OTHER) for name in before]
    for name, copied in zip(before, after, strict=True):
        found, made = saver.ledger.get(name), saver.ledger.get(copied)
        assert found is not None and made is not None and found.value == made.value
        assert saver.ledger.compare_and_set(copied, made.version, "changed") is not None
    assert saver.ledger.get_last_sequence(build_key(OTHER, "mail")) == 0


class PowerCut(BaseException):
    """Stands for kill -9."""


def test_a_call_that_was_cut_short_is_asked_about_in_a_copy_too(saver: SqliteCheckpointer) -> None:
    runs: list[str] = []

    def book(city: str) -> str:
        """Book a room."""
        runs.append(city)
        raise PowerCut

    model = ScriptedModel([Call("book", {"city": "Rome"}), "over"])
    graph = Agent("head", model=model, tools=[book]).compile(saver)
    config: RunnableConfig = {"configurable": {"thread_id": "source"}}
    with pytest.raises(PowerCut):
        graph.invoke({"messages": [("user", "go")]}, config)

    saver.copy_thread("source", OTHER)

    for each in (OTHER, "source"):
        result = graph.invoke(None, {"configurable": {"thread_id": each}})
        assert [asked.value["tool"] for asked in result["__interrupt__"]] == ["book"]
    assert runs == ["Rome"]


def test_a_thread_of_which_only_the_ledger_knows_is_taken(saver: SqliteCheckpointer) -> None:
    saver.ledger.compare_and_set(build_key(OTHER, "limit"), None, 3)

    with raises_code("thread_taken"):
        saver.copy_thread("trip", OTHER)


# Pruning


def test_pruning_leaves_every_conversation_whole_in_far_fewer_rows(
    saver: SqliteCheckpointer,
) -> None:
    tree, model = expedition()
    session = Session(tree, saver, thread="trip")
    for number in range(3):
        session.send(f"Task {number}.").result()
    before = conversations(saver, session.thread_id)
    trace, counted = str(session.trace()), rows(saver, session.thread_id)

    saver.prune([session.thread_id])

    assert conversations(saver, session.thread_id) == before
    assert str(session.trace()) == trace
    left = rows(saver, session.thread_id)
    assert left["checkpoints"] < counted["checkpoints"] / 2
    assert left["writes"] < counted["writes"] / 2
    assert left["events"] == counted["events"]
    session.send("And on.").result()
    heard = [call for call in model.calls if call.agent == "scout"][-1].messages
    assert [message.content for message in heard].count("go") == 4


def test_a_pruned_thread_is_still_listed_with_all_its_turns(saver: SqliteCheckpointer) -> None:
    session = Session(expedition()[0], saver, thread="trip")
    for turns in (1, 2, 3, 4):
        session.send("Go.").result()
        saver.prune([session.thread_id])

        assert [(root.name, root.turns) for root in session.threads()] == [("trip", turns)]
    saver.prune([session.thread_id])
    assert session.threads()[0].turns == 4


def test_pruning_leaves_a_question_open_and_answerable(saver: SqliteCheckpointer) -> None:
    session = Session(expedition(asks=True)[0], saver, thread="trip")
    session.send("First.").result()
    [question] = session.inbox()
    session.answer(question.id, "yes").result()
    session.send("Second.").result()
    asked = session.inbox()

    saver.prune([session.thread_id])

    assert session.inbox() == asked
    assert session.answer(asked[0].id, "yes").result().text == "done"


def test_the_end_of_a_segment_stays_though_the_segment_was_changed_after_it(
    saver: SqliteCheckpointer,
) -> None:
    tree, model = expedition()
    session = Session(tree, saver, thread="trip")
    session.send("First.").result()
    [end] = session.graph.get_state(session.config).values["heads"].values()
    below: RunnableConfig = {
        "configurable": {"thread_id": session.thread_id, "checkpoint_ns": end["checkpoint_ns"]}
    }
    session.graph.update_state(below, {"messages": [("user", "too late")]}, as_node="delegate")

    saver.prune([session.thread_id])

    session.send("Second.").result()
    heard = [call for call in model.calls if call.agent == "camp"][-1].messages
    said = [message.content for message in heard]
    assert said.count("look") == 2
    assert "too late" not in said


def test_pruning_again_changes_nothing(saver: SqliteCheckpointer) -> None:
    session = Session(expedition()[0], saver, thread="trip")
    session.send("First.").result()
    session.send("Second.").result()
    saver.prune([session.thread_id])
    once = saver.conn.execute("SELECT * FROM checkpoints ORDER BY 1, 2, 3").fetchall()

    saver.prune([session.thread_id])

    assert saver.conn.execute("SELECT * FROM checkpoints ORDER BY 1, 2, 3").fetchall() == once


def together(held: list[str] | None, writes: Sequence[list[str]]) -> list[str]:
    return sorted({*(held or ()), *(word for write in writes for word in write)})


class Words(TypedDict):
    words: Annotated[list[str], DeltaChannel(together, list, snapshot_frequency=4)]


def again(state: Words) -> dict[str, list[str]]:
    return {"words": [f"word {len(state['words'])}"]}


def test_a_foreign_delta_channel_is_pruned_back_to_its_last_snapshot(
    saver: SqliteCheckpointer,
) -> None:
    graph = (
        StateGraph(Words)
        .add_node("again", again)
        .add_edge(START, "again")
        .compile(checkpointer=saver)
    )
    config: RunnableConfig = {"configurable": {"thread_id": OTHER}}
    for turn in range(7):
        graph.invoke({"words": [f"turn {turn}"]}, config)
    before, counted = graph.get_state(config).values, rows(saver, OTHER)["checkpoints"]

    saver.prune([OTHER])

    assert graph.get_state(config).values == before
    left = list(graph.get_state_history(config))
    assert 1 < len(left) < counted
    # What is left of the history is as it was, too.
    assert all(len(state.values["words"]) > 1 for state in left)


def test_pruning_to_nothing_deletes(saver: SqliteCheckpointer) -> None:
    session = Session(expedition()[0], saver, thread="trip")
    session.send("First.").result()

    saver.prune([session.thread_id, "unknown"], strategy="delete")

    assert rows(saver, session.thread_id) == dict.fromkeys(TABLES, 0)


def test_a_strategy_that_there_is_not_is_refused_by_name(saver: SqliteCheckpointer) -> None:
    session = Session(expedition()[0], saver, thread="trip")
    session.send("First.").result()
    before = rows(saver, session.thread_id)

    with raises_code("invalid_strategy", match="keep_latest"):
        saver.prune([session.thread_id], strategy="keep_some")

    assert rows(saver, session.thread_id) == before


# All of them


async def test_each_has_a_twin_for_event_loops(tmp_path: Path) -> None:
    async with SqliteCheckpointer(tmp_path / "threads.sqlite", offload=True) as saver:
        session = Session(expedition()[0], saver, thread="trip")
        await (await session.asend("First.")).result()

        await saver.acopy_thread(session.thread_id, OTHER)
        await saver.aprune([OTHER])
        await saver.adelete_for_runs(["unknown"])
        left = rows(saver, OTHER)["checkpoints"]
        await saver.adelete_thread(OTHER)

        assert 0 < left < rows(saver, session.thread_id)["checkpoints"]
        assert rows(saver, OTHER) == dict.fromkeys(TABLES, 0)


def test_what_fails_half_way_has_not_happened(saver: SqliteCheckpointer) -> None:
    session = Session(expedition()[0], saver, thread="trip")
    session.send("First.").result()
    before = rows(saver, session.thread_id)
    saver.conn.execute(
        "CREATE TRIGGER no BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'no'); END"
    )

    with pytest.raises(Exception, match="no"):
        saver.delete_thread(session.thread_id)

    assert rows(saver, session.thread_id) == before


def test_another_connection_sees_a_pruned_thread_whole(
    saver: SqliteCheckpointer, tmp_path: Path
) -> None:
    tree, _ = expedition()
    session = Session(tree, saver, thread="trip")
    session.send("First.").result()
    session.send("Second.").result()
    before = conversations(saver, derive_root_thread_id("trip"))
    saver.prune([session.thread_id])

    with SqliteCheckpointer(tmp_path / "threads.sqlite") as other:
        assert conversations(other, derive_root_thread_id("trip")) == before


def test_the_database_is_sound_after_all_of_it(saver: SqliteCheckpointer) -> None:
    session = Session(expedition()[0], saver, thread="trip")
    session.send("First.").result()
    saver.copy_thread(session.thread_id, OTHER)
    saver.prune([OTHER])
    saver.delete_thread(session.thread_id)

    [(found,)] = saver.conn.execute("PRAGMA integrity_check").fetchall()

    assert found == "ok"
    with pytest.raises(sqlite3.IntegrityError):
        saver.conn.execute("INSERT INTO checkpoints SELECT * FROM checkpoints LIMIT 1")
