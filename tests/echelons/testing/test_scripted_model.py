"""The scripted model, as LangChain and LangGraph drive it."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel

from echelons.testing import Call, FakeClock, ManualClock, Reply, ScriptedModel, Step
from tests.error_codes import raises_code

HEAD: RunnableConfig = {
    "metadata": {"agent": "head", "agent_path": "head", "agent_thread_id": "t1"}
}


@tool
def search(city: str) -> str:
    """Look for places."""
    return city


def test_an_answer_comes_from_the_script_of_the_calling_agent() -> None:
    model = ScriptedModel({"head": ["from head"], "food": ["from food"]})
    assert model.invoke("x", HEAD).content == "from head"
    assert model.invoke("x", {"metadata": {"agent": "food"}}).content == "from food"


async def test_every_way_of_calling_knows_the_agent() -> None:
    model = ScriptedModel({"head": [Reply("one two", [Call("search")])]})
    assert model.invoke("x", HEAD).content == "one two"
    assert (await model.ainvoke("x", HEAD)).content == "one two"
    assert "".join(str(chunk.content) for chunk in model.stream("x", HEAD)) == "one two"
    parts = [str(chunk.content) async for chunk in model.astream("x", HEAD)]
    assert "".join(parts) == "one two"
    assert model.batch(["x"], HEAD)[0].content == "one two"
    assert [e async for e in model.astream_events("x", HEAD, version="v2")]
    assert list(model.stream_events("x", HEAD, version="v3"))
    assert [call.agent for call in model.calls] == ["head"] * 7
    assert [call.thread_id for call in model.finished_calls] == ["t1"] * 7


@pytest.mark.parametrize("mode", ["values", "messages"])
async def test_an_agent_in_a_graph_is_known_also_when_its_words_are_streamed(mode: Any) -> None:
    model = ScriptedModel({"head": ["hello there"]})

    def sync_node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"], HEAD)]}

    async def async_node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], HEAD)]}

    for node in (sync_node, async_node):
        builder = StateGraph(MessagesState)
        builder.add_node("reason", node)
        builder.add_edge(START, "reason")
        builder.add_edge("reason", END)
        graph = builder.compile()
        asked: Any = {"messages": ["hi"]}
        assert [part async for part in graph.astream(asked, stream_mode=mode)]
    assert [call.agent for call in model.calls] == ["head", "head"]


def test_an_exception_of_the_script_is_raised_and_the_call_has_not_finished() -> None:
    model = ScriptedModel([ConnectionError("down"), TimeoutError], strict=False)
    with pytest.raises(ConnectionError, match="down"):
        model.invoke("x")
    with pytest.raises(TimeoutError):
        model.invoke([HumanMessage("x"), AIMessage("a")])
    assert (len(model.calls), model.finished_calls) == (2, [])


def test_an_exception_that_is_raised_often_does_not_gather_its_traces() -> None:
    error = ConnectionError("down")
    model = ScriptedModel([error])
    depths = []
    for _ in range(3):
        with pytest.raises(ConnectionError) as caught:
            model.invoke("x")
        depths.append(len(caught.traceback))
    assert depths == [depths[0]] * 3


async def test_latency_is_waited_on_the_injected_clock_in_all_ways_of_calling() -> None:
    clock = FakeClock()
    model = ScriptedModel([Reply("a b c", latency=8)], clock=clock)
    model.invoke("x")
    await model.ainvoke("x")
    assert clock.now() == 16
    assert len(list(model.stream("x"))) == 4
    assert [chunk async for chunk in model.astream("x")]
    assert clock.now() == 32


async def test_a_stream_spreads_its_latency_over_its_chunks() -> None:
    clock = ManualClock()
    model = ScriptedModel([Reply("a b c", latency=4)], clock=clock)
    seen: list[str] = []

    async def listen() -> None:
        async for chunk in model.astream("x"):
            seen.append(str(chunk.content))

    listener = asyncio.create_task(listen())
    for expected in ([], ["a "], ["a ", "b "], ["a ", "b ", "c"]):
        await asyncio.to_thread(clock.wait_for_sleepers, 1)
        assert seen == expected
        clock.advance(1)
    await listener
    assert "".join(seen) == "a b c"


async def test_a_cancelled_call_has_not_finished() -> None:
    clock = ManualClock()
    model = ScriptedModel([Reply("late", latency=5)], clock=clock)
    call = asyncio.create_task(model.ainvoke("x"))
    await asyncio.to_thread(clock.wait_for_sleepers, 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (len(model.calls), len(model.finished_calls)) == (1, 0)


def test_bound_tools_are_named_in_the_same_record() -> None:
    model = ScriptedModel([Call("search", {"city": "Rome"})])
    bound = model.bind_tools([search], tool_choice="any")
    assert bound.invoke("x").tool_calls[0]["args"] == {"city": "Rome"}
    assert model.bindings == [("search",)]
    assert [call.tools for call in model.calls] == [("search",)]


def test_structured_output_reads_the_scripted_call() -> None:
    class City(BaseModel):
        """A city."""

        name: str

    model = ScriptedModel([Call("City", {"name": "Rome"})])
    assert model.with_structured_output(City).invoke("x") == City(name="Rome")


def test_a_copy_is_the_same_model_so_that_agents_share_its_record() -> None:
    model = ScriptedModel(["a"])
    for same in (copy.copy(model), copy.deepcopy({"model": model})["model"]):
        assert same is model


def test_calls_from_many_threads_are_all_recorded_once() -> None:
    model = ScriptedModel(["a"])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: model.invoke(str(n)), range(200)))
    assert sorted(call.number for call in model.calls) == list(range(200))
    assert {str(call.messages[0].content) for call in model.calls} == set(map(str, range(200)))
    assert model.repeated_calls == []


def test_a_question_that_was_answered_and_is_asked_again_is_found() -> None:
    model = ScriptedModel(["a"])
    model.invoke("x", HEAD)
    model.invoke("y", HEAD)
    assert model.repeated_calls == []
    model.invoke("x", HEAD)
    assert [call.number for call in model.repeated_calls] == [2]


def test_the_same_conversation_gets_the_same_answer_in_a_new_process() -> None:
    script: list[Step] = [Call("search", {"city": "Rome"}), "done"]
    first = ScriptedModel(script).invoke("x")
    asked: list[BaseMessage] = [HumanMessage("x"), first]
    assert ScriptedModel(script, strict=False).invoke(asked).content == "done"


def test_call_ids_differ_between_turns_unless_they_shall_repeat() -> None:
    def ids(model: ScriptedModel) -> list[str | None]:
        later = [HumanMessage("x"), AIMessage("a"), HumanMessage("y")]
        return [model.invoke(asked).tool_calls[0]["id"] for asked in ("x", later)]

    assert ids(ScriptedModel([Call("search")])) == ["call_1_0", "call_3_0"]
    assert ids(ScriptedModel([Call("search")], repeat_ids=True)) == ["call_0_0", "call_0_0"]


def test_a_whole_message_as_a_step_is_not_changed_by_its_use() -> None:
    message = AIMessage("a", additional_kwargs={"k": [1]})
    model = ScriptedModel([message])
    model.invoke("x").additional_kwargs["k"].append(2)
    assert model.invoke("x").additional_kwargs == {"k": [1]}
    assert message.id is None


def test_a_function_computes_its_step_from_the_conversation() -> None:
    def echo(messages: Sequence[BaseMessage]) -> str:
        return str(messages[-1].content).upper()

    assert ScriptedModel({"head": echo}).invoke("loud", HEAD).content == "LOUD"


async def test_an_async_function_may_wait_for_the_test() -> None:
    gate = asyncio.Event()

    async def held(messages: Sequence[BaseMessage]) -> str:
        await gate.wait()
        return "opened"

    model = ScriptedModel(held)
    call = asyncio.create_task(model.ainvoke("x"))
    while not model.calls:
        await asyncio.sleep(0)
    assert not call.done()
    gate.set()
    assert (await call).content == "opened"


def test_an_async_function_in_a_sync_call_is_refused() -> None:
    async def held(messages: Sequence[BaseMessage]) -> str:
        return "never"

    with raises_code("invalid_script", match="async function in a sync call"):
        ScriptedModel(held).invoke("x")


def test_a_function_that_returns_no_step_is_refused() -> None:
    wrong: Any = lambda messages: 42  # noqa: E731
    with raises_code("invalid_script", match="the step 42"):
        ScriptedModel(wrong).invoke("x")


def test_a_stream_carries_the_calls_and_ends_with_the_usage() -> None:
    model = ScriptedModel([Reply("a b", [Call("search", {"city": "Rome"})], usage=(3, 4))])
    total = AIMessageChunk(content="")
    for chunk in model.stream("x"):
        total += chunk
    assert total.content == "a b"
    assert total.tool_calls[0]["args"] == {"city": "Rome"}
    assert total.usage_metadata == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


def test_a_stream_that_is_left_early_has_not_finished() -> None:
    model = ScriptedModel(["a b c"])
    stream = model.stream("x")
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert (len(model.calls), len(model.finished_calls)) == (1, 0)
