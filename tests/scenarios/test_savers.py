"""A compiled tree is an ordinary LangGraph graph, on any saver and on none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

from echelons import Agent, SqliteCheckpointer, ThreadStore
from echelons.testing import Call, ScriptedModel, delegate
from tests.failure_ids import without_conversation_ids
from tests.told_lines import get_last, without_told

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

Saver = BaseCheckpointSaver[Any]
CONFIG: Any = {"configurable": {"thread_id": "root"}}


def asks(task: str) -> dict[str, Any]:
    return {"messages": [("user", task)]}


@pytest.fixture(params=["memory", "sqlite", "ours"])
def any_saver(request: pytest.FixtureRequest, world: World) -> Iterator[Saver]:
    """Each saver that works in the world."""
    if request.param == "memory":
        yield InMemorySaver()
    elif request.param == "ours":
        with SqliteCheckpointer(":memory:") as ours:
            yield ours
    elif type(world).__name__ == "Sync":
        with SqliteSaver.from_conn_string(":memory:") as theirs:
            yield theirs
    else:
        opened = Opened()
        yield world.do(opened, "open")
        world.do(opened, "close")


class Opened:
    """LangGraph's asynchronous saver, opened and closed in the world's event loop."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def aopen(self) -> Saver:
        saver = AsyncSqliteSaver.from_conn_string(":memory:")
        return await self._stack.enter_async_context(saver)

    async def aclose(self) -> None:
        await self._stack.aclose()


def recalled(messages: Sequence[BaseMessage]) -> str:
    return " + ".join(str(each.text) for each in messages if isinstance(each, HumanMessage))


def ask(question: str) -> str:
    """Ask the human."""
    return str(interrupt(question))


def look() -> str:
    """Look around."""
    return "fine"


def tree() -> Agent:
    """Return a tree of three levels whose leaf asks about each task that it is given."""

    def last_task(messages: Sequence[BaseMessage]) -> str:
        return recalled(messages).split(" + ")[-1]

    def head(messages: Sequence[BaseMessage]) -> Any:
        if isinstance(messages[-1], HumanMessage):
            return [delegate("mid", last_task(messages)), Call("look")]
        return f"head: {without_told(get_last(messages).text)}"

    def mid(messages: Sequence[BaseMessage]) -> Any:
        if isinstance(messages[-1], HumanMessage):
            return delegate("leaf", last_task(messages))
        return f"mid: {without_told(get_last(messages).text)}"

    def leaf(messages: Sequence[BaseMessage]) -> Any:
        if isinstance(messages[-1], HumanMessage):
            return Call("ask", {"question": f"{last_task(messages)}?"})
        return f"{recalled(messages)} = {messages[-1].text}"

    model = ScriptedModel({"head": head, "mid": mid, "leaf": leaf})
    below = Agent("mid", subordinates=[Agent("leaf", tools=[ask])])
    return Agent("head", model=model, tools=[look], subordinates=[below])


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(each.text) for each in messages]


def threads(world: World, saver: Saver) -> dict[str, Any]:
    """Return what each agent's thread holds."""
    store = ThreadStore(saver)
    links = world.do(store, "verify", "root")
    assert {str(link.state) for link in links} == {"ok"}
    found = {link.agent: world.do(store, "get", link.sub_agent_thread_id) for link in links}
    return {"head": world.do(store, "get", "root"), **found}


def test_every_saver_gives_the_same_conversation(world: World, any_saver: Saver) -> None:
    graph = tree().compile(any_saver)

    for task in ("one", "two"):
        out = world.invoke(graph, asks(task), CONFIG)
        [question] = out["__interrupt__"]
        assert question.value == f"{task}?"
        out = world.invoke(graph, Command(resume={question.id: task.upper()}), CONFIG)

    found = threads(world, any_saver)
    assert texts(out["messages"])[-1] == "head: mid: one + two = TWO"
    assert texts(found["head"].messages) == texts(out["messages"])
    assert texts(found["leaf"].messages) == [
        *("one", "", "ONE", "one = ONE"),
        *("two", "", "TWO", "one + two = TWO"),
    ]
    assert [found[name].segments for name in ("head", "mid", "leaf")] == [1, 2, 2]
    trace = world.do(ThreadStore(any_saver), "trace", "root")
    assert [(each.agent, each.status, each.tools) for each in trace.walk()] == [
        ("head", "root", ("look", "look")),
        ("mid", "fulfilled", ()),
        ("leaf", "fulfilled", ("ask", "ask")),
    ]


def test_every_saver_shows_the_state_of_every_level(world: World, any_saver: Saver) -> None:
    graph = tree().compile(any_saver)
    world.invoke(graph, asks("one"), CONFIG)

    state = world.do(graph, "get_state", CONFIG, subgraphs=True)
    way = []
    while state.tasks:
        [task] = [each for each in state.tasks if each.interrupts]
        way.append(task.name)
        if task.state is None:
            break
        state = task.state

    assert way == ["delegate", "mid", "delegate", "leaf", "act"]
    assert texts(state.values["messages"]) == ["one", ""]


