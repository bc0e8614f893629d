"""Synchronous runs store in the thread that runs them, and lose no error of the saver."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.pregel import Pregel
from langgraph.types import Command, interrupt

from echelons import Agent
from echelons.errors import StorageError
from echelons.graphs.compiled_tree import AgentGraph
from echelons.graphs.pregel import inline_writes
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


def tree(saver: InMemorySaver, calls: int = 1) -> AgentGraph:
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


def test_who_asks_for_storing_in_the_background_gets_it() -> None:
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


def test_a_stream_that_somebody_else_has_put_in_place_of_langgraphs_is_used(
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
    assert inline_writes.replace_loop(FunctionType(compile("pass", "other", "exec"), {})) is None
