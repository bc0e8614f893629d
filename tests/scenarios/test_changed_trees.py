"""A tree that changed while it was interrupted: refused by name, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableLambda
from langgraph.types import Command, interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.errors import MissingAgents
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import get_last, without_told

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

TASK = {"messages": [("user", "go")]}
CONFIG: Any = {"configurable": {"thread_id": "root"}}


def ask(question: str) -> str:
    """Ask the human."""
    return str(interrupt(question))


def look(place: str) -> str:
    """Look at a place."""
    return place


def last(messages: Sequence[BaseMessage]) -> str:
    return without_told(get_last(messages).text)


SCRIPTS: dict[str, Any] = {
    "head": [[delegate("north", "go north"), delegate("south", "go south")], "over"],
    "north": [delegate("camp", "camp"), last],
    "camp": [delegate("scout", "scout"), last],
    "scout": [Call("ask", {"question": "Which pass?"}), last],
    "south": [Call("look", {"place": "the sea"}), last],
}


def model() -> ScriptedModel:
    """Return a model whose agents tell what they were told; any other agent is surprised."""

    def playing(agent: str) -> Any:
        def step(messages: Sequence[BaseMessage]) -> Any:
            chosen = SCRIPTS[agent][0 if messages[-1].type == "human" else -1]
            return chosen(messages) if callable(chosen) else chosen

        return step

    return ScriptedModel({agent: playing(agent) for agent in SCRIPTS})


def tree(
    scout: str = "scout",
    *,
    camp: str = "camp",
    branches: Sequence[str] = ("north", "south"),
    prompt: str = "",
    **more: Any,
) -> Agent:
    """Return the tree, or a changed one."""
    extra = more.get("extra", ())
    leaf = more.get("leaf") or Agent(scout, prompt=prompt, tools=more.get("tools", (ask, look)))
    north = Agent("north", subordinates=[Agent(camp, prompt=prompt, subordinates=[leaf])])
    made = {"north": north, "south": Agent("south", prompt=prompt, tools=[look])}
    below = [made[name] for name in branches]
    return Agent("head", model=model(), prompt=prompt, subordinates=[*below, *extra])


def ask_in(database: Path, world: World) -> str:
    """Run the tree until it asks, and return the question's id."""
    with Session(tree(), database) as session:
        [question] = world.send(session, "go").questions
    assert question.path == "head/north/camp/scout"
    return question.id


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        (tree(scout="ranger"), "head/north/camp/scout"),
        (tree(camp="base"), "head/north/camp"),
        (tree(branches=["south"]), "head/north"),
        (tree(tools=()), "head/north/camp/scout/act"),
        (tree(leaf=RunnableLambda(str, name="scout")), "head/north/camp/scout/act"),
    ],
    ids=["leaf renamed", "middle renamed", "branch removed", "tools removed", "leaf no agent"],
)
def test_a_tree_without_the_agents_that_wait_is_refused_and_the_old_one_goes_on(
    tmp_path: Path, world: World, changed: Agent, missing: str
) -> None:
    database = tmp_path / "trip.sqlite"
    question = ask_in(database, world)

    with Session(changed, database) as session:
        before = session.trace().text
        with pytest.raises(MissingAgents) as refused:
            world.answer(session, {question: "the high one"})
        assert session.trace().text == before
        assert [each.id for each in session.inbox()] == [question]

    assert missing in refused.value.missing
    assert missing in str(refused.value)
    assert refused.value.thread == "main"
    assert "thread 'main' waits in" in str(refused.value)
    with Session(tree(), database) as session:
        result = world.answer(session, {question: "the high one"})
        trace = session.trace()
    assert result.text == "over"
    assert {each.status for each in trace.walk()} == {"root", "fulfilled"}


@pytest.mark.parametrize(
    "changed",
    [
        tree(prompt="Be brief."),
        tree(extra=[Agent("east")]),
        tree(branches=["south", "north"]),
        tree(branches=["north"]),
    ],
    ids=["prompts edited", "agent added", "order changed", "finished branch removed"],
)
def test_a_tree_that_still_has_the_agents_that_wait_goes_on(
    tmp_path: Path, world: World, changed: Agent
) -> None:
    database = tmp_path / "trip.sqlite"
    question = ask_in(database, world)

    with Session(changed, database) as session:
        result = world.answer(session, {question: "the high one"})
        messages = session.thread_store.get(session.thread_id).messages
        texts = [without_told(each.text) for each in messages]

    assert result.finished
    assert texts == ["go", "", "the high one", "the sea", "over"]


def test_every_way_into_the_compiled_graph_refuses(world: World, saver: SqliteCheckpointer) -> None:
    world.invoke(tree().compile(saver), TASK, CONFIG)
    changed = tree(scout="ranger").compile(saver)

    ways: list[Any] = [Command(resume="x"), None]
    for given in ways:
        with pytest.raises(MissingAgents):
            world.invoke(changed, given, CONFIG)
        with pytest.raises(MissingAgents):
            world.stream(changed, given, CONFIG)

    assert (
        world.invoke(tree().compile(saver), Command(resume="x"), CONFIG)["messages"][-1].text
        == "over"
    )


def test_new_task_needs_no_agent_of_the_old_tree(world: World, saver: SqliteCheckpointer) -> None:
    graph = tree().compile(saver)
    world.invoke(graph, TASK, CONFIG)
    world.invoke(graph, Command(resume="x"), CONFIG)

    changed = Agent("head", model=ScriptedModel(["alone"]))

    assert world.invoke(changed.compile(saver), TASK, CONFIG)["messages"][-1].text == "alone"
