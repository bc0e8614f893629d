"""Runs store where they are, in a thread or an event loop, and lose no error of the saver."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FunctionType
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Command, StateSnapshot, interrupt

from echelons import Agent, SqliteCheckpointer
from echelons.errors import StorageError
from echelons.graphs import inline_writes
from echelons.graphs.compiled_tree import AgentGraph
from echelons.langgraph_internals import SyncPregelLoop
from echelons.testing import Call, Reply, ScriptedModel, delegate

TASK = {"messages": [("user", "go")]}
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


class Noting(InMemorySaver):
    """Notes who writes, and fails when it is told to."""

    def __init__(self, failing: str = "") -> None:
        super().__init__()
        self.threads: set[int] = set()
        self._failing = failing

    def put(self, *args: Any, **kwargs: Any) -> RunnableConfig:
        self.threads.add(threading.get_ident())
        if self._failing == "put" and args[2]["step"] == 1:
            raise StorageError("kept.sqlite", "the disk is full")
        return super().put(*args, **kwargs)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Any,
        task_id: str,
        task_path: str = "",
    ) -> None:
        self.threads.add(threading.get_ident())
        if self._failing == "put_writes" and "found" in str(writes):
            raise StorageError("kept.sqlite", "the disk is full")
        super().put_writes(config, writes, task_id, task_path)


@tool
def look_up(subject: str) -> str:
    """Look something up."""
    return f"found {subject}"


@tool
def ask(subject: str) -> str:
    """Ask a human."""
    return f"heard {interrupt(subject)}"


def tree(saver: BaseCheckpointSaver[Any], calls: int = 1) -> AgentGraph:
    wanted = [Call("look_up", {"subject": str(number)}) for number in range(calls)]
    leaf = Agent(
        "leaf", "Looks up", model=ScriptedModel([Reply(calls=wanted), "found"]), tools=[look_up]
    )
    root = Agent(
        "root",
        "Leads",
        model=ScriptedModel([delegate("leaf", "look"), "done"]),
        subordinates=[leaf],
    )
    return root.compile(saver)


def test_a_synchronous_run_stores_in_the_thread_that_runs_it() -> None:
    saver = Noting()
    assert tree(saver).invoke(TASK, CONFIG)["messages"][-1].text == "done"
    assert saver.threads == {threading.get_ident()}


def test_storing_in_the_background_is_used_on_request() -> None:
    saver = Noting()
    tree(saver).invoke(TASK, CONFIG, durability="async")
    assert threading.get_ident() not in saver.threads


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("failing", ["put", "put_writes"])
def test_a_failed_write_ends_the_run_with_its_error(failing: str, calls: int) -> None:
    graph = tree(Noting(failing), calls)
    with pytest.raises(StorageError, match="the disk is full"):
        graph.invoke(TASK, CONFIG)


@pytest.mark.parametrize("mode", ["messages", "custom"])
def test_what_is_streamed_while_it_runs_arrives_all_the_same(mode: str) -> None:
    saver = Noting()
    streamed = list(tree(saver, 3).stream(TASK, CONFIG, stream_mode=[mode, "values"]))
    assert streamed[-1][1]["messages"][-1].text == "done"


def test_a_question_is_asked_and_answered() -> None:
    model = ScriptedModel([Call("ask", {"subject": "Rome?"}), "done"])
    graph = Agent("root", "Asks", model=model, tools=[ask]).compile(Noting())
    asked = graph.invoke(TASK, CONFIG)
    assert [each.value for each in asked["__interrupt__"]] == ["Rome?"]
    answered = graph.invoke(Command(resume="yes"), CONFIG)
    assert [each.text for each in answered["messages"]][-2:] == ["heard yes", "done"]


def test_foreign_stream_in_place_of_langgraphs_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traced: list[str] = []
    theirs = Pregel.stream

    def tracing(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        traced.append(self.name)
        return theirs(self, *args, **kwargs)

    monkeypatch.setattr(Pregel, "stream", tracing)
    saver = Noting()
    assert tree(saver).invoke(TASK, CONFIG)["messages"][-1].text == "done"
    assert {"root", "leaf"} <= set(traced)
    assert threading.get_ident() not in saver.threads


def test_a_langgraph_with_another_loop_is_used_as_it_is() -> None:
    other = FunctionType(compile("pass", "other", "exec"), {})

    assert inline_writes.replace_loop(other, SyncPregelLoop, inline_writes.InlineLoop) is None


# What is stored in one transaction, in both worlds


Run = Callable[[Any, Any], Awaitable[Any]]


async def here(graph: Any, given: Any) -> Any:
    return graph.invoke(given, CONFIG)


async def in_loop(graph: Any, given: Any) -> Any:
    return await graph.ainvoke(given, CONFIG)


both_worlds = pytest.mark.parametrize("run", [here, in_loop])


def note_transactions(saver: SqliteCheckpointer) -> list[set[tuple[str, bool]]]:
    """Return the tables that each commit has written to, and whether in a nested namespace."""
    committed: list[set[tuple[str, bool]]] = [set()]

    def note(statement: str) -> None:
        if statement == "COMMIT":
            committed.append(set())
        elif found := re.match(
            r"INSERT OR \w+ INTO (writes|checkpoints) .*VALUES \('t', '(.)", statement
        ):
            committed[-1].add((found[1], found[2] != "'"))

    saver.conn.set_trace_callback(note)
    return committed


@both_worlds
@pytest.mark.parametrize("calls", [1, 3])
async def test_the_writes_of_a_nested_step_are_stored_with_its_checkpoint(
    run: Run, calls: int
) -> None:
    with SqliteCheckpointer(":memory:") as saver:
        transactions = note_transactions(saver)
        await run(tree(saver, calls), TASK)

    alone, joined = {("writes", True)}, {("writes", True), ("checkpoints", True)}
    # The answer of a tool with others beside it, and a reply that sends its calls.
    assert transactions.count(alone) == (1 if calls == 1 else 1 + calls)
    # The last reply, and the tool's answer if it is alone.
    assert transactions.count(joined) == (2 if calls == 1 else 1)
    assert {("writes", False)} in transactions
    assert {("writes", False), ("checkpoints", False)} not in transactions


def chain() -> tuple[Agent, ScriptedModel]:
    """Return a tree of three levels, and its model."""
    model = ScriptedModel(
        {
            "head": [delegate("north", "go"), "over"],
            "north": [delegate("scout", "look"), "back"],
            "scout": ["seen"],
        }
    )
    north = Agent("north", subordinates=[Agent("scout")])
    return Agent("head", model=model, subordinates=[north]), model


@both_worlds
async def test_the_end_of_a_delegation_is_stored_by_its_superior_alone(run: Run) -> None:
    head, _ = chain()
    with SqliteCheckpointer(":memory:") as saver:
        await run(head.compile(saver), TASK)
        found = [
            namespace.rpartition("|")[2].partition(":")[0]
            for table in ("checkpoints", "writes")
            for (namespace,) in saver.conn.execute(f"SELECT checkpoint_ns FROM {table}")
        ]
        answered = saver.conn.execute(
            "SELECT agent_path FROM events WHERE json_extract(data, '$.role') = 'tool' ORDER BY id"
        ).fetchall()

    # Of each, only the queue with which it has begun.
    assert found.count("delegate") == 2
    assert answered == [("head/north",), ("head",)]


@both_worlds
@pytest.mark.parametrize("superior", ["head", "north"])
async def test_an_answer_that_its_superior_could_not_store_is_not_given_twice(
    run: Run, superior: str
) -> None:
    head, model = chain()
    with SqliteCheckpointer(":memory:") as saver:
        graph = head.compile(saver)
        saver.conn.execute(
            "CREATE TEMP TRIGGER broken BEFORE INSERT ON main.events"
            f" WHEN NEW.agent_path LIKE '%{superior}'"
            " AND json_extract(NEW.data, '$.role') = 'tool'"
            " BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
        with pytest.raises(StorageError, match="the disk is full"):
            await run(graph, TASK)
        made = len(model.calls)
        saver.conn.execute("DROP TRIGGER broken")
        answer = await run(graph, None)

        assert answer["messages"][-1].text == "over"
        assert made == (4 if superior == "head" else 3)
        assert len(model.calls) == 5
        assert saver.check().is_sound


@both_worlds
async def test_a_question_that_was_answered_is_open_in_no_state(run: Run) -> None:
    def ask(question: str) -> str:
        """Ask a person."""
        return str(interrupt(question))

    calls: dict[str, Any] = {
        "head": [[delegate("north", "go"), delegate("south", "go")], "over"],
        "north": [Call("ask", {"question": "north?"}), "back"],
        "south": [Call("ask", {"question": "south?"}), "back"],
    }
    subordinates = [Agent(name, tools=[ask]) for name in ("north", "south")]
    head = Agent("head", model=ScriptedModel(calls), subordinates=subordinates)
    with SqliteCheckpointer(":memory:") as saver:
        graph = head.compile(saver)
        asked = await run(graph, TASK)
        [north] = [each.id for each in asked["__interrupt__"] if each.value == "north?"]
        await run(graph, Command(resume={north: "yes"}))
        states = [each.state for each in graph.get_state(CONFIG, subgraphs=True).tasks]

    found = [
        (each.next, [question.value for question in each.interrupts])
        for each in states
        if isinstance(each, StateSnapshot)
    ]
    assert found == [((), []), (("south",), ["south?"])]


@both_worlds
async def test_an_agent_that_failed_is_not_asked_again_for_a_write_that_failed(run: Run) -> None:
    model = ScriptedModel({"head": [delegate("north", "go"), "over"], "north": [OSError("off")]})
    head = Agent("head", model=model, subordinates=[Agent("north")])
    with SqliteCheckpointer(":memory:") as saver:
        graph = head.compile(saver)
        saver.conn.execute(
            "CREATE TEMP TRIGGER broken BEFORE INSERT ON main.writes"
            " WHEN NEW.checkpoint_ns = '' AND NEW.channel = 'messages'"
            " AND EXISTS (SELECT 1 FROM main.checkpoints WHERE checkpoint_ns LIKE 'delegate%')"
            " BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        )
        with pytest.raises(StorageError, match="the disk is full"):
            await run(graph, TASK)
        saver.conn.execute("DROP TRIGGER broken")
        await run(graph, None)

    assert [each.agent for each in model.calls] == ["head", "north", "head"]


class Counting(SqliteCheckpointer):
    """A saver of ours with a method of its own."""

    stored = 0

    def put_writes(self, *args: Any, **kwargs: Any) -> None:
        self.stored += 1
        super().put_writes(*args, **kwargs)


@both_worlds
async def test_a_method_of_the_saver_that_was_replaced_is_called_for_each_write(run: Run) -> None:
    with Counting(":memory:") as saver:
        await run(tree(saver), TASK)
        [(count,)] = saver.conn.execute("SELECT count(DISTINCT task_id) FROM writes")

    assert saver.stored == count == 8


async def test_a_database_that_is_busy_is_waited_for(tmp_path: Path) -> None:
    async with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        with closing(sqlite3.connect(tmp_path / "t.sqlite")) as other:

            @tool
            async def lock(subject: str) -> str:
                """Lock the database until the loop has turned a few times."""
                other.execute("BEGIN IMMEDIATE")
                asyncio.get_running_loop().call_later(0.005, other.rollback)
                return f"found {subject}"

            model = ScriptedModel([Call("lock", {"subject": "Rome"}), "found"])
            leaf = Agent("leaf", "Looks up", model=model, tools=[lock])
            replies = ScriptedModel([delegate("leaf", "look"), "done"])
            root = Agent("root", "Leads", model=replies, subordinates=[leaf])
            answer = await root.compile(saver).ainvoke(TASK, CONFIG)

        assert answer["messages"][-1].text == "done"
        assert not (await saver.acheck()).faults


class Value(TypedDict):
    """A state that takes one value a step."""

    value: int


@both_worlds
async def test_writes_whose_step_cannot_end_are_stored_all_the_same(run: Run) -> None:
    def write_twice(state: Value) -> Any:
        return [Command(update={"value": 1}), Command(update={"value": 2})]

    inner: Any = StateGraph(Value).add_node("twice", write_twice).set_entry_point("twice")
    nested = inline_writes.InlineGraph(**inner.compile().__dict__)
    outer: Any = StateGraph(Value).add_node("inner", nested).set_entry_point("inner")
    with SqliteCheckpointer(":memory:") as saver:
        with pytest.raises(InvalidUpdateError):
            await run(outer.compile(saver), {"value": 0})
        found = saver.conn.execute(
            "SELECT channel FROM writes WHERE checkpoint_ns LIKE 'inner:%' ORDER BY idx"
        ).fetchall()

    # That of the input, and both of the node.
    assert found.count(("value",)) == 3


async def test_another_astream_in_place_of_langgraphs_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traced: list[str] = []
    theirs = Pregel.astream

    async def tracing(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        traced.append(self.name)
        async for part in theirs(self, *args, **kwargs):
            yield part

    monkeypatch.setattr(Pregel, "astream", tracing)
    with SqliteCheckpointer(":memory:") as saver:
        answer = await tree(saver).ainvoke(TASK, CONFIG)

    assert answer["messages"][-1].text == "done"
    assert {"root", "leaf"} <= set(traced)
