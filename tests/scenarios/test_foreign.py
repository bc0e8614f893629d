"""Subordinates that are no agents: functions, Runnables and other people's graphs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from echelons import Agent, Capability, Session, SqliteCheckpointer, subordinate
from echelons.checkpoints.threads.trace import Thread
from echelons.testing import ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.failure_ids import without_ids
from tests.told_lines import without_told

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Failures of subordinates are logged; here they are wanted."""
    with caplog.at_level(logging.CRITICAL):
        yield


def shout(task: str) -> str:
    """Say it louder."""
    return task.upper()


async def shout_later(task: str) -> str:
    """Say it louder, some time."""
    return task.upper()


def fail(task: str) -> str:
    raise ValueError(f"no {task}\nTraceback: secret")


def ask_back(task: str) -> str:
    """Ask the human."""
    return f"{task}: {interrupt('Louder?')}"


SHOUTER: Any = RunnableLambda(lambda task: AIMessage(str(task).upper()), name="shouter")


def recaller(*, name: str = "recaller", saver: Any = None, asks: bool = False) -> Any:
    """Return somebody's graph of two nodes, which tells what it was asked so far."""

    def recall(state: MessagesState) -> dict[str, Any]:
        tasks = [str(each.text) for each in state["messages"] if isinstance(each, HumanMessage)]
        return {"messages": [AIMessage(" + ".join(tasks))]}

    def check(state: MessagesState) -> dict[str, Any]:
        if not asks:
            return {}
        said = f"{state['messages'][-1].text} {interrupt('One?')} {interrupt('Two?')}"
        return {"messages": [AIMessage(said)]}

    builder = StateGraph(MessagesState)
    builder.add_node("recall", recall)
    builder.add_node("check", check)
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "check")
    builder.add_edge("check", END)
    return builder.compile(checkpointer=saver, name=name)


def session(foreign: Any, name: str, saver: Any, tasks: Sequence[str] = ("one", "two")) -> Session:
    """Return a session of a tree of three levels, the lowest somebody else's."""
    calls = [delegate(name, task) for task in tasks]
    scripts: dict[str, Any] = {"head": [delegate("mid", "go"), "over"], "mid": [*calls, "done"]}
    mid = Agent("mid", subordinates=[foreign])
    return Session(Agent("head", model=ScriptedModel(scripts), subordinates=[mid]), saver)


def threads(session: Session) -> tuple[Thread, Thread]:
    """Return the thread of the agent between and of the foreign subordinate."""
    links = session.thread_store.verify(session.thread_id)
    assert [str(link.state) for link in links] == ["ok", "ok"]
    mid, foreign = [session.thread_store.get(link.sub_agent_thread_id) for link in links]
    return mid, foreign


def told(messages: Sequence[BaseMessage]) -> list[str]:
    return [without_told(each.text) for each in messages if isinstance(each, ToolMessage)]


@pytest.mark.parametrize(
    ("foreign", "name", "answers"),
    [
        (shout, "shout", ["ONE", "TWO"]),
        (SHOUTER, "shouter", ["ONE", "TWO"]),
        (recaller(), "recaller", ["one", "one + two"]),
        (recaller(saver=InMemorySaver()), "recaller", ["one", "one + two"]),
    ],
    ids=["function", "runnable", "graph", "graph with a saver of its own"],
)
def test_each_kind_answers_and_has_a_thread_with_its_tasks_and_answers(
    world: World, saver: SqliteCheckpointer, foreign: Any, name: str, answers: list[str]
) -> None:
    team = session(foreign, name, saver)

    result = world.send(team, "go")

    mid, thread = threads(team)
    assert result.text == "over"
    assert told(mid.messages) == answers
    assert [str(each.text) for each in thread.messages] == ["one", answers[0], "two", answers[1]]
    assert (thread.agent, thread.path, thread.segments) == (name, f"head/mid/{name}", 2)


def test_an_async_function_is_awaited(world: World, saver: SqliteCheckpointer) -> None:
    team = session(shout_later, "shout_later", saver)

    world.send(team, "go")

    mid, _ = threads(team)
    assert told(mid.messages) == ["ONE", "TWO"]
    team.close()


@pytest.mark.parametrize(
    ("foreign", "name"),
    [(fail, "fail"), (RunnableLambda(fail, name="failing"), "failing")],
    ids=["function", "runnable"],
)
def test_one_that_fails_is_unable_with_a_reason_and_no_traceback(
    world: World, saver: SqliteCheckpointer, foreign: Any, name: str
) -> None:
    team = session(foreign, name, saver)

    result = world.send(team, "go")

    mid, thread = threads(team)
    assert result.text == "over"
    reasons = [without_ids(each) for each in told(mid.messages)]
    assert reasons == ["[unable] ValueError: no one", "[unable] ValueError: no two"]
    assert [str(each.text) for each in thread.messages] == ["one", "two"]
    answer = next(each for each in mid.messages if isinstance(each, ToolMessage))
    assert answer.status == "error"
    assert answer.additional_kwargs["unavailable"] is True