def test_every_saver_forks(world: World, any_saver: Saver) -> None:
    graph = tree().compile(any_saver)
    for task in ("one", "two"):
        world.invoke(graph, asks(task), CONFIG)
        world.invoke(graph, Command(resume=task.upper()), CONFIG)
    states = world.do(graph, "get_state_history", CONFIG)
    then = next(state for state in states if not state.tasks and len(state.values["messages"]) == 5)

    world.invoke(graph, asks("other"), then.config)
    out = world.invoke(graph, Command(resume="OTHER"), CONFIG)

    assert texts(out["messages"])[-1] == "head: mid: one + other = OTHER"


def test_every_saver_takes_an_update_of_the_root(world: World, any_saver: Saver) -> None:
    graph = tree().compile(any_saver)
    world.invoke(graph, asks("one"), CONFIG)
    world.invoke(graph, Command(resume="ONE"), CONFIG)

    config = world.do(graph, "update_state", CONFIG, asks("by hand"), as_node="__start__")
    world.invoke(graph, None, config)
    out = world.invoke(graph, Command(resume="HAND"), CONFIG)

    assert texts(out["messages"])[-1] == "head: mid: one + by hand = HAND"
    found = threads(world, any_saver)
    assert texts(found["leaf"].messages)[-2:] == ["HAND", "one + by hand = HAND"]


def test_every_saver_takes_an_update_of_a_subordinate_that_waits(
    world: World, any_saver: Saver
) -> None:
    graph = tree().compile(any_saver)
    world.invoke(graph, asks("one"), CONFIG)
    state = world.do(graph, "get_state", CONFIG, subgraphs=True)
    for _ in range(4):
        state = next(task for task in state.tasks if task.interrupts).state
    [call] = state.values["messages"][-1].tool_calls

    by_hand = ToolMessage("by hand", tool_call_id=call["id"], name="ask")
    world.do(graph, "update_state", state.config, {"messages": [by_hand]}, as_node="act")
    out = world.invoke(graph, None, CONFIG)

    assert texts(out["messages"])[-1] == "head: mid: one = by hand"


def test_every_saver_streams_every_level(world: World, any_saver: Saver) -> None:
    graph = tree().compile(any_saver)

    parts = world.stream(
        graph, asks("one"), CONFIG, stream_mode=["updates", "messages"], subgraphs=True
    )
    parts += world.stream(
        graph, Command(resume="ONE"), CONFIG, stream_mode=["updates", "messages"], subgraphs=True
    )

    levels = {
        tuple(each.split(":")[0] for each in namespace)
        for namespace, mode, _ in parts
        if mode == "updates"
    }
    assert levels == {
        (),
        ("delegate",),
        ("delegate", "mid"),
        ("delegate", "mid", "delegate"),
        ("delegate", "mid", "delegate", "leaf"),
    }
    tokens = [
        chunk
        for _, mode, (chunk, _) in (part for part in parts if part[1] == "messages")
        if mode == "messages" and isinstance(chunk, AIMessageChunk)
    ]
    assert "".join(str(each.text) for each in tokens).startswith("one = ONE")


def test_without_a_saver_a_tree_runs_and_remembers_nothing(world: World) -> None:
    calls = [delegate("mid", "one"), delegate("mid", "two"), delegate("mid", "three", reset=True)]
    scripts: dict[str, Any] = {
        "head": [calls[:2], calls[2], delegate("mid", "four"), "over"],
        "mid": [delegate("leaf", "work"), "mid done"],
        "leaf": recalled,
    }
    below = Agent("mid", subordinates=[Agent("leaf")])
    graph = Agent("head", model=ScriptedModel(scripts), subordinates=[below]).compile()

    out = world.invoke(graph, asks("go"))

    told = [each for each in out["messages"] if isinstance(each, ToolMessage)]
    lost = "[unable] no_checkpointer: nothing was kept of the earlier conversation; use reset=true"
    assert [*map(without_conversation_ids, texts(told))] == [*["mid done"] * 3, lost]
    assert [each.artifact["status"] for each in told] == [*["fulfilled"] * 3, "unable"]
    again = world.invoke(graph, asks("go"))
    assert len(again["messages"]) == len(out["messages"])


def test_without_a_saver_every_way_in_works(world: World) -> None:
    scripts: dict[str, Any] = {"head": [delegate("mid", "work"), "over"], "mid": ["done"]}
    tree = Agent("head", model=ScriptedModel(scripts), subordinates=[Agent("mid")])
    graph = tree.compile()

    values = world.stream(graph, asks("go"), stream_mode="values")
    updates = world.stream(graph, asks("go"), subgraphs=True)

    assert texts(values[-1]["messages"]) == ["go", "", "done", "over"]
    assert len({namespace for namespace, _ in updates}) == 3
