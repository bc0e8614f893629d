"""A thread's past is read back once through its chain of segments, and then remembered."""

from __future__ import annotations

from typing import Any, cast

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, ThreadStore
from echelons.checkpoints.queries import OneCheckpoint
from echelons.checkpoints.threads import segments
from echelons.checkpoints.threads.segments import SavedHistory, find_segment_end, join_pasts
from echelons.identity.thread_history import Head, Past
from echelons.langgraph_internals import CHECKPOINTER_KEY
from echelons.testing import ScriptedModel, delegate

TASK: Any = {"messages": [("user", "plan")]}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Counting(InMemorySaver):
    """Counts the checkpoints that are asked for by their id."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def get_tuple(self, config: Any) -> Any:
        if wanted := config["configurable"].get("checkpoint_id"):
            self.asked.append(wanted)
        return super().get_tuple(config)


def team() -> Agent:
    """Return a tree whose subordinate repeats all that it was ever asked."""
    model = ScriptedModel(
        {
            "head": [delegate("eat", "again"), "end"],
            "eat": lambda messages: " ".join(m.text for m in messages if m.type == "human"),
        }
    )
    return Agent("head", model=model, subordinates=[Agent("eat")])


def ran(saver: Any, turns: int) -> Head:
    """Run a tree for some turns and return the end of its subordinate's thread."""
    graph = team().compile(saver)
    for _ in range(turns):
        graph.invoke(TASK, CONFIG)
    [head] = graph.get_state(CONFIG).values["heads"].values()
    return cast("Head", head)


def lent(saver: Any) -> Any:
    return {"configurable": {"thread_id": "t", CHECKPOINTER_KEY: saver}}


def texts(past: Past) -> list[str]:
    return [str(each.text) for each in past.messages]


async def test_the_past_is_every_segment_oldest_first() -> None:
    saver = InMemorySaver()
    head = ran(saver, 3)

    here = SavedHistory().load_past(head, lent(saver))
    there = await SavedHistory().aload_past(head, lent(saver))

    assert here == there
    assert texts(here) == ["again", "again", "again", "again again", "again", "again again again"]


async def test_a_thread_that_has_not_run_has_no_past() -> None:
    saver = InMemorySaver()
    nothing = [None, Head(), Head(agent="eat")]

    for head in nothing:
        assert SavedHistory().load_past(head, lent(saver)) == Past()
        assert await SavedHistory().aload_past(head, lent(saver)) == Past()


def test_an_end_without_rows_reads_as_an_empty_segment() -> None:
    gone = Head(agent="eat", checkpoint_ns="nowhere", checkpoint_id="nothing")

    assert SavedHistory().load_past(gone, lent(InMemorySaver())) == Past()


async def test_without_a_saver_there_is_neither_past_nor_end() -> None:
    head = ran(InMemorySaver(), 1)
    bare: Any = {"configurable": {"thread_id": "t"}}

    assert not SavedHistory().is_durable(bare)
    assert (
        SavedHistory().load_past(head, bare)
        == await SavedHistory().aload_past(head, bare)
        == Past()
    )
    assert SavedHistory().load_head(bare) == await SavedHistory().aload_head(bare) == Head()


async def test_the_end_of_a_segment_is_its_latest_checkpoint() -> None:
    saver = InMemorySaver()
    head = ran(saver, 2)
    config = lent(saver)
    config["configurable"]["checkpoint_ns"] = head["checkpoint_ns"]
    place = {key: head[key] for key in ("checkpoint_ns", "checkpoint_id")}

    assert SavedHistory().is_durable(config)
    assert SavedHistory().load_head(config) == await SavedHistory().aload_head(config) == place


def test_what_was_read_once_is_not_read_again() -> None:
    saver = Counting()
    head, past = ran(saver, 5), SavedHistory()
    saver.asked.clear()

    first = past.load_past(head, lent(saver))
    read_for_the_first = len(saver.asked)
    second = past.load_past(head, lent(saver))

    assert first == second
    assert read_for_the_first >= 5
    assert len(saver.asked) == read_for_the_first


def test_a_longer_past_is_read_only_where_it_is_new() -> None:
    saver = Counting()
    graph = team().compile(saver)
    costs = []
    for _ in range(8):
        saver.asked.clear()
        graph.invoke(TASK, CONFIG)
        costs.append(len(saver.asked))

    assert costs[7] <= costs[2]


def test_two_savers_are_never_taken_for_each_other() -> None:
    one, other = InMemorySaver(), InMemorySaver()
    head, past = ran(one, 1), SavedHistory()

    assert texts(past.load_past(head, lent(one))) == ["again", "again"]
    assert past.load_past(head, lent(other)) == Past()


def test_only_so_many_threads_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_CACHED_PASTS", 2)
    saver, past = Counting(), SavedHistory()
    graph = team().compile(saver)
    ends: list[Head] = []
    for _ in range(3):
        graph.invoke(TASK, CONFIG)
        ends.append(next(iter(graph.get_state(CONFIG).values["heads"].values())))
    # The second is asked for again, and so outlives the first, which came later.
    for end in (ends[1], ends[0], ends[1], ends[2]):
        past.load_past(end, lent(saver))
    saver.asked.clear()

    past.load_past(ends[1], lent(saver))
    past.load_past(ends[2], lent(saver))
    assert saver.asked == []
    past.load_past(ends[0], lent(saver))
    assert saver.asked != []


def test_segments_join_in_order_and_later_ends_win() -> None:
    first = Past((HumanMessage("a"),), {"x": Head(agent="eat"), "y": Head(agent="fly")})
    then = Past((HumanMessage("b"),), {"x": Head(agent="eat", checkpoint_id="2")})

    past = join_pasts([first, then])

    assert texts(past) == ["a", "b"]
    assert list(past.heads.items()) == [
        ("x", {"agent": "eat", "checkpoint_id": "2"}),
        ("y", {"agent": "fly"}),
    ]
    assert join_pasts([]) == Past((), {})


@pytest.mark.parametrize("head", [None, {}, {"agent": "eat"}])
def test_a_head_that_has_not_run_points_nowhere(head: Any) -> None:
    assert find_segment_end(head, "t") is None


def test_a_head_that_has_run_points_to_a_checkpoint() -> None:
    head = Head(agent="eat", checkpoint_ns="ns", checkpoint_id="c")

    assert find_segment_end(head, "t") == OneCheckpoint("t", "ns", "c")


def test_an_agent_remembers_its_own_subordinates_in_its_next_segment() -> None:
    scripts: dict[str, Any] = {
        "head": [delegate("days", "go"), "end"],
        "days": [delegate("eat", "dinner"), "done"],
        "eat": lambda messages: f"{len(messages)} messages",
    }
    days = Agent("days", guidance="", subordinates=[Agent("eat")])
    saver = InMemorySaver()
    graph = Agent("head", model=ScriptedModel(scripts), subordinates=[days]).compile(saver)
    for _ in range(2):
        graph.invoke(TASK, CONFIG)
    store = ThreadStore(saver)

    [thread] = store.subordinates("t")
    [below] = store.subordinates(thread)

    assert [m.text for m in store.get(below).messages if m.type == "ai"] == [
        "1 messages",
        "3 messages",
    ]
