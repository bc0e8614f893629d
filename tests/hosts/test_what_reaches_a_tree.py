"""What a host passes on to a tree, and what it can see of it, beside questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.prebuilt import ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command

from echelons import Agent, ThreadStore
from echelons.errors import MissingAgents
from echelons.testing import Call, ScriptedModel, delegate
from tests.hosts import graphs
from tests.hosts.checks import check_wrong_arguments
from tests.hosts.graphs import agent_with_tool, graph_with_node, graph_with_tool_node
from tests.hosts.process import THREAD
from tests.hosts.trees import LEVELS, Query, build_tree

GO: Any = {"messages": [("user", "Rome")]}


def look_up(city: str, runtime: ToolRuntime[str, Any]) -> str:
    """Look a city up."""
    get_stream_writer()({"at": city})
    assert runtime.store is not None
    return f"{city} for {runtime.context}, {runtime.store.get(('notes',), 'note')}"


def build_host() -> Any:
    """Return an agent that calls a tree whose third level has a tool."""

    def pass_on(below: Any) -> Any:
        def reply(messages: Sequence[BaseMessage]) -> Any:
            last = messages[-1]
            return last.text if last.type == "tool" else below(last.text)

        return reply

    scripts: Any = {
        "travel": pass_on(lambda task: delegate("planner", task)),
        "planner": pass_on(lambda task: delegate("clerk", task)),
        "clerk": pass_on(lambda task: Call("look_up", {"city": task})),
    }
    planner = Agent("planner", subordinates=[Agent("clerk", tools=[look_up])])
    tree = Agent("travel", "Plans", model=ScriptedModel(scripts), subordinates=[planner])
    # LangChain's annotation takes no plain type.
    context: Any = str
    return create_agent(
        ScriptedModel([Call("travel", {"task": "Rome"}), "Have a nice trip."]),
        [tree.as_tool()],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(),
        context_schema=context,
    )


def test_the_context_and_the_store_of_a_host_reach_the_tools_of_the_tree() -> None:
    state = build_host().invoke(GO, THREAD, context="Ann")

    assert state["messages"][-2].text == "Rome for Ann, None"


@pytest.mark.parametrize(
    ("subgraphs", "paths", "written"),
    [(True, {"", *LEVELS}, [{"at": "Rome"}]), (False, {""}, [])],
    ids=["with subgraphs", "without"],
)
def test_the_stream_of_a_host_shows_the_levels_of_a_tool_only_with_its_subgraphs(
    subgraphs: bool, paths: set[str], written: list[Any]
) -> None:
    modes = ["messages", "custom"]
    parts = build_host().stream(
        GO, THREAD, stream_mode=modes, subgraphs=subgraphs, context="Ann", version="v2"
    )
    seen = [(part["type"], part["data"]) for part in parts]

    assert {part[1].get("agent_path", "") for mode, part in seen if mode == "messages"} == paths
    assert [part for mode, part in seen if mode == "custom"] == written


async def test_the_events_of_a_host_name_the_agents_of_the_tree() -> None:
    events = build_host().astream_events(GO, THREAD, version="v2", context="Ann")

    seen = {
        each["metadata"].get("agent_path", "")
        async for each in events
        if each["event"] == "on_chat_model_stream"
    }
    assert seen == {"", *LEVELS}


def test_the_trace_of_a_hosts_thread_is_that_of_the_tree() -> None:
    saver = InMemorySaver()
    graph_with_tool_node(saver).invoke(GO, THREAD)

    trace = ThreadStore(saver).trace("trip")

    [planner] = trace.subordinates
    [clerk] = planner.subordinates
    assert (trace.agent, planner.agent, clerk.agent) == ("travel", "planner", "clerk")


# A task of a plain ToolNode may run several trees, of which the inbox knows none.
@pytest.mark.parametrize(
    ("host", "path"),
    [
        (agent_with_tool, ("travel", "planner", "clerk")),
        (graph_with_node, ("travel", "planner", "clerk")),
        (graph_with_tool_node, ()),
    ],
)
def test_an_inbox_has_the_question_of_a_tree_in_a_host(host: Any, path: tuple[str, ...]) -> None:
    saver = InMemorySaver()
    asked = host(saver).invoke(GO, THREAD)["__interrupt__"]

    [root] = ThreadStore(saver).inbox()
    assert [each.id for each in root.questions] == [each.id for each in asked]
    assert [each.path.parts for each in root.questions] == [path]


UNHEARD = "nothing of this run is stored, so nobody can answer"


@pytest.mark.parametrize("host", [agent_with_tool, graph_with_tool_node, graph_with_node])
def test_asking_agent_in_host_without_saver_reads_that_no_answer_can_come(
    host: Any,
) -> None:
    state = host(None).invoke(GO)

    assert UNHEARD in state["messages"][-2].text
    assert state["messages"][-1].text == "Have a nice trip."


def test_a_tool_that_is_called_outside_of_a_graph_runs_but_cannot_ask() -> None:
    assert UNHEARD in build_tree().as_tool().invoke({"city": "Rome"})


def test_wrong_arguments_go_back_to_the_hosts_model() -> None:
    check_wrong_arguments(lambda model, tool: create_agent(model, [tool]))


def test_a_tree_that_is_a_node_takes_any_text_in_place_of_its_input() -> None:
    seen: list[Any] = []

    def prompt(state: Any) -> str:
        seen.append(state.get("payload"))
        return ""

    known = build_tree()
    model = ScriptedModel(['{"name": "Ibis"}'])
    tree = Agent("travel", model=model, contract=known.contract, prompt=prompt).compile()
    for text in ('{"city": "Rome"}', "Rome", '{"town": "Rome"}'):
        tree.invoke({"messages": [("user", text)]})

    assert seen == [Query(city="Rome"), Query(city="Rome"), None]


@pytest.mark.parametrize("build", [agent_with_tool, graph_with_tool_node, graph_with_node])
def test_a_host_whose_tree_has_lost_the_agent_that_asked_is_refused(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = InMemorySaver()
    build(saver).invoke(GO, THREAD)

    def build_smaller(*, takes_messages: bool = False) -> Agent:
        known = build_tree(takes_messages=takes_messages)
        return Agent("travel", "Plans", model=known.model, contract=known.contract)

    monkeypatch.setattr(graphs, "build_tree", build_smaller)
    with pytest.raises(MissingAgents):
        build(saver).invoke(Command(resume="yes"), THREAD)
