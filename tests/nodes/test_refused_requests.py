"""A request that no subordinate may take is answered, so that no call stays open."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from echelons import Agent, DelegationResponse, Status
from echelons.identity.lineage import REFUSED_KEY
from echelons.nodes.planning.repeated_calls import REFUSED
from echelons.testing import ScriptedModel, Step, delegate


def responses(messages: list[Any]) -> list[DelegationResponse]:
    answers = [each for each in messages if isinstance(each, ToolMessage)]
    return [DelegationResponse.load(each.artifact) for each in answers]


def test_going_on_without_a_saver_is_answered_with_the_way_out() -> None:
    steps: list[Step] = [delegate("eat", "one"), delegate("eat", "two"), "end"]
    model = ScriptedModel({"head": steps, "eat": ["pizza"]})
    graph = Agent("head", model=model, subordinates=[Agent("eat")]).compile()

    messages = graph.invoke({"messages": [("user", "plan")]})["messages"]

    first, second = responses(messages)
    assert (first.status, first.result) == (Status.FULFILLED, "pizza")
    assert (second.status, second.agent) == (Status.UNABLE, "eat")
    assert second.reason.startswith("no_checkpointer")
    assert "reset=true" in second.reason
    assert messages[-1].text == "end"
    assert [call.agent for call in model.calls] == ["head", "eat", "head", "head"]


def test_only_the_answer_to_a_refused_call_is_marked_as_refused() -> None:
    steps: list[Step] = [delegate("eat", "one"), delegate("eat", "two"), "end"]
    model = ScriptedModel({"head": steps, "eat": ["pizza"]})
    graph = Agent("head", model=model, subordinates=[Agent("eat")]).compile()

    messages = graph.invoke({"messages": [("user", "plan")]})["messages"]

    answers = [each for each in messages if isinstance(each, ToolMessage)]
    marks = [each.response_metadata.get(REFUSED_KEY) for each in answers]
    assert marks == [None, REFUSED]


async def test_it_is_the_same_in_an_event_loop() -> None:
    steps: list[Step] = [delegate("eat", "one"), delegate("eat", "two"), "end"]
    model = ScriptedModel({"head": steps, "eat": ["pizza"]})
    graph = Agent("head", model=model, subordinates=[Agent("eat")]).compile()

    result = await graph.ainvoke({"messages": [("user", "plan")]})

    assert [each.status for each in responses(result["messages"])] == ["fulfilled", "unable"]


def test_a_reset_works_without_a_saver() -> None:
    steps: list[Step] = [delegate("eat", "one"), delegate("eat", "two", reset=True), "end"]
    model = ScriptedModel({"head": steps, "eat": ["pizza"]})
    graph = Agent("head", model=model, subordinates=[Agent("eat")]).compile()

    messages = graph.invoke({"messages": [("user", "plan")]})["messages"]

    assert [each.status for each in responses(messages)] == ["fulfilled", "fulfilled"]


def test_call_written_into_the_state_for_no_agent_is_refused() -> None:
    model = ScriptedModel(lambda _: "end")
    graph = Agent("head", model=model, subordinates=[Agent("eat")]).compile(":memory:")
    config: Any = {"configurable": {"thread_id": "1"}}
    call: Any = {"name": "call_subordinate", "args": {"message": "x", "subordinate": "fly"}}
    written = AIMessage("", id="m", tool_calls=[{**call, "id": "7", "type": "tool_call"}])
    graph.update_state(config, {"messages": [("user", "plan"), written]}, as_node="reason")

    messages = graph.invoke(None, config)["messages"]

    [response] = responses(messages)
    assert response.status is Status.UNABLE
    assert response.reason.startswith("unknown_subordinate")
    assert "'fly'" in response.reason
    assert messages[-1].text == "end"
