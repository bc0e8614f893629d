"""Trees that a step of another tree runs: what holds around them holds within."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Budget, Limits, Permissions, Session, SqliteCheckpointer
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.scenarios.conftest import World

TASK = {"messages": [("user", "go")]}
Run = Callable[[Agent], str]
ARun = Callable[[Agent], Awaitable[str]]


def nested(tree: Agent) -> str:
    return str(tree.compile().invoke(TASK)["messages"][-1].text)


async def anested(tree: Agent) -> str:
    return str((await tree.compile().ainvoke(TASK))["messages"][-1].text)


def on_a_thread(tree: Agent) -> str:
    thread: Any = {"configurable": {"thread_id": "inner"}}
    return str(tree.compile(InMemorySaver()).invoke(TASK, thread)["messages"][-1].text)


async def aon_a_thread(tree: Agent) -> str:
    thread: Any = {"configurable": {"thread_id": "inner"}}
    done = await tree.compile(InMemorySaver()).ainvoke(TASK, thread)
    return str(done["messages"][-1].text)


def in_a_session(tree: Agent) -> str:
    with Session(tree, ":memory:") as session:
        return str(session.send("go").result())


async def ain_a_session(tree: Agent) -> str:
    async with Session(tree, ":memory:") as session:
        return str(await (await session.asend("go")).result())


async def in_a_thread_of_the_loop(tree: Agent) -> str:
    return await asyncio.to_thread(in_a_session, tree)


WAYS: list[tuple[Run | None, ARun]] = [
    (nested, anested),
    (on_a_thread, aon_a_thread),
    (in_a_session, ain_a_session),
    (in_a_session, in_a_thread_of_the_loop),
]
ways = pytest.mark.parametrize("way", WAYS, ids=["nested", "thread", "session", "to_thread"])


def make_tool(world: World, way: tuple[Run, ARun], tree: Callable[[], Agent]) -> Any:
    """Return a tool `inner` that runs a tree, of the kind of the world."""

    def inner() -> str:
        """Run the tree."""
        return way[0](tree())

    async def ainner() -> str:
        """Run the tree."""
        return await way[1](tree())

    ainner.__name__ = "inner"
    return ainner if type(world).__name__ == "Async" else inner


def run(world: World, tree: Agent, kind: str) -> str:
    if kind == "compile":
        return str(world.invoke(tree.compile(), TASK)["messages"][-1].text)
    with Session(tree, ":memory:") as session:
        return str(world.send(session, "go"))


kinds = pytest.mark.parametrize("kind", ["session", "compile"])


def pass_on(messages: Any) -> Any:
    """Call the tool `inner`, then answer with what it returned."""
    return Call("inner") if messages[-1].type == "human" else messages[-1].text


@ways
@kinds
def test_tree_in_its_own_tool_ends_at_the_depth_of_the_outermost(
    world: World, way: tuple[Run, ARun], kind: str
) -> None:
    model = ScriptedModel(pass_on)
    head = Agent("head", model=model, limits=Limits(depth=4))
    head = Agent(
        "head", model=model, limits=Limits(depth=4), tools=[make_tool(world, way, lambda: head)]
    )

    text = run(world, head, kind)

    assert "Depth: 'head' would go down to level 5" in text
    assert "no agent may be below 4" in text
    assert len(model.calls) == 8, "two of each of four runs"


@ways
def test_two_trees_in_each_others_tools_end_at_a_depth(world: World, way: tuple[Run, ARun]) -> None:
    model = ScriptedModel(pass_on)
    trees: dict[str, Agent] = {}
    for name, other in (("day", "night"), ("night", "day")):
        tool = make_tool(world, way, partial(trees.__getitem__, other))
        trees[name] = Agent(name, model=model, limits=Limits(depth=6), tools=[tool])

    text = run(world, trees["day"], "session")

    assert "Depth: 'day' would go down to level 7" in text
    assert {call.agent for call in model.calls} == {"day", "night"}
    assert len(model.calls) == 12


@ways
def test_inner_tree_may_have_the_names_of_those_around(world: World, way: tuple[Run, ARun]) -> None:
    inner_model = ScriptedModel({"head": [delegate("leaf", "go"), "inner"], "leaf": ["found"]})
    inner = Agent("head", model=inner_model, subordinates=[Agent("leaf")])
    model = ScriptedModel({"head": [delegate("leaf", "go"), "outer"], "leaf": pass_on})
    leaf = Agent("leaf", tools=[make_tool(world, way, lambda: inner)])

    assert run(world, Agent("head", model=model, subordinates=[leaf]), "session") == "outer"
    assert [call.agent for call in inner_model.calls] == ["head", "leaf", "head"]


def test_refused_session_has_stored_nothing(world: World, saver: SqliteCheckpointer) -> None:
    def inner() -> str:
        """Run a tree of two levels."""
        tree = Agent("in", model=ScriptedModel(["never"]), subordinates=[Agent("below")])
        with Session(tree, saver, thread="inner") as session:
            return str(session.send("go", turn_id="1").result())

    model = ScriptedModel(pass_on)
    head = Agent("head", model=model, limits=Limits(depth=2), tools=[inner])

    with Session(head, saver, thread="outer") as session:
        text = world.send(session, "go").text
        assert "'in' would go down to level 3" in text
        assert [root.name for root in session.threads()] == ["outer"]


def test_thread_of_a_tool_begins_anew(world: World) -> None:
    answers: list[str] = []

    def inner() -> str:
        """Run a tree in a thread of its own."""
        tree = Agent("in", model=ScriptedModel(["done"]))
        thread = Thread(target=lambda: answers.append(in_a_session(tree)))
        thread.start()
        thread.join()
        return answers[0]

    model = ScriptedModel([Call("inner"), "outer"])
    head = Agent("head", model=model, limits=Limits(depth=1, calls=2), tools=[inner])

    assert run(world, head, "session") == "outer"
    assert answers == ["done"]


@ways
@kinds
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(calls=3), "limit: 3 of 3 model calls"),
        (Limits(steps=4), "limit: 4 of 4 steps"),
        (Limits(tokens=140), "limit: 150 of 140 tokens"),
    ],
    ids=["calls", "steps", "tokens"],
)
def test_limit_of_the_outer_tree_ends_the_inner_one(
    world: World, way: tuple[Run, ARun], kind: str, limits: Limits, reason: str
) -> None:
    def look() -> str:
        """Look."""
        return "nothing"

    looks = ScriptedModel(lambda messages: Reply(calls=[Call("look")], usage=(40, 10)))
    inner = Agent("in", model=looks, tools=[look])
    model = ScriptedModel(lambda messages: Reply(calls=[Call("inner")], usage=(40, 10)))
    head = Agent("head", model=model, limits=limits, tools=[make_tool(world, way, lambda: inner)])

    text = run(world, head, kind)

    assert reason in text
    assert len(model.calls) == 1
    assert len(looks.calls) == 2 if "steps" not in reason else 1


@ways
def test_stop_of_the_agent_around_ends_the_inner_tree(
    world: World, way: tuple[Run, ARun], saver: SqliteCheckpointer
) -> None:
    def look() -> str:
        """Stop the agent around."""
        session.stop("head")
        return "nothing"

    looks = ScriptedModel(lambda _: Call("look"))
    inner = Agent("in", model=looks, tools=[look])
    model = ScriptedModel(lambda _: Call("inner"))
    head = Agent("head", model=model, tools=[make_tool(world, way, lambda: inner)])

    with Session(head, saver, thread="outer") as session:
        assert world.send(session, "go").status == "stopped"
    assert (len(model.calls), len(looks.calls)) == (1, 1)


def working(name: str, calls: int, tools: list[Any]) -> Agent:
    """Return an agent that calls its tool so many times, then answers with what it returned."""

    def step(messages: Any) -> Any:
        answered = [message for message in messages if message.type == "tool"]
        if len(answered) < calls:
            return Reply(calls=[Call(tools[0].__name__)], usage=(40, 10))
        return Reply(str(answered[-1].text), usage=(40, 10))

    return Agent(name, model=ScriptedModel(step), tools=tools)


def look() -> str:
    """Look."""
    return "nothing"


@ways
@kinds
@pytest.mark.parametrize(
    ("budget", "reason", "looks"),
    [
        (Budget(calls=3), "budget: 3 of 3 model calls", 2),
        (Budget(tokens=130), "budget: 150 of 130 tokens", 2),
        (Budget(tool_calls=3), "budget: 3 of 3 tool calls", 2),
    ],
    ids=["calls", "tokens", "tool_calls"],
)
def test_budget_of_the_outer_tree_ends_the_inner_one(
    world: World, way: tuple[Run, ARun], kind: str, budget: Budget, reason: str, looks: int
) -> None:
    inner = working("in", 9, [look])
    outer = working("head", 9, [make_tool(world, way, lambda: inner)])
    rules = Permissions(budget=budget)
    head = Agent("head", model=outer.model, tools=outer.tools, permissions=rules)

    text = run(world, head, kind)

    assert reason in text
    models: list[Any] = [outer.model, inner.model]
    assert len(models[0].calls) == 1
    assert len(models[1].calls) in (looks, looks + 1)


def count_rows(saver: SqliteCheckpointer, kind: str) -> int:
    rows = saver.conn.execute("SELECT count(*) FROM usage WHERE kind = ?", (kind,))
    return int(rows.fetchone()[0])


@pytest.mark.parametrize("store", ["nested", "shared", "same file", "memory"])
def test_usage_has_each_call_of_an_inner_tree_once(
    world: World, tmp_path: Path, store: str
) -> None:
    database = tmp_path / "outer.sqlite"
    with SqliteCheckpointer(database) as saver:
        places: dict[str, Any] = {"shared": saver, "same file": database, "memory": ":memory:"}

        def in_place(tree: Agent) -> str:
            with Session(tree, places[store], thread="inner") as session:
                return str(session.send("go").result())

        async def ain_place(tree: Agent) -> str:
            async with Session(tree, places[store], thread="inner") as session:
                return str(await (await session.asend("go")).result())

        way = (nested, anested) if store == "nested" else (in_place, ain_place)
        inner = working("in", 2, [look])
        head = working("head", 1, [make_tool(world, way, lambda: inner)])
        with Session(head, saver, thread="outer") as session:
            result = world.send(session, "go")
            assert result.text == "nothing"
            assert result.usage.model_calls == 5

            report = session.usage()
            everything = session.thread_store.usage()
        calls = report.group("agent")
        assert {path: sums.model_calls for path, sums in calls.items()} == {"head": 2, "head/in": 3}
        assert {path: sums.tool_calls for path, sums in calls.items()} == {"head": 1, "head/in": 2}
        assert report.total.tokens == 250
        assert report.select("head/in").total.model_calls == 3
        assert everything.total.model_calls == count_rows(saver, "model") == 5
        assert everything.total.tool_calls == 3


def test_trees_in_three_threads_count_in_each_around(
    world: World, saver: SqliteCheckpointer
) -> None:
    def run_on(thread: str) -> tuple[Run, ARun]:
        def run(tree: Agent) -> str:
            with Session(tree, saver, thread=thread) as session:
                return str(session.send("go").result())

        async def arun(tree: Agent) -> str:
            async with Session(tree, saver, thread=thread) as session:
                return str(await (await session.asend("go")).result())

        return run, arun

    leaf = working("leaf", 1, [look])
    site = working("site", 1, [make_tool(world, (nested, anested), lambda: leaf)])
    mid = working("mid", 1, [make_tool(world, run_on("site"), lambda: site)])
    head = working("head", 1, [make_tool(world, run_on("mid"), lambda: mid)])

    with Session(head, saver, thread="head") as session:
        world.send(session, "go")
        sums = session.usage().group("agent")
    assert {path: total.model_calls for path, total in sums.items()} == {
        "head": 2,
        "head/mid": 2,
        "head/mid/site": 2,
        "head/mid/site/leaf": 2,
    }
    with Session(mid, saver, thread="mid") as session:
        assert session.usage().total.model_calls == 6
        assert session.thread_store.usage().total.model_calls == 8
    assert count_rows(saver, "model") == 8
