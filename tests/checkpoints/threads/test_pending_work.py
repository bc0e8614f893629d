"""What a stored run waits for is found without its graph: questions, and agents with work left."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from echelons import Agent, Question, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.queries import OneCheckpoint, arun_plan, run_plan
from echelons.checkpoints.threads.answer_outbox import read_open_questions
from echelons.checkpoints.threads.pending_work import (
    OpenAgent,
    find_unfinished_agents,
    is_finished,
)
from echelons.checkpoints.threads.thread_status import read_thread_status
from echelons.nodes.subordinate import MAX_NODES
from echelons.testing import Call, ScriptedModel, delegate

TASK: Any = {"messages": [("user", "plan")]}
CONFIG: Any = {"configurable": {"thread_id": "t"}}
ROOT = OneCheckpoint("t")


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


@tool
def ask_twice(first: str, then: str) -> str:
    """Ask a human two things."""
    return f"they said {interrupt(first)} and {interrupt(then)}"


def asks(question: str) -> Call:
    return Call("ask", {"question": question})


def sure(task: str) -> str:
    """Ask whether it is sure."""
    return str(interrupt("sure?"))


def team(**scripts: Any) -> Agent:
    """Return a tree of three levels in which ``eat`` and ``walk`` stand below ``days``."""
    model = ScriptedModel(
        {
            "head": [[delegate("days", "go"), delegate("sure", "go")], "end"],
            "days": [[delegate("eat", "go"), delegate("walk", "go")], "done"],
            "eat": [asks("where?"), "thanks"],
            "walk": ["the forum"],
            **scripts,
        }
    )
    below = [Agent(name, tools=[ask, ask_twice]) for name in ("eat", "walk")]
    days = Agent("days", subordinates=below)
    return Agent("head", model=model, tools=[ask], subordinates=[days, sure])


@pytest.fixture(params=["ours", "memory"])
def saver(request: pytest.FixtureRequest) -> Any:
    opened: Any = SqliteCheckpointer(":memory:") if request.param == "ours" else InMemorySaver()
    yield opened
    if request.param == "ours":
        opened.close()


def asked(saver: Any) -> list[Question]:
    return run_plan(saver, read_open_questions("t"))


def asking(saver: Any) -> list[tuple[str, Any]]:
    return [(each.path, each.value) for each in asked(saver)]


def work_left(saver: Any) -> list[OpenAgent]:
    """Return the agents under the root that have something to do."""
    return [
        each
        for each in run_plan(saver, find_unfinished_agents(ROOT))
        if each.nodes or each.subordinates
    ]


# Questions


async def test_question_is_listed_with_asker_and_time(saver: Any) -> None:
    team().compile(saver).invoke(TASK, CONFIG)

    first, second = asked(saver)

    assert (first.path, first.value) == ("head/days/eat", "where?")
    assert (second.path, second.value) == ("head/sure", "sure?")
    store = ThreadStore(saver)
    assert [store.get(each.thread_id).agent for each in (first, second)] == ["eat", "sure"]
    assert first.asked_at.endswith("+00:00")
    assert await arun_plan(saver, read_open_questions("t")) == [first, second]


def test_the_ids_are_those_that_langgraph_takes_answers_under(saver: Any) -> None:
    graph = team().compile(saver)
    interrupts = graph.invoke(TASK, CONFIG)["__interrupt__"]

    assert {each.id for each in asked(saver)} == {each.id for each in interrupts}
    graph.invoke(Command(resume={each.id: "yes" for each in asked(saver)}), CONFIG)
    assert asked(saver) == []


def test_a_question_is_found_though_an_agent_in_the_same_step_has_not_ended(saver: Any) -> None:
    def leave(messages: Any) -> Any:
        raise GraphDrained("left")

    with pytest.raises(GraphDrained):
        team(walk=leave).compile(saver).invoke(TASK, CONFIG)

    assert asking(saver) == [("head/days/eat", "where?"), ("head/sure", "sure?")]
    assert run_plan(saver, read_thread_status("t")).pending_work.can_proceed
    answers = {each.id: "yes" for each in asked(saver)}
    end = team().compile(saver).invoke(Command(resume=answers), CONFIG)
    assert end["messages"][-1].text == "end"
    assert asked(saver) == []


@pytest.mark.parametrize("place", [0, 1])
def test_an_answered_question_is_asked_no_more_and_the_other_is(saver: Any, place: int) -> None:
    graph = team().compile(saver)
    graph.invoke(TASK, CONFIG)
    both = asked(saver)

    graph.invoke(Command(resume={both[place].id: "yes"}), CONFIG)

    assert [(each.id, each.value) for each in asked(saver)] == [
        (both[1 - place].id, both[1 - place].value)
    ]


def test_a_second_question_of_one_tool_takes_the_place_of_the_first(saver: Any) -> None:
    twice = Call("ask_twice", {"first": "one?", "then": "two?"})
    graph = team(head=[delegate("days", "go"), "end"], eat=[twice, "thanks"]).compile(saver)
    graph.invoke(TASK, CONFIG)
    [first] = asked(saver)

    graph.invoke(Command(resume={first.id: "yes"}), CONFIG)

    [second] = asked(saver)
    assert (first.value, second.value) == ("one?", "two?")
    assert first.id != second.id
    graph.invoke(Command(resume={second.id: "no"}), CONFIG)
    assert asked(saver) == []


def test_several_questions_of_one_agent_are_all_asked(saver: Any) -> None:
    team(head=[[asks("one?"), asks("two?")], "end"]).compile(saver).invoke(TASK, CONFIG)

    assert asking(saver) == [("head", "one?"), ("head", "two?")]


def test_a_question_of_one_in_a_crowd_is_found(saver: Any) -> None:
    crowd = [Agent(f"a{n}", tools=[ask]) for n in range(MAX_NODES + 1)]
    model = ScriptedModel({"head": [delegate("a7", "x"), "end"], "a7": [asks("sure?"), "ok"]})
    Agent("head", model=model, subordinates=crowd).compile(saver).invoke(TASK, CONFIG)

    assert asking(saver) == [("head/a7", "sure?")]


def test_question_inside_foreign_graph_is_asked_by_its_member(saver: Any) -> None:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("only", lambda state: {"messages": [("ai", interrupt("sure?"))]})
    builder.add_edge(START, "only")
    builder.add_edge("only", END)
    model = ScriptedModel([delegate("foreign", "x"), "end"])
    head = Agent("head", model=model, subordinates=[builder.compile(name="foreign")])

    head.compile(saver).invoke(TASK, CONFIG)

    assert asking(saver) == [("head/foreign", "sure?")]


@pytest.mark.parametrize("value", [None, {"choices": ["a", "b"]}, ["x"], 5, "", True])
def test_a_question_may_be_any_value(saver: Any, value: Any) -> None:
    def choose(task: str) -> str:
        return str(interrupt(value))

    model = ScriptedModel([delegate("choose", "x"), "end"])
    Agent("head", model=model, subordinates=[choose]).compile(saver).invoke(TASK, CONFIG)

    assert asking(saver) == [("head/choose", value)]


@pytest.mark.parametrize("ran", [False, True])
def test_a_thread_that_is_finished_or_never_ran_asks_nothing(saver: Any, ran: bool) -> None:
    if ran:
        team(head=["end"]).compile(saver).invoke(TASK, CONFIG)

    assert asked(saver) == []
    assert run_plan(saver, is_finished(ROOT))
    assert work_left(saver) == []


# Work left


def test_a_run_that_only_waits_for_answers_does_not_move(saver: Any) -> None:
    team().compile(saver).invoke(TASK, CONFIG)

    found = run_plan(saver, read_thread_status("t")).pending_work

    assert not found.can_proceed
    assert len(found.questions) == 2
    assert not run_plan(saver, is_finished(ROOT))


def test_a_run_that_failed_beside_a_question_has_work_left(saver: Any) -> None:
    class Broken(BaseException):
        """Ends a process."""

    def fail(_: Any) -> str:
        raise Broken

    graph = team(walk=fail).compile(saver)
    with pytest.raises(Broken):
        graph.invoke(TASK, CONFIG)

    found = run_plan(saver, read_thread_status("t")).pending_work

    assert found.can_proceed
    assert not run_plan(saver, is_finished(ROOT))


def test_agents_with_work_left_are_listed_superiors_first(saver: Any) -> None:
    team().compile(saver).invoke(TASK, CONFIG)

    found = {"/".join(each.path): each for each in run_plan(saver, find_unfinished_agents(ROOT))}

    assert "walk" not in "".join(found)
    assert found["head/days/eat"].nodes == ("act",)
    assert found["head/sure"].nodes == ("run",)
    waits = [
        each
        for each in run_plan(saver, find_unfinished_agents(ROOT))
        if each.path == ("head", "days")
    ]
    assert {name for each in waits for name in each.subordinates} == {"eat"}
    lengths = [len(each.path) for each in run_plan(saver, find_unfinished_agents(ROOT))]
    assert lengths[0] == 1


def test_finished_turn_leaves_no_agent_with_work(saver: Any) -> None:
    graph = team().compile(saver)
    graph.invoke(TASK, CONFIG)
    graph.invoke(Command(resume={each.id: "yes" for each in asked(saver)}), CONFIG)

    assert work_left(saver) == []
    assert run_plan(saver, is_finished(ROOT))
