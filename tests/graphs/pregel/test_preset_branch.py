"""A node that says itself where it goes on to goes where its edge would have sent it."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END

from echelons import Agent
from echelons.delegation.policy import Delegating
from echelons.graphs.edges import AfterReason
from echelons.graphs.level_graph import Builder
from echelons.graphs.pregel.preset_branch import add_foreseen_edges
from echelons.graphs.state import Level
from echelons.nodes.base_node import Decided
from echelons.testing import Call, Reply, ScriptedModel, delegate, report

TASK: Any = {"messages": [("user", "go")]}
CONFIG: Any = {"configurable": {"thread_id": "t"}}


@tool
def look_up(subject: str) -> str:
    """Look something up."""
    return f"found {subject}"


LOOK = Call("look_up", {"subject": "Rome"})
SCRIPTS: dict[str, dict[str, Any]] = {
    "an answer at once": {"root": ["done"]},
    "tools": {"root": [Reply(calls=[LOOK, LOOK]), LOOK, "done"]},
    "a delegation": {"root": [delegate("a", "do"), "done"], "a": [LOOK, "a's"]},
    "tools and delegations": {
        "root": [Reply(calls=[delegate("a", "do"), LOOK, delegate("b", "do")]), "done"],
        "a": ["a's"],
        "b": [report("partial", "half")],
    },
    "a thread that goes on": {
        "root": [delegate("a", "do"), delegate("a", "and"), delegate("a", "anew", reset=True), "."],
        "a": ["first", "second", "third"],
    },
    "two requests on one thread": {
        "root": [Reply(calls=[delegate("a", "one"), delegate("a", "two")]), "done"],
        "a": ["first", "second"],
    },
    "mistakes only": {"root": [Call("nothing"), delegate("nobody", "do"), "done"]},
    "a mistake beside a call": {"root": [Reply(calls=[Call("nothing"), LOOK]), "done"]},
}


def said(script: dict[str, Any]) -> list[Any]:
    """Return the messages of two turns of a tree that follows a script."""
    model = ScriptedModel({**script, "root": [*script["root"], *script["root"]]})
    below = [Agent(name, tools=[look_up]) for name in ("a", "b")]
    graph = Agent("root", model=model, tools=[look_up], subordinates=below).compile(InMemorySaver())
    graph.invoke(TASK, CONFIG)
    messages = graph.invoke(TASK, CONFIG)["messages"]
    return [(each.type, each.text, getattr(each, "tool_calls", None)) for each in messages]


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_foreseen_is_what_the_edge_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script = SCRIPTS[name]
    if "a" in script:
        script = {**script, "a": [*script["a"], *script["a"]]}
    if "b" in script:
        script = {**script, "b": [*script["b"], *script["b"]]}
    foreseen = said(script)
    # A plain dictionary: LangGraph asks the edge.
    monkeypatch.setattr("echelons.nodes.reason.Decided", lambda update, goes: update)
    assert said(script) == foreseen


def test_the_edge_is_not_asked_where_the_node_has_said_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the edge was asked")

    monkeypatch.setattr(AfterReason, "invoke", asked)
    assert said(SCRIPTS["tools"])[-1][1] == "done"


def test_the_edge_is_asked_when_a_person_has_written_what_the_agent_says() -> None:
    graph = Agent("root", model=ScriptedModel(["hello", "never", "seen"]), tools=[look_up]).compile(
        InMemorySaver()
    )
    graph.invoke(TASK, CONFIG)
    call = ToolCall(name="look_up", args={"subject": "Rome"}, id="call-1")
    graph.update_state(CONFIG, {"messages": [AIMessage("", tool_calls=[call])]}, as_node="reason")
    assert [each.name for each in graph.get_state(CONFIG).tasks] == ["act"]
    assert graph.invoke(None, CONFIG)["messages"][-2].text == "found Rome"


def test_a_node_goes_where_it_says_whatever_its_edge_says() -> None:
    builder: Builder = Builder(Level)
    builder.add_node("reason", lambda state: Decided({"request": "r"}, "act"))

    def act(state: Any) -> dict[str, str]:
        return {"request": f"{state['request']} and act"}

    builder.add_node("act", act)
    builder.add_edge("__start__", "reason")
    add_foreseen_edges(builder, "reason", AfterReason(1, Delegating()), [END, "reason", "act"])
    state = builder.compile().invoke({"messages": [("user", "go")]})
    assert state["request"] == "r and act"
