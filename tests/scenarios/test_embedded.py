"""A tree as a part of somebody else's graph: its questions come up there, and its ids differ."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from echelons import Agent, SqliteCheckpointer, ThreadStore
from echelons.errors import MissingAgents
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import get_last, without_told

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

Host = Callable[[Any], Any]


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    seen: Annotated[list[str], operator.add]


def ask(question: str) -> str:
    """Ask the human."""
    return str(interrupt(question))


def tree(name: str = "head", leaf: str = "leaf") -> Agent:
    """Return a tree of three levels whose leaf asks."""

    def task(messages: Sequence[BaseMessage]) -> str:
        return next(str(each.text) for each in reversed(messages) if isinstance(each, HumanMessage))

    def passing_on(below: str) -> Callable[[Sequence[BaseMessage]], Any]:
        return lambda messages: (
            delegate(below, task(messages))
            if isinstance(messages[-1], HumanMessage)
            else without_told(get_last(messages).text)
        )

    scripts: dict[str, Any] = {
        name: passing_on(f"{name}-mid"),
        f"{name}-mid": passing_on(f"{name}-{leaf}"),
        f"{name}-{leaf}": lambda messages: (
            Call("ask", {"question": f"{task(messages)}?"})
            if isinstance(messages[-1], HumanMessage)
            else without_told(get_last(messages).text)
        ),
    }
    mid = Agent(f"{name}-mid", subordinates=[Agent(f"{name}-{leaf}", tools=[ask])])
    return Agent(name, model=ScriptedModel(scripts), subordinates=[mid])


def as_node(inner: Any) -> Any:
    return inner


def inside_a_function(inner: Any) -> Any:
    """Return a node that calls the tree with its config, in either world."""

    def call(state: Talk, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": inner.invoke({"messages": state["messages"][-1:]}, config)["messages"]}

    async def acall(state: Talk, config: RunnableConfig) -> dict[str, Any]:
        given = {"messages": state["messages"][-1:]}
        return {"messages": (await inner.ainvoke(given, config))["messages"]}

    return RunnableLambda(call, acall)


def inside_a_function_without_config(inner: Any) -> Any:
    """Return a node that leaves the config to LangGraph."""

    def call(state: Talk) -> dict[str, Any]:
        return {"messages": inner.invoke({"messages": state["messages"][-1:]})["messages"]}

    async def acall(state: Talk) -> dict[str, Any]:
        given = {"messages": state["messages"][-1:]}
        return {"messages": (await inner.ainvoke(given))["messages"]}

    return RunnableLambda(call, acall)


WAYS = pytest.mark.parametrize(
    "way", [as_node, inside_a_function, inside_a_function_without_config]
)


def host(node: Any, saver: Any) -> Any:
    """Return a graph of somebody else, with a node before and one after the tree."""

    def before(state: Talk) -> dict[str, Any]:
        return {"seen": ["before"]}

    def after(state: Talk) -> dict[str, Any]:
        return {"seen": [f"after {state['messages'][-1].text}"]}

    builder = StateGraph(Talk)
    builder.add_node("before", before)
    builder.add_node("team", node)
    builder.add_node("after", after)
    builder.add_edge(START, "before")
    builder.add_edge("before", "team")
    builder.add_edge("team", "after")
    builder.add_edge("after", END)
    return builder.compile(checkpointer=saver)


def config(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}}


def go(task: str) -> dict[str, Any]:
    return {"messages": [("user", task)]}


@WAYS
def test_a_question_of_the_third_level_comes_up_in_the_host_and_is_answered_there(
    world: World, saver: SqliteCheckpointer, way: Host
) -> None:
    inner = tree()
    graph = host(way(inner.compile()), saver)

    [question] = world.invoke(graph, go("north"), config("host"))["__interrupt__"]
    again = host(way(inner.compile()), saver)
    out = world.invoke(again, Command(resume={question.id: "yes"}), config("host"))

    assert question.value == "north?"
    assert out["messages"][-1].text == "yes"
    assert out["seen"] == ["before", "after yes"]
    assert isinstance(inner.model, ScriptedModel)
    assert inner.model.repeated_calls == []


@pytest.mark.parametrize(
    "way",
    [
        as_node,
        inside_a_function,
        inside_a_function_without_config,
    ],
)
def test_each_run_of_a_host_has_threads_of_its_own_that_all_hold(
    world: World, saver: SqliteCheckpointer, way: Host
) -> None:
    graph = host(way(tree().compile()), saver)
    seen = []
    for thread in ("host", "host", "other"):
        world.invoke(graph, go("north"), config(thread))
        world.invoke(graph, Command(resume="yes"), config(thread))

        links = world.do(ThreadStore(saver), "verify", thread)
        assert [(link.agent, str(link.state)) for link in links] == [
            ("head-mid", "ok"),
            ("head-leaf", "ok"),
        ]
        seen += [links[0].superior_thread_id, *(link.sub_agent_thread_id for link in links)]

    assert len(set(seen)) == 9
    assert "host" not in seen


@WAYS
def test_the_rows_of_an_embedded_tree_say_whose_they_are_and_the_hosts_do_not(
    world: World, saver: SqliteCheckpointer, way: Host
) -> None:
    graph = host(way(tree().compile()), saver)
    given = config("host")
    given["metadata"] = {"agent": "somebody", "agent_path": "nowhere", "mine": "kept"}

    world.invoke(graph, go("north"), given)

    rows = list(saver.list(config("host")))
    below = [row for row in rows if row.config["configurable"]["checkpoint_ns"]]
    paths = {str(row.metadata.get("agent_path")) for row in below}
    assert paths == {"head", "head/head-mid", "head/head-mid/head-leaf"}
    assert all(row.metadata.get("mine") == "kept" for row in rows)


def test_two_trees_side_by_side_in_one_host_do_not_mix(
    world: World, saver: SqliteCheckpointer
) -> None:
    builder = StateGraph(Talk)
    for name in ("east", "west"):
        builder.add_node(name, tree(name).compile())
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    graph = builder.compile(checkpointer=saver)

    questions = world.invoke(graph, go("look"), config("host"))["__interrupt__"]
    answers = {each.id: f"answer {place}" for place, each in enumerate(questions)}
    out = world.invoke(graph, Command(resume=answers), config("host"))

    texts = [each.text for each in out["messages"] if each.type == "ai" and each.text]
    assert len(questions) == 2
    assert sorted(texts) == ["answer 0", "answer 1"]
    roots = {
        row.metadata.get("agent_thread_id")
        for row in saver.list(config("host"))
        if row.metadata.get("superior_thread_id") == ""
    }
    assert len(roots) == 2


def test_one_tree_sent_many_tasks_at_once_keeps_them_apart(
    world: World, saver: SqliteCheckpointer
) -> None:
    builder = StateGraph(Talk)
    builder.add_node("team", tree().compile())
    builder.add_conditional_edges(
        START, lambda _: [Send("team", go(f"task {number}")) for number in range(5)], ["team"]
    )
    graph = builder.compile(checkpointer=saver)

    questions = world.invoke(graph, go("look"), config("host"))["__interrupt__"]
    answers = {each.id: each.value.removesuffix("?") for each in questions}
    out = world.invoke(graph, Command(resume=answers), config("host"))

    texts = [each.text for each in out["messages"] if each.type == "ai" and each.text]
    assert texts == [f"task {number}" for number in range(5)]


@WAYS
def test_a_changed_tree_in_the_same_host_is_refused(
    world: World, saver: SqliteCheckpointer, way: Host
) -> None:
    old = host(way(tree().compile()), saver)
    world.invoke(old, go("north"), config("host"))

    changed = host(way(tree(leaf="twig").compile()), saver)
    with pytest.raises(MissingAgents):
        world.invoke(changed, Command(resume="yes"), config("host"))

    assert world.invoke(old, Command(resume="yes"), config("host"))["messages"][-1].text == "yes"


def test_a_tree_inside_a_graph_inside_a_host_works_too(world: World) -> None:
    saver = InMemorySaver()
    middle = host(tree().compile(), None)
    graph = host(middle, saver)

    world.invoke(graph, go("north"), config("host"))
    out = world.invoke(graph, Command(resume="yes"), config("host"))

    assert out["messages"][-1].text == "yes"
    assert all(link.holds for link in world.do(ThreadStore(saver), "verify", "host"))


def test_a_host_without_a_saver_runs_a_tree_that_does_not_ask(world: World) -> None:
    scripts: dict[str, Any] = {"head": [delegate("mid", "go"), "over"], "mid": ["done"]}
    inner = Agent("head", model=ScriptedModel(scripts), subordinates=[Agent("mid")])
    graph = host(inner.compile(), None)

    out = world.invoke(graph, go("north"))

    assert out["seen"] == ["before", "after over"]
