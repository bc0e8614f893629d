"""Threads are pruned by count, by age and by turns, and what is kept can be gone back to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command, interrupt

from echelons import Agent, Human, Session, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.maintenance.retention_policies import (
    KeepLatest,
    KeepTurns,
    KeepYounger,
    Strategy,
)
from echelons.testing import Call, ScriptedModel, delegate, delegate_many
from tests.error_codes import raises_code


@pytest.mark.parametrize("policy", [KeepLatest, KeepTurns, KeepYounger])
@pytest.mark.parametrize("given", [True, 1.5, "3", None, float("nan"), object()])
def test_a_policy_takes_a_number_or_an_age_and_nothing_else(policy: Any, given: Any) -> None:
    with raises_code("invalid_strategy", match=policy.__name__):
        policy(given)


CONFIG: Any = {"configurable": {"thread_id": "t"}}
TABLES = ("checkpoints", "writes", "events", "seals")
TURNS = 6


def ask(question: str) -> str:
    """Ask a human."""
    return f"a human said {interrupt(question)}"


def team(*steps: Any) -> Agent:
    model = ScriptedModel(
        {
            "head": [*steps] or [delegate("eat", "dinner"), "done"] * TURNS,
            "eat": lambda messages: f"{len(messages)} said",
        }
    )
    return Agent("head", guidance="", model=model, tools=[ask], subordinates=[Agent("eat")])


class Hand:
    """A clock that may be set."""

    def __init__(self) -> None:
        self.time: datetime | None = None

    def __call__(self) -> datetime:
        return self.time or datetime.now(UTC)


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def saver(tmp_path: Path, hand: Hand) -> Iterator[SqliteCheckpointer]:
    key = b"a key of enough bytes"
    with SqliteCheckpointer(tmp_path / "t.sqlite", seal=key, clock=hand) as opened:
        yield opened


@pytest.fixture
def graph(saver: SqliteCheckpointer) -> Any:
    made = team().compile(saver)
    for turn in range(TURNS):
        made.invoke({"messages": [HumanMessage(f"task {turn}")]}, CONFIG)
    return made


def counts(saver: SqliteCheckpointer) -> dict[str, int]:
    found = {}
    for table in TABLES:
        found[table] = int(saver.conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    return found


def said(graph: Any) -> list[str]:
    return [str(each.text) for each in graph.get_state(CONFIG).values["messages"]]


def inputs(graph: Any) -> list[str]:
    """Return the task of each turn that can be gone back to, latest first."""
    states = [each for each in graph.get_state_history(CONFIG) if not each.next]
    return [str(each.values["messages"][-4].text) for each in states]


@pytest.mark.parametrize("keep", [KeepLatest(), KeepLatest(3), KeepTurns(0), KeepTurns(2)])
def test_conversations_and_events_stay_whole(
    saver: SqliteCheckpointer, graph: Any, keep: Strategy
) -> None:
    before, events = said(graph), counts(saver)["events"]
    trace = ThreadStore(saver).trace("t").text

    removed = saver.retain(["t"], keep)

    assert removed.checkpoints > 0 < removed.writes
    assert said(graph) == before
    assert counts(saver)["events"] == events and removed.events == 0
    assert ThreadStore(saver).trace("t").text == trace
    assert [each.turns for each in ThreadStore(saver).roots()] == [TURNS]
    graph.invoke({"messages": [HumanMessage("more")]}, CONFIG)
    assert said(graph)[: len(before)] == before


@pytest.mark.parametrize("keep", [KeepLatest(4), KeepTurns(3)])
def test_of_a_conversation_that_is_kept_only_the_beginning_is_stored_whole(
    saver: SqliteCheckpointer, graph: Any, keep: Strategy
) -> None:
    saver.retain(["t"], keep)

    own = [each for each in saver.list(CONFIG) if not each.config["configurable"]["checkpoint_ns"]]
    whole = ["messages" in each.checkpoint["channel_values"] for each in own]
    assert len(whole) > 3
    assert whole == [False] * (len(whole) - 1) + [True]


def test_kept_turns_can_be_gone_back_to_and_earlier_ones_cannot(
    saver: SqliteCheckpointer, graph: Any
) -> None:
    saver.retain(["t"], KeepTurns(2))

    assert inputs(graph) == ["task 5", "task 4"]
    states = [each for each in graph.get_state_history(CONFIG) if not each.next]
    earlier = [str(each.text) for each in states[1].values["messages"]]
    graph.invoke({"messages": [HumanMessage("otherwise")]}, states[1].config)
    assert said(graph)[:-4] == earlier


def test_more_turns_than_there_are_keep_everything(saver: SqliteCheckpointer, graph: Any) -> None:
    before = counts(saver)

    assert saver.retain(["t"], KeepTurns(TURNS)) == (0, 0, 0)
    assert counts(saver) == before


def test_the_turns_of_a_session_are_known_by_their_ids(saver: SqliteCheckpointer) -> None:
    session = Session(team(), saver, thread="trip")
    for turn in range(4):
        session.send(f"task {turn}", turn_id=f"turn{turn}").result()
    saver.retain([session.thread_id], KeepTurns(1))

    rows = saver.list({"configurable": {"thread_id": session.thread_id}})
    assert {row.metadata["turn_id"] for row in rows if _is_root(row)} == {"turn3"}  # type: ignore[typeddict-item]
    assert session.send("task 0", turn_id="turn0").result().text == "done"


def _is_root(row: Any) -> bool:
    return not row.config["configurable"]["checkpoint_ns"]


def test_an_unfinished_turn_is_kept_beside_the_finished_ones(saver: SqliteCheckpointer) -> None:
    for turn in range(2):
        team("done").compile(saver).invoke({"messages": [HumanMessage(f"task {turn}")]}, CONFIG)
    graph = team(Call("ask", {"question": "sure?"}), "three").compile(saver)
    graph.invoke({"messages": [HumanMessage("task 2")]}, CONFIG)

    saver.retain(["t"], KeepTurns(1))

    sources = [row.metadata.get("source") for row in saver.list(CONFIG) if _is_root(row)]
    assert sources.count("input") == 2
    graph.invoke(Command(resume="yes"), CONFIG)
    assert said(graph)[-2:] == ["a human said yes", "three"]


@pytest.mark.parametrize("is_fan_out", [False, True])
def test_a_queue_that_is_half_done_goes_on(saver: SqliteCheckpointer, is_fan_out: bool) -> None:
    tasks = [delegate("anna", f"paper {number}") for number in range(4)]
    calls = [delegate_many(*tasks)] if is_fan_out else tasks

    def head(messages: Sequence[BaseMessage]) -> Any:
        answers = [str(message.text) for message in messages if isinstance(message, ToolMessage)]
        return " ".join(answers) if answers else calls

    model = ScriptedModel({"head": head})
    below = [Human("anna"), Agent("bert")]
    graph = Agent("head", model=model, subordinates=below).compile(saver)
    graph.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    for number in range(2):
        graph.invoke(Command(resume=f"signed {number}"), CONFIG)

    saver.prune(["t"])

    for number in range(2, 4):
        graph.invoke(Command(resume=f"signed {number}"), CONFIG)
    places = [said(graph)[-1].index(f"signed {number}") for number in range(4)]
    assert places == sorted(places)


def test_what_is_younger_than_an_age_is_kept(
    saver: SqliteCheckpointer, graph: Any, hand: Hand
) -> None:
    rows = [row for row in saver.list(CONFIG) if _is_root(row)]
    times = [datetime.fromisoformat(row.checkpoint["ts"]) for row in rows]
    # Between the third turn from the end and the one before it.
    boundary = [row.metadata.get("source") for row in rows].index("input", 10)
    hand.time = times[boundary] + timedelta(hours=1)

    saver.retain(["t"], KeepYounger(timedelta(hours=1)))

    kept = [row.checkpoint["ts"] for row in saver.list(CONFIG) if _is_root(row)]
    assert kept == [row.checkpoint["ts"] for row in rows[: boundary + 1]]
    assert len(kept) < len(rows)


def test_with_an_age_of_years_nothing_goes_and_with_none_all_but_the_latest(
    saver: SqliteCheckpointer, graph: Any, hand: Hand
) -> None:
    assert saver.retain(["t"], KeepYounger(timedelta(days=9999))).checkpoints == 0
    hand.time = datetime.now(UTC) + timedelta(seconds=1)
    young = saver.retain(["t"], KeepYounger(timedelta()), dry_run=True)

    assert young == saver.retain(["t"], KeepLatest(), dry_run=True)


def test_a_dry_run_counts_what_would_go_and_changes_nothing(
    saver: SqliteCheckpointer, graph: Any
) -> None:
    before = counts(saver)

    would = saver.retain(["t"], KeepTurns(1), dry_run=True)

    assert counts(saver) == before
    assert saver.retain(["t"], KeepTurns(1)) == would
    after = counts(saver)
    assert before["checkpoints"] - after["checkpoints"] == would.checkpoints
    assert before["writes"] - after["writes"] == would.writes


def test_events_go_where_that_is_asked_for(saver: SqliteCheckpointer, graph: Any) -> None:
    before = counts(saver)["events"]

    removed = saver.retain(["t"], KeepTurns(1), events=False)

    assert removed.events == before - counts(saver)["events"] > 0


@pytest.mark.parametrize("keep", [KeepLatest(2), KeepTurns(2)])
def test_pruning_again_changes_nothing(
    saver: SqliteCheckpointer, graph: Any, keep: Strategy
) -> None:
    saver.prune(["t"], strategy=keep)
    once = counts(saver)

    saver.prune(["t"], strategy=keep)

    assert counts(saver) == once


async def test_each_has_a_twin_for_event_loops(saver: SqliteCheckpointer, graph: Any) -> None:
    would = await saver.aretain(["t"], KeepLatest(), dry_run=True)
    await saver.aprune(["t"], strategy=KeepTurns(2))

    assert inputs(graph) == ["task 5", "task 4"]
    assert would.checkpoints > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: KeepLatest(0),
        lambda: KeepTurns(-1),
        lambda: KeepYounger(timedelta(seconds=-1)),
    ],
)
def test_less_than_nothing_is_refused_by_name(make: Any) -> None:
    with raises_code("invalid_strategy", match="nothing was changed"):
        make()
