"""A saver that remembers conversations answers as one that reads all of it each time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolRuntime
from typing_extensions import TypedDict

from echelons import Agent, SqliteCheckpointer
from echelons.checkpoints.coordination.turns import Turn
from echelons.checkpoints.delta_channels import DELTA_CHANNELS, HEADS, MESSAGES, rebuild_channel
from echelons.checkpoints.ledger import Fence
from echelons.errors import LeaseLost
from echelons.run_context import CONTEXT_KEY, RunContext
from echelons.testing import Call, ScriptedModel, delegate
from tests.proof import sample

ME: Any = {"agent": "head", "agent_path": "head", "agent_thread_id": "t", "source": "loop"}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


def at(checkpoint_id: str | None, **more: Any) -> Any:
    given = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": checkpoint_id}
    return {"configurable": {**given, **more}, "metadata": {"run_id": "r"}}


def put(saver: SqliteCheckpointer, name: str, above: str | None, whole: Mapping[str, Any]) -> None:
    checkpoint = empty_checkpoint()
    checkpoint["id"] = name
    checkpoint["channel_versions"] = {MESSAGES: "1", HEADS: "1"}
    checkpoint["channel_values"] = {key: _DeltaSnapshot(value) for key, value in whole.items()}
    counters = {key: (1, 1) for key in DELTA_CHANNELS if key not in whole}
    metadata: Any = {**ME, "step": 1, "counters_since_delta_snapshot": counters}
    saver.put(at(above), checkpoint, metadata, {})


def values(saver: SqliteCheckpointer, name: str, channels: list[str]) -> dict[str, Any]:
    found = saver.get_delta_channel_history(config=at(name), channels=channels)
    return {
        key: rebuild_channel(DELTA_CHANNELS[key], found[key].get("seed"), found[key]["writes"])
        for key in channels
    }


writes = st.one_of(
    st.builds(lambda n: (MESSAGES, [HumanMessage(f"said {n}", id=str(n))]), st.integers(0, 5)),
    st.builds(lambda n: (MESSAGES, RemoveMessage(id=str(n))), st.integers(0, 5)),
    st.just((MESSAGES, AIMessage("without an id"))),
    st.builds(lambda n: (HEADS, {str(n): {"agent": f"a{n}", "more": [n]}}), st.integers(0, 3)),
)
wholes = st.sampled_from([{}, {}, {}, {MESSAGES: [HumanMessage("whole", id="9")]}, {HEADS: {}}])


class Eager(SqliteCheckpointer):
    """Caches every history, however short it is."""

    shortest_cached = 0


class Twins(RuleBasedStateMachine):
    """One saver that remembers, another on the same file, and one that never remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        path = Path(self.folder.name) / "t.sqlite"
        self.savers = [Eager(path, remembered=2), Eager(path)]
        self.fresh = SqliteCheckpointer(path, remembered=0)
        for each in (*self.savers, self.fresh):
            each.conn.execute("PRAGMA synchronous=OFF")
        self.count = 0

    def teardown(self) -> None:
        for each in (*self.savers, self.fresh):
            each.close()
        self.folder.cleanup()

    def ids(self) -> list[str]:
        rows = self.fresh.conn.execute(
            "SELECT checkpoint_id FROM checkpoints WHERE thread_id = 't' ORDER BY 1"
        )
        return [name for (name,) in rows]

    def one(self, data: st.DataObject) -> str | None:
        ids = self.ids()
        # Often the last one: that is what a run does.
        return data.draw(st.one_of(st.just(ids[-1]), st.sampled_from(ids))) if ids else None

    @initialize()
    def begin(self) -> None:
        put(self.savers[0], "0500", None, {})

    @rule(data=st.data(), who=st.sampled_from([0, 0, 1]), write=writes)
    def take_a_step(self, data: st.DataObject, who: int, write: tuple[str, Any]) -> None:
        """Do what a run does: write, and store a checkpoint on top."""
        name = self.one(data)
        self.count += 1
        if name:
            self.savers[who].put_writes(at(name), [write], f"task{self.count}")
        put(self.savers[who], f"{500 + self.count:04d}", name, {})

    @rule(data=st.data(), who=st.integers(0, 1), whole=wholes, back=st.booleans())
    def go_on(self, data: st.DataObject, who: int, whole: dict[str, Any], back: bool) -> None:
        self.count += 1
        name = f"{400 - self.count if back else 500 + self.count:04d}"
        put(self.savers[who], name, self.one(data), whole)

    @rule(data=st.data(), who=st.integers(0, 1), whole=wholes)
    def store_again(self, data: st.DataObject, who: int, whole: dict[str, Any]) -> None:
        if name := self.one(data):
            # Never below itself: no run makes a loop.
            others = [each for each in self.ids() if name not in self.way_back(each)]
            put(self.savers[who], name, data.draw(st.sampled_from([None, *others])), whole)

    def way_back(self, name: str) -> list[str]:
        rows = self.fresh.conn.execute(
            "SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints"
        )
        above, way = dict(rows.fetchall()), [name]
        while above.get(way[-1]):
            way.append(above[way[-1]])
        return way

    @rule(data=st.data(), who=st.integers(0, 1), write=writes)
    def write(self, data: st.DataObject, who: int, write: tuple[str, Any]) -> None:
        self.count += 1
        if name := self.one(data):
            self.savers[who].put_writes(at(name), [write], f"task{self.count}")

    @rule(data=st.data(), write=writes)
    def fail(self, data: st.DataObject, write: tuple[str, Any]) -> None:
        turn = Turn("t", "turn", Fence("lease", 7))
        if name := self.one(data):
            with pytest.raises(LeaseLost):
                self.savers[0].put_writes(
                    at(name, **{CONTEXT_KEY: RunContext(turn)}), [write], "lost"
                )

    @precondition(lambda self: len(self.ids()) > 6)
    @rule(who=st.integers(0, 1))
    def prune(self, who: int) -> None:
        self.savers[who].prune(["t"])

    @precondition(lambda self: len(self.ids()) > 6)
    @rule(who=st.integers(0, 1))
    def delete(self, who: int) -> None:
        self.savers[who].delete_thread("t")

    @rule(write=writes, data=st.data(), lent=st.booleans())
    def write_past_the_saver(self, data: st.DataObject, write: tuple[str, Any], lent: bool) -> None:
        saver = self.savers[0]
        if name := self.one(data):
            row = ("t", "", name, "by hand", 0, write[0], *saver.serde.dumps_typed(write[1]))
            with saver.cursor() if lent else saver.conn as to:
                to.execute(
                    "INSERT OR REPLACE INTO writes (thread_id, checkpoint_ns, checkpoint_id,"
                    " task_id, idx, channel, type, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    row,
                )

    @rule(data=st.data(), who=st.integers(0, 1))
    def spoil_what_was_handed_out(self, data: st.DataObject, who: int) -> None:
        name = self.one(data)
        if name is None:
            return
        found = self.savers[who].get_delta_channel_history(
            config=at(name), channels=[*DELTA_CHANNELS]
        )
        for history in found.values():
            seed = history.get("seed")
            held = seed.value if isinstance(seed, _DeltaSnapshot) else None
            if isinstance(held, list):
                for message in held:
                    message.content = "spoiled"
                    message.additional_kwargs["spoiled"] = True
                held.append(HumanMessage("more", id="more"))
            elif isinstance(held, dict):
                held["spoiled"] = {}
                for head in held.values():
                    head.setdefault("more", []).append("spoiled")

    @invariant()
    def both_read_what_is_stored(self) -> None:
        for name in self.ids()[-4:]:
            saved = self.fresh.get_tuple(at(name))
            assert saved is not None
            asked = [key for key in DELTA_CHANNELS if key not in saved.checkpoint["channel_values"]]
            for channels in (asked, list(DELTA_CHANNELS)):
                expected = values(self.fresh, name, channels)
                for saver in self.savers:
                    assert values(saver, name, channels) == expected


