"""Whatever is called in whatever order of ends, each thread has its own history and no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from echelons import Agent, SqliteCheckpointer, ThreadStore
from echelons.testing import ScriptedModel, delegate
from tests.proof import sample

NAMES = ("guide", "scout")
Wanted = tuple[str, bool]
"""Whom to call, and whether to reset."""


@dataclass
class Turns:
    """Lets callers through one at a time, in an order of which they know nothing."""

    order: Sequence[str]
    passed: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    changed_in_loop: asyncio.Condition = field(default_factory=asyncio.Condition)

    def wait(self, task: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self._is_next(task), timeout=120)
            self.passed.append(task)
            self.changed.notify_all()

    async def await_(self, task: str) -> None:
        async with asyncio.timeout(120), self.changed_in_loop:
            await self.changed_in_loop.wait_for(lambda: self._is_next(task))
            self.passed.append(task)
            self.changed_in_loop.notify_all()

    def _is_next(self, task: str) -> bool:
        return self.order[len(self.passed)] == task


def expected(turns: Sequence[Sequence[Wanted]]) -> tuple[dict[str, str], list[list[str]]]:
    """Return what each task must be answered, and the tasks of each thread: the rule, plainly."""
    threads: list[list[str]] = []
    latest: dict[str, list[str]] = {}
    said: dict[str, str] = {}
    for turn, calls in enumerate(turns):
        begun: set[str] = set()
        for number, (name, reset) in enumerate(calls):
            goes_on = not reset and name in latest and name not in begun
            thread = latest[name] if goes_on else []
            if not goes_on:
                threads.append(thread)
            if reset or name not in begun:
                latest[name] = thread
            begun.add(name)
            thread.append(f"{turn}.{number}")
            said[f"{turn}.{number}"] = " ".join(thread)
    return said, threads


def ends(turns: Sequence[Sequence[Wanted]], shuffled: Sequence[int]) -> list[str]:
    """Return an order of ends that is possible: a thread's own calls follow one another."""
    _, threads = expected(turns)
    order: list[str] = []
    for turn, calls in enumerate(turns):
        tasks = [f"{turn}.{number}" for number in range(len(calls))]
        queues = [[task for task in thread if task in tasks] for thread in threads]
        for place in shuffled:
            if queues := [queue for queue in queues if queue]:
                order.append(queues[place % len(queues)].pop(0))
        order += [task for queue in queues for task in queue]
    return order


def recalled(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(each.text) for each in messages if isinstance(each, HumanMessage)]


def play(turns: Sequence[Sequence[Wanted]], guide: Callable[..., Any]) -> Agent:
    steps = [
        [
            delegate(name, f"{turn}.{n}", reset, id=f"{turn}.{n}")
            for n, (name, reset) in enumerate(calls)
        ]
        for turn, calls in enumerate(turns)
    ]
    model = ScriptedModel({"head": [*steps, "done"], "*": guide})
    return Agent("head", model=model, subordinates=[Agent(name) for name in NAMES])


def run(turns: Sequence[Sequence[Wanted]], order: Sequence[str], saver: SqliteCheckpointer) -> Any:
    gate = Turns(order)

    def guide(messages: Sequence[BaseMessage]) -> str:
        gate.wait(recalled(messages)[-1])
        return " ".join(recalled(messages))

    graph = play(turns, guide).compile(saver)
    return graph.invoke({"messages": [("user", "go")]}, config())


def arun(turns: Sequence[Sequence[Wanted]], order: Sequence[str], saver: SqliteCheckpointer) -> Any:
    gate = Turns(order)

    async def guide(messages: Sequence[BaseMessage]) -> str:
        await gate.await_(recalled(messages)[-1])
        return " ".join(recalled(messages))

    graph = play(turns, guide).compile(saver)
    return asyncio.run(graph.ainvoke({"messages": [("user", "go")]}, config()))


def config() -> Any:
    return {"configurable": {"thread_id": "root"}, "max_concurrency": 16}


@pytest.mark.parametrize("play_out", [run, arun], ids=["sync", "async"])
@settings(derandomize=True, max_examples=sample(10, 200))
@given(
    turns=st.lists(
        st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), min_size=1, max_size=6),
        min_size=1,
        max_size=3,
    ),
    shuffled=st.lists(st.integers(0, 5), min_size=6, max_size=6),
)
def test_each_call_is_answered_with_its_own_threads_history_whatever_ends_first(
    play_out: Callable[..., Any], turns: list[list[Wanted]], shuffled: list[int]
) -> None:
    said, threads = expected(turns)
    with SqliteCheckpointer(":memory:") as saver:
        out = play_out(turns, ends(turns, shuffled), saver)

        store = ThreadStore(saver)
        links = store.verify("root")
        stored = [store.get(link.sub_agent_thread_id) for link in links]

    answers = [each for each in out["messages"] if isinstance(each, ToolMessage)]
    texts = {each.tool_call_id: str(each.text).partition("\n")[0] for each in answers}
    assert texts == said
    assert len(answers) == len(said)
    assert [recalled(thread.messages) for thread in stored] == threads
    assert {str(link.state) for link in links} == {"ok"}
    assert [thread.segments for thread in stored] == [len(tasks) for tasks in threads]
