"""What a subordinate remembers: everything when continued, nothing after a reset, and in a
fork of its superior only what it knew then."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.graphs.compiled_tree import AgentGraph
from echelons.testing import Call, ScriptedModel, delegate

if TYPE_CHECKING:
    from langgraph.types import StateSnapshot

    from tests.scenarios.conftest import World

CONFIG: RunnableConfig = {"configurable": {"thread_id": "root"}}


def tasks(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(each.text) for each in messages if isinstance(each, HumanMessage)]


def passing_on(subordinate: str) -> Any:
    """Return the script of an agent that passes every task on, and then tells what it knows.

    A task that ends with ``!`` is passed on with a reset.
    """

    def script(messages: Sequence[BaseMessage]) -> Any:
        if isinstance(messages[-1], HumanMessage):
            task = str(messages[-1].text)
            return delegate(subordinate, task, reset=task.endswith("!"))
        return ", ".join(tasks(messages))

    return script


def chain() -> Agent:
    """Return a tree of four levels whose lowest answers with the tasks that it remembers."""
    model = ScriptedModel(
        {
            "head": passing_on("north"),
            "north": passing_on("camp"),
            "camp": passing_on("scout"),
            "scout": lambda messages: ", ".join(tasks(messages)),
        }
    )
    camp = Agent("camp", subordinates=[Agent("scout")])
    north = Agent("north", subordinates=[camp])
    return Agent("head", model=model, subordinates=[north])


def knows(agent: Agent, name: str) -> list[list[str]]:
    """Return the tasks that an agent saw each time its model was called with a new one."""
    assert isinstance(agent.model, ScriptedModel)
    return [
        tasks(call.messages)
        for call in agent.model.calls
        if call.agent == name and isinstance(call.messages[-1], HumanMessage)
    ]


def test_a_continued_subordinate_continues_its_own_subordinates(world: World) -> None:
    head = chain()

    with Session(head, ":memory:") as session:
        for task in ("one", "two", "three"):
            world.send(session, task)
        links = session.thread_store.verify(session.thread_id)
        segments = [session.thread_store.get(each.sub_agent_thread_id).segments for each in links]

    for name in ("north", "camp", "scout"):
        assert knows(head, name) == [["one"], ["one", "two"], ["one", "two", "three"]]
    assert segments == [3, 3, 3]


def test_a_reset_on_one_level_starts_everything_below_anew(world: World) -> None:
    head = chain()

    with Session(head, ":memory:") as session:
        for task in ("one", "two!", "three"):
            world.send(session, task)
        trace = session.trace()

    assert knows(head, "head") == [["one"], ["one", "two!"], ["one", "two!", "three"]]
    for name in ("north", "camp", "scout"):
        assert knows(head, name) == [["one"], ["two!"], ["two!", "three"]]
    assert [each.agent for each in trace.walk()].count("scout") == 2


def test_a_continued_agent_sees_its_instructions_once_and_its_tools_results_again(
    world: World,
) -> None:
    def look(place: str) -> str:
        """Look at a place."""
        return f"{place} is fine"

    steps: list[Any] = [Call("look", {"place": "Rome"}), "seen"]
    model = ScriptedModel({"head": [delegate("guide", "look"), "ok"], "guide": steps})
    guide = Agent("guide", prompt="You are a guide.", tools=[look])

    with Session(Agent("head", model=model, subordinates=[guide]), ":memory:") as session:
        world.send(session, "one")
        world.send(session, "two")

    seen = [call.messages for call in model.calls if call.agent == "guide"][2]
    assert [each.type for each in seen] == ["system", "human", "ai", "tool", "ai", "human"]
    assert [each.text for each in seen if each.type == "tool"] == ["Rome is fine"]
    assert isinstance(seen[0], SystemMessage)


def state_after(graph: AgentGraph, task: str) -> StateSnapshot:
    """Return the finished state of the root's thread whose last task was this one."""
    return next(
        state
        for state in graph.get_state_history(CONFIG)
        if not state.tasks and tasks(state.values["messages"])[-1:] == [task]
    )


def test_forking_a_superiors_past_forks_what_all_its_subordinates_knew(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = chain()
    graph = head.compile(saver)
    for task in ("one", "two", "three"):
        world.invoke(graph, {"messages": [("user", task)]}, CONFIG)

    then = state_after(graph, "one")
    world.invoke(graph, {"messages": [("user", "other")]}, then.config)
    world.invoke(graph, {"messages": [("user", "last")]}, CONFIG)

    for name in ("head", "north", "camp", "scout"):
        assert knows(head, name)[3:] == [["one", "other"], ["one", "other", "last"]]
    assert all(link.holds for link in ThreadStore(saver).verify("root"))


def test_the_trunk_goes_on_as_if_there_had_been_no_fork(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = chain()
    graph = head.compile(saver)
    for task in ("one", "two"):
        world.invoke(graph, {"messages": [("user", task)]}, CONFIG)
    trunk = state_after(graph, "two")
    world.invoke(graph, {"messages": [("user", "other")]}, state_after(graph, "one").config)

    world.invoke(graph, {"messages": [("user", "three")]}, trunk.config)

    for name in ("head", "north", "camp", "scout"):
        assert knows(head, name)[3:] == [["one", "two", "three"]]


def test_a_replay_from_the_middle_of_a_turn_gives_the_subordinate_what_it_knew(
    world: World, saver: SqliteCheckpointer
) -> None:
    head = chain()
    graph = head.compile(saver)
    for task in ("one", "two"):
        world.invoke(graph, {"messages": [("user", task)]}, CONFIG)
    before = next(
        state
        for state in graph.get_state_history(CONFIG)
        if state.next == ("delegate",) and tasks(state.values["messages"]) == ["one", "two"]
    )

    out = world.invoke(graph, None, before.config)

    assert out["messages"][-1].text == "one, two"
    assert knows(head, "scout") == [["one"], ["one", "two"], ["one", "two"]]


def test_two_hundred_continuations_of_two_kilobytes_grow_the_file_evenly(
    saver: SqliteCheckpointer,
) -> None:
    sizes: list[int] = []

    def head(messages: Sequence[BaseMessage]) -> Any:
        done = sum(message.type == "ai" for message in messages)
        if done % 50 == 0:
            sizes.append(saver.conn.execute("PRAGMA page_count").fetchone()[0] * 4096)
        return "done" if done == 200 else delegate("guide", f"{done:03}" + "x" * 997)

    model = ScriptedModel({"head": head, "guide": lambda _: "y" * 1000})
    graph = Agent("head", model=model, subordinates=[Agent("guide")]).compile(saver)

    graph.invoke({"messages": [("user", "go")]}, {**CONFIG, "recursion_limit": 1000})

    grown = [after - before for before, after in pairwise(sizes)]
    [link] = ThreadStore(saver).verify("root")
    assert ThreadStore(saver).get(link.sub_agent_thread_id).segments == 200
    assert len(grown) == 4
    assert max(grown) <= 1.25 * min(grown), grown