TestTwins = Twins.TestCase
TestTwins.settings = settings(
    max_examples=sample(12, 200),
    stateful_step_count=30,
)


# In the runs of a tree


class Counting(Eager):
    """Counts the rows of checkpoints and writes that are read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = 0
        self.conn.row_factory = self.count

    def count(self, cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        self.rows += "checkpoint_id" in [name for name, *_ in cursor.description]
        return row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.sqlite"


@pytest.fixture
def saver(path: Path) -> Iterator[Counting]:
    with Counting(path) as opened:
        yield opened


def head() -> Agent:
    model = ScriptedModel({"head": lambda messages: f"{len(messages)} messages"})
    return Agent("head", guidance="", model=model)


def said(saver: SqliteCheckpointer) -> list[str]:
    state = head().compile(saver).get_state(CONFIG)
    return [str(each.text) for each in state.values["messages"]]


def costs(saver: Counting, agent: Agent, turns: int, thread: str = "t") -> list[int]:
    """Return how many rows each of some turns reads."""
    graph, found = agent.compile(saver), []
    config: Any = {"configurable": {"thread_id": thread}}
    for turn in range(turns):
        saver.rows = 0
        graph.invoke({"messages": [("user", f"task {turn}")]}, config)
        found.append(saver.rows)
    return found


def test_a_turn_reads_no_more_rows_however_long_the_conversation_is(saver: Counting) -> None:
    found = costs(saver, head(), 40)

    assert found[39] == found[2] > 0


def test_nor_does_a_turn_of_a_tree(saver: Counting) -> None:
    model = ScriptedModel({"head": [delegate("eat", "dinner"), "done"] * 30, "eat": ["pizza"] * 30})
    found = costs(saver, Agent("head", model=model, subordinates=[Agent("eat")]), 30)

    assert found[29] <= found[3] + 2


def test_without_memory_it_reads_ever_more(path: Path) -> None:
    with Counting(path, remembered=0) as saver:
        found = costs(saver, head(), 40)

    assert found[39] > 3 * found[2]


def test_a_short_conversation_is_read_again_and_a_longer_one_is_not(path: Path) -> None:
    class Patient(Counting):
        shortest_cached = SqliteCheckpointer.shortest_cached

    with Patient(path) as saver, Counting(path, remembered=0) as forgetful:
        found, again = costs(saver, head(), 20), costs(forgetful, head(), 20, thread="other")

    assert found[1:3] == again[1:3]
    assert found[19] == found[10] < again[10]


def test_no_more_conversations_are_kept_than_asked_for(path: Path) -> None:
    with Counting(path, remembered=3) as saver:
        for each in "abcde":
            costs(saver, head(), 10, thread=each)
        [usual] = {costs(saver, head(), 10, thread=each)[-1] for each in "abcde"}

        # Whoever is read anew takes the place of the one that was read the longest time ago.
        again = {each: costs(saver, head(), 1, thread=each)[0] for each in "edcab"}

    assert [each for each, rows in again.items() if rows <= usual] == ["e", "d", "c"]


def test_another_process_is_heard_at_the_next_turn(path: Path, saver: Counting) -> None:
    costs(saver, head(), 3)
    with Counting(path) as other:
        costs(other, head(), 2)

    costs(saver, head(), 1)

    with SqliteCheckpointer(path, remembered=0) as fresh:
        assert said(saver) == said(fresh)
    assert len(said(saver)) == 12


@pytest.mark.parametrize("is_stored_again", [False, True])
def test_a_snapshot_after_what_is_remembered_is_found(path: Path, is_stored_again: bool) -> None:
    whole = {MESSAGES: [HumanMessage("whole", id="9")]}
    with Eager(path) as saver:
        put(saver, "1", None, {})
        values(saver, "1", [*DELTA_CHANNELS])  # remembered from here on
        if is_stored_again:
            put(saver, "2", "1", {})
        put(saver, "2", "1", whole)
        put(saver, "3", "2", {})

        assert values(saver, "3", [*DELTA_CHANNELS]) == {**whole, HEADS: {}}


def test_a_fork_of_the_past_begins_with_what_was_said_then(path: Path, saver: Counting) -> None:
    costs(saver, head(), 3)
    graph = head().compile(saver)
    early = [each for each in graph.get_state_history(CONFIG) if not each.next][-1]

    graph.invoke({"messages": [("user", "otherwise")]}, early.config)

    assert said(saver) == ["task 0", "1 messages", "otherwise", "3 messages"]


def test_a_changed_state_is_gone_on_with(saver: Counting) -> None:
    costs(saver, head(), 3)
    graph = head().compile(saver)
    graph.update_state(CONFIG, {"messages": [HumanMessage("by hand", id="hand")]})
    costs(saver, head(), 1)
    graph.update_state(CONFIG, {"messages": [RemoveMessage(id="hand")]})

    assert "by hand" not in said(saver)
    assert said(saver)[-1] == "8 messages"


def test_a_deleted_thread_begins_anew(saver: Counting) -> None:
    costs(saver, head(), 3)
    saver.delete_thread("t")
    costs(saver, head(), 1)

    assert said(saver) == ["task 0", "1 messages"]


def test_what_is_done_to_a_returned_state_is_not_remembered(saver: Counting) -> None:
    costs(saver, head(), 2)
    before = said(saver)
    state: list[BaseMessage] = head().compile(saver).get_state(CONFIG).values["messages"]
    state[0].content = "spoiled"
    state[1].response_metadata["spoiled"] = True
    state.clear()

    assert said(saver) == before


def test_what_a_tool_does_to_earlier_messages_in_place_is_not_remembered(
    saver: Counting,
) -> None:
    @tool
    def spoil(runtime: ToolRuntime) -> str:
        """Change the messages."""
        for each in runtime.state["messages"]:
            each.content = "spoiled"
            each.additional_kwargs["spoiled"] = True
        return "spoiled them"

    seen: list[list[str]] = []

    def reply(messages: Any) -> Any:
        seen.append([str(each.text) for each in messages])
        return "done" if len(seen) % 2 == 0 else Call("spoil", {})

    graph = Agent("head", model=ScriptedModel({"head": reply}), tools=[spoil]).compile(saver)
    for task in ("one", "two", "three"):
        graph.invoke({"messages": [("user", task)]}, CONFIG)

    turn = ["", "spoiled them", "done"]
    assert seen[4][-9:] == ["one", *turn, "two", *turn, "three"]
    state = graph.get_state(CONFIG).values["messages"]
    assert [str(each.text) for each in state] == ["one", *turn, "two", *turn, "three", *turn]
    assert not any(each.additional_kwargs for each in state)


def test_a_turn_writes_its_ledger_and_still_remembers(saver: Counting) -> None:
    before = costs(saver, head(), 10)
    saver.ledger.append("mail", "hello")

    assert costs(saver, head(), 1) == before[-1:]


def test_threads_that_read_and_write_at_once_all_read_what_is_stored(saver: Counting) -> None:
    graph, wrong = head().compile(saver), []

    def talk(name: str) -> None:
        given: Any = {"configurable": {"thread_id": name}}
        for turn in range(6):
            told = graph.invoke({"messages": [("user", f"{name} {turn}")]}, given)["messages"]
            if [each.text for each in told[::2]] != [f"{name} {n}" for n in range(turn + 1)]:
                wrong.append(name)

    threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert wrong == []


def together(held: list[str] | None, given: Any) -> list[str]:
    return [*(held or ()), *(f"<{word}>" for words in given for word in words)]


def test_channels_of_a_foreign_graph_are_reduced_by_its_own_reducer(saver: Counting) -> None:
    class Words(TypedDict):
        messages: Annotated[list[str], DeltaChannel(together, list)]
        heads: Annotated[list[str], DeltaChannel(together, list)]

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Words)
    builder.add_node("say", lambda state: {"messages": ["b"], "heads": ["c"]})
    builder.add_edge(START, "say")
    builder.add_edge("say", END)
    graph = builder.compile(checkpointer=saver)
    found = [graph.invoke({"messages": ["a"], "heads": []}, CONFIG) for _ in range(3)][-1]

    assert found["messages"] == ["<a>", "<b>"] * 3
