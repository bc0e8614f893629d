"""Delegations of one turn run side by side, each for itself, and all are heard."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from echelons import Agent, DelegationResponse, Status, ThreadStore
from echelons.delegation.questions import build_question_id
from echelons.identity.lineage import THREADS_KEY
from echelons.testing import Call, ScriptedModel, delegate

CONFIG: Any = {"configurable": {"thread_id": "t"}}
TASK: Any = {"messages": [("user", "plan")]}


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


def responses(result: Any) -> list[DelegationResponse]:
    """Return the responses that a root has heard, in order."""
    answers = [each for each in result["messages"] if isinstance(each, ToolMessage)]
    return [DelegationResponse.load(each.artifact) for each in answers]


def team(scripts: dict[str, Any], **subordinates: Any) -> tuple[Any, ScriptedModel]:
    """Return a compiled superior of some subordinates, each with options, and its model."""
    model = ScriptedModel(scripts)
    below = [Agent(name, **own) for name, own in subordinates.items()]
    return Agent("head", model=model, subordinates=below).compile(":memory:"), model


def both(first: str, second: str) -> list[Call]:
    return [delegate(first, "one"), delegate(second, "two")]


def begin_and_go_on(task: str, *tasks: str) -> Callable[[list[BaseMessage]], Any]:
    """Return a script that begins a conversation with `a`, and sends it several tasks at once."""

    def script(messages: list[BaseMessage]) -> Any:
        replies = [each for each in messages if isinstance(each, AIMessage)]
        if not replies:
            return delegate("a", task)
        [thread] = replies[0].response_metadata[THREADS_KEY].values()
        named = {"answers": build_question_id(thread)}
        calls = [Call("call_subordinate", {"message": each, **named}) for each in tasks]
        return calls if len(replies) == 1 else "end"

    return script


def test_two_subordinates_work_at_the_same_time() -> None:
    together = threading.Barrier(2, timeout=120)

    def wait(_: Any) -> str:
        together.wait()
        return "done"

    graph, _ = team({"head": [both("a", "b"), "end"], "a": wait, "b": wait}, a={}, b={})

    assert [each.status for each in responses(graph.invoke(TASK, CONFIG))] == ["fulfilled"] * 2


def test_answers_stand_in_the_order_of_the_calls() -> None:
    graph, _ = team({"head": [both("b", "a"), "end"], "a": ["A"], "b": ["B"]}, a={}, b={})

    heard = responses(graph.invoke(TASK, CONFIG))

    assert [(each.agent, each.result) for each in heard] == [("b", "B"), ("a", "A")]


def test_one_that_fails_takes_nothing_from_the_other() -> None:
    scripts = {"head": [both("a", "b"), "end"], "a": [ConnectionError("no line")], "b": ["B"]}
    graph, _ = team(scripts, a={}, b={})

    result = graph.invoke(TASK, CONFIG)

    assert [each.status for each in responses(result)] == ["unable", "fulfilled"]
    assert result["messages"][-1].text == "end"


def test_one_that_has_ended_is_not_run_again_for_the_question_of_another() -> None:
    scripts = {
        "head": [both("a", "b"), "end"],
        "a": [Call("ask", {"question": "Sure?"}), "thanks"],
        "b": ["B"],
    }
    graph, model = team(scripts, a={"tools": [ask]}, b={})
    graph.invoke(TASK, CONFIG)

    result = graph.invoke(Command(resume="yes"), CONFIG)

    assert [each.result for each in responses(result)] == ["thanks", "B"]
    assert sorted(call.agent or "" for call in model.calls) == ["a", "a", "b", "head", "head"]
    assert model.repeated_calls == []


def test_two_questions_are_asked_at_once_and_answered_one_by_one() -> None:
    asking = [Call("ask", {"question": "Sure?"}), "thanks"]
    scripts = {"head": [both("a", "b"), "end"], "a": asking, "b": asking}
    graph, model = team(scripts, a={"tools": [ask]}, b={"tools": [ask]})
    first, second = graph.invoke(TASK, CONFIG)["__interrupt__"]

    [left] = graph.invoke(Command(resume={second.id: "yes"}), CONFIG)["__interrupt__"]
    result = graph.invoke(Command(resume={left.id: "no"}), CONFIG)

    assert left.id == first.id
    assert [each.result for each in responses(result)] == ["thanks", "thanks"]
    heard = [m.text for call in model.calls for m in call.messages if m.type == "tool"]
    assert {"they said yes", "they said no"} <= set(heard)
    assert model.repeated_calls == []


def test_calls_of_one_thread_are_worked_off_in_order() -> None:
    scripts = {
        "head": begin_and_go_on("one", "two", "three"),
        "a": lambda messages: " ".join(m.text for m in messages if m.type == "human"),
    }
    graph, _ = team(scripts, a={})

    heard = responses(graph.invoke(TASK, CONFIG))

    assert [each.result for each in heard] == ["one", "one two", "one two three"]


def test_a_queue_goes_on_after_a_question_of_its_first() -> None:
    scripts = {
        "head": begin_and_go_on("none", "one", "two"),
        "a": lambda messages: (
            Call("ask", {"question": "Sure?"}) if messages[-1].text == "one" else "done"
        ),
    }
    graph, model = team(scripts, a={"tools": [ask]})
    graph.invoke(TASK, CONFIG)

    result = graph.invoke(Command(resume="yes"), CONFIG)

    assert [each.result for each in responses(result)] == ["done", "done", "done"]
    assert model.repeated_calls == []


def test_called_agent_has_the_thread_that_the_call_names() -> None:
    scripts = {"head": [both("a", "b"), "end"], "a": ["A"], "b": ["B"]}
    graph, _ = team(scripts, a={}, b={})
    graph.invoke(TASK, CONFIG)
    store = ThreadStore(graph.checkpointer)

    threads = [store.get(each) for each in store.subordinates("t")]

    assert [each.agent for each in threads] == ["a", "b"]
    assert [[m.text for m in each.messages] for each in threads] == [["one", "A"], ["two", "B"]]


@pytest.mark.parametrize("saver", [None, ":memory:"])
async def test_both_worlds_hear_the_same(saver: str | None) -> None:
    model = ScriptedModel({"head": [both("a", "b"), "end"], "a": ["A"], "b": ["B"]})
    head = Agent("head", model=model, subordinates=[Agent("a"), Agent("b")])

    here = responses(head.compile(saver).invoke(TASK, CONFIG))
    there = responses(await head.compile(saver).ainvoke(TASK, CONFIG))

    assert [(each.agent, each.result, each.status) for each in here] == [
        ("a", "A", Status.FULFILLED),
        ("b", "B", Status.FULFILLED),
    ]
    assert [(e.agent, e.result) for e in here] == [(e.agent, e.result) for e in there]
