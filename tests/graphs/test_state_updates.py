"""States are changed by hand, as Studio does it, at any level and in its agent's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import StateSnapshot, StateUpdate, interrupt

from echelons import Agent
from echelons.checkpoints.threads.store import ThreadStore
from echelons.identity.lineage import Identity
from echelons.testing import Call, ScriptedModel, delegate

CONFIG: RunnableConfig = {"configurable": {"thread_id": "trip"}}
TASK = {"messages": [("user", "Go.")]}


def ask(question: str) -> str:
    """Ask a human."""
    return f"a human said {interrupt(question)}"


def expedition(model: ScriptedModel | None = None) -> Agent:
    model = model or ScriptedModel(
        {
            "head": [delegate("camp", "look"), "done"],
            "camp": [delegate("scout", "go"), "seen"],
            "scout": [Call("ask", {"question": "north?"}), "scouted"],
        }
    )
    scout = Agent("scout", "Scouts", tools=[ask])
    camp = Agent("camp", "Camps", subordinates=[scout])
    return Agent("head", "Leads", model=model, subordinates=[camp])


def deepest(state: StateSnapshot) -> StateSnapshot:
    """Return the state of the innermost level that is at work."""
    while state.tasks and isinstance(state.tasks[0].state, StateSnapshot):
        state = state.tasks[0].state
    return state


def identity_at(saver: InMemorySaver, config: RunnableConfig) -> Identity | None:
    """Return whose checkpoint it is; which of a root's turns it belongs to is made up anew."""
    saved = saver.get_tuple(config)
    assert saved is not None
    identity = Identity.from_metadata(saved.metadata)
    return identity and replace(identity, turn="")


def said(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages]


def test_a_root_is_changed_in_its_own_name_and_goes_on() -> None:
    saver = InMemorySaver()
    graph = expedition().compile(saver)
    graph.invoke(TASK, CONFIG)

    changed = graph.update_state(CONFIG, {"messages": [("user", "Hurry.")]})

    assert identity_at(saver, changed) == Identity("head", ("head",), "trip", graph.fingerprint)
    assert said(ThreadStore(saver).get("trip").messages)[-1] == "Hurry."
    assert graph.invoke(None, CONFIG)["__interrupt__"]


def test_a_level_below_is_changed_in_the_name_of_its_agent() -> None:
    saver = InMemorySaver()
    graph = expedition().compile(saver)
    graph.invoke(TASK, CONFIG)
    scout = deepest(graph.get_state(CONFIG, subgraphs=True)).config
    before = identity_at(saver, scout)
    assert before is not None

    changed = graph.update_state(scout, {"messages": [("user", "Go south.")]}, as_node="act")

    assert before.path == ("head", "camp", "scout")
    assert identity_at(saver, changed) == before
    assert said(ThreadStore(saver).get(before.thread_id).messages)[-1] == "Go south."


async def test_the_same_happens_in_an_event_loop() -> None:
    saver = InMemorySaver()
    graph = expedition().compile(saver)
    await graph.ainvoke(TASK, CONFIG)
    scout = deepest(await graph.aget_state(CONFIG, subgraphs=True)).config

    changed = await graph.aupdate_state(scout, {"messages": [("user", "South.")]}, as_node="act")

    found = identity_at(saver, changed)
    assert found is not None
    assert found == identity_at(saver, scout)


def test_an_answer_written_by_hand_is_what_the_agents_above_hear() -> None:
    model = ScriptedModel(
        {
            "head": [delegate("camp", "look"), "done"],
            "camp": [delegate("scout", "go"), "seen"],
            "scout": [Call("ask", {"question": "north?"}), "scouted"],
        }
    )
    graph = expedition(model).compile(InMemorySaver())
    graph.invoke(TASK, CONFIG)
    scout = deepest(graph.get_state(CONFIG, subgraphs=True))
    [call] = scout.values["messages"][-1].tool_calls

    answer = {"role": "tool", "tool_call_id": call["id"], "content": "north, said the map"}
    graph.update_state(scout.config, {"messages": [answer]}, as_node="act")
    result = graph.invoke(None, CONFIG)

    assert said(result["messages"])[-1] == "done"
    assert "north, said the map" in said(
        next(each for each in reversed(model.calls) if each.agent == "scout").messages
    )


def test_every_one_of_several_changes_is_in_the_agents_name() -> None:
    saver = InMemorySaver()
    graph = expedition().compile(saver)
    graph.invoke(TASK, CONFIG)
    first, second = ({"messages": [("user", text)]} for text in ("One.", "Two."))

    changed = graph.bulk_update_state(
        CONFIG, [[StateUpdate(first, "reason")], [StateUpdate(second, "reason")]]
    )

    state = graph.get_state(changed)
    assert said(state.values["messages"])[-2:] == ["One.", "Two."]
    for config in (changed, state.parent_config):
        assert config is not None
        assert identity_at(saver, config) == Identity("head", ("head",), "trip", graph.fingerprint)


def test_a_copied_state_is_changed_in_one_go() -> None:
    graph = expedition().compile(InMemorySaver())
    graph.invoke(TASK, CONFIG)
    replies = graph.get_state(CONFIG).values["messages"][-1:]

    graph.update_state(CONFIG, [({"messages": replies}, "reason")], as_node="__copy__")

    assert graph.get_state(CONFIG).next == ("delegate",)
    assert graph.invoke(None, CONFIG)["__interrupt__"]


def test_a_thread_can_begin_with_a_change() -> None:
    saver = InMemorySaver()
    graph = expedition().compile(saver)

    changed = graph.update_state(CONFIG, TASK, as_node="__start__")

    assert identity_at(saver, changed) == Identity("head", ("head",), "trip", graph.fingerprint)
    assert graph.invoke(None, CONFIG)["__interrupt__"]


@pytest.mark.parametrize("metadata", [{"agent": "somebody"}, {"agent_path": "a/b"}])
def test_a_callers_metadata_does_not_change_whose_state_it_is(metadata: dict[str, str]) -> None:
    saver = InMemorySaver()
    graph = expedition().compile(saver)
    graph.invoke(TASK, CONFIG)

    changed = graph.update_state({**CONFIG, "metadata": metadata}, TASK)

    assert identity_at(saver, changed) == Identity("head", ("head",), "trip", graph.fingerprint)


def as_a_graph(agent: Agent) -> Any:
    return agent.compile()


def as_a_function(agent: Agent) -> Callable[[MessagesState], Any]:
    graph = agent.compile()

    def lead(state: MessagesState) -> Any:
        return graph.invoke({"messages": state["messages"]})

    return lead


@pytest.mark.parametrize("embedded", [as_a_graph, as_a_function])
def test_a_level_of_an_embedded_tree_is_changed_through_its_host(
    embedded: Callable[[Agent], Any],
) -> None:
    saver = InMemorySaver()
    host = (
        StateGraph(MessagesState)
        .add_node("lead", embedded(expedition()))
        .add_edge(START, "lead")
        .compile(saver)
    )
    host.invoke({"messages": [HumanMessage("Go.")]}, CONFIG)
    scout = deepest(host.get_state(CONFIG, subgraphs=True)).config
    before = identity_at(saver, scout)

    changed = host.update_state(scout, {"messages": [("user", "Go south.")]}, as_node="reason")

    assert before is not None
    assert before.agent == "scout"
    assert identity_at(saver, changed) == before