def test_a_function_may_ask_the_human(world: World, saver: SqliteCheckpointer) -> None:
    team = session(ask_back, "ask_back", saver, tasks=["one"])

    [question] = world.send(team, "go").questions
    result = world.answer(team, {question.id: "yes"})

    mid, _ = threads(team)
    assert question.path == "head/mid/ask_back"
    assert result.text == "over"
    assert told(mid.messages) == ["one: yes"]


def test_foreign_graph_asks_twice_and_continues_in_another_session(
    world: World, tmp_path: Path
) -> None:
    database = tmp_path / "trip.sqlite"
    with session(recaller(asks=True), "recaller", database) as team:
        [first] = world.send(team, "go").questions
    seen = [(first.value, first.path)]
    with session(recaller(asks=True), "recaller", database) as team:
        for answer in ("a", "b", "c"):
            [first] = world.answer(team, {first.id: answer}).questions
            seen.append((first.value, first.path))
        result = world.answer(team, {first.id: "d"})
        mid, thread = threads(team)

    path = "head/mid/recaller"
    assert seen == [("One?", path), ("Two?", path), ("One?", path), ("Two?", path)]
    assert result.text == "over"
    assert told(mid.messages) == ["one a b", "one + two c d"]
    assert [str(each.text) for each in thread.messages] == [
        "one",
        "one a b",
        "two",
        "one + two c d",
    ]


def test_foreign_graph_with_several_asking_nodes_has_all_in_the_inbox(
    world: World, saver: SqliteCheckpointer
) -> None:
    def asking(question: str) -> Any:
        def node(state: MessagesState) -> dict[str, Any]:
            return {"messages": [AIMessage(str(interrupt(question)))]}

        return node

    def join(state: MessagesState) -> dict[str, Any]:
        both = " and ".join(str(each.text) for each in state["messages"][-2:])
        return {"messages": [AIMessage(both)]}

    builder = StateGraph(MessagesState)
    for name in ("left", "right"):
        builder.add_node(name, asking(f"{name}?"))
        builder.add_edge(START, name)
        builder.add_edge(name, "join")
    builder.add_node("join", join)
    team = session(builder.compile(name="pair"), "pair", saver, tasks=["one"])

    questions = world.send(team, "go").questions
    assert sorted(str(each.value) for each in questions) == ["left?", "right?"]
    by_value = {each.value: each.id for each in questions}
    [rest] = world.answer(team, {by_value["right?"]: "R"}).questions
    assert rest.id == by_value["left?"]
    world.answer(team, {rest.id: "L"})

    mid, _ = threads(team)
    assert told(mid.messages) == ["L and R"]


def test_a_compiled_tree_is_seen_like_its_agent(world: World, saver: SqliteCheckpointer) -> None:
    calls: Any = {"inner": [delegate("deep", "dig"), "dug"], "deep": ["deep enough"]}
    inner = Agent("inner", model=ScriptedModel(calls), subordinates=[Agent("deep")])
    team = session(inner.compile(InMemorySaver()), "inner", saver)

    world.send(team, "go")

    [mid] = team.trace().subordinates
    [inside] = mid.subordinates
    [deep] = inside.subordinates
    paths = [team.thread_store.get(each.thread_id).path for each in (inside, deep)]
    assert paths == ["head/mid/inner", "head/mid/inner/deep"]
    assert [request.status for request in inside.requests] == ["fulfilled", "fulfilled"]
    assert "deep" in team.graph.agent.draw().text


def test_a_piece_with_a_name_a_purpose_and_capabilities_is_routed_to_and_drawn(
    world: World, saver: SqliteCheckpointer
) -> None:
    can = {"currencies": Capability(0.9, examples=["change pounds into euros"])}
    money = subordinate(
        recaller(name="my kid"), name="money", description="Changes money", capabilities=can
    )
    mid = Agent("mid", subordinates=[money, shout])
    calls: Any = {"head": [delegate(None, "change pounds into euros"), "over"]}
    team = Session(Agent("head", model=ScriptedModel(calls), subordinates=[mid]), saver)

    world.send(team, "go")

    [relayed] = team.trace().subordinates
    [asked] = relayed.subordinates
    assert (asked.agent, asked.status) == ("money", "fulfilled")
    assert asked.requests[0].response is not None
    assert asked.requests[0].response.confidence == 0.9
    assert "money: Changes money" in team.graph.agent.draw().text


@pytest.mark.parametrize("own", [True, False])
def test_a_graph_that_keeps_its_own_history_or_none_is_refused_when_the_tree_is_made(
    own: bool,
) -> None:
    with raises_code("invalid_subordinate", match="inherits the tree's"):
        Agent("head", subordinates=[recaller(saver=own)])
