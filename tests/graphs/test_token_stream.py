"""A session asks LangGraph's stream for the tokens of models only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool

from echelons import Agent, RunEvent, Session
from echelons.runtime.run_end import RunRecord
from echelons.testing import Call, ScriptedModel

TASK: Any = {"messages": [("user", "go")]}


@tool
def look_up(subject: str) -> str:
    """Look something up."""
    return f"found {subject}"


def agent() -> Agent:
    return Agent(
        "head",
        model=ScriptedModel([Call("look_up", {"subject": "Rome"}), "It is Rome"]),
        tools=[look_up],
    )


def list_streamed(parts: list[Any]) -> list[BaseMessage]:
    return [payload[0] for _, mode, payload in parts if mode == "messages"]


@pytest.mark.parametrize("world", ["sync", "async"])
def test_whole_messages_are_not_streamed_to_a_session(
    world: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[Any] = []
    record = RunRecord.record_part

    def note(self: RunRecord, part: Any) -> Any:
        parts.append(part)
        return record(self, part)

    monkeypatch.setattr(RunRecord, "record_part", note)

    async def run() -> list[RunEvent]:
        async with Session(agent(), ":memory:") as session:
            return [each async for each in await session.asend("go")]

    if world == "async":
        events = asyncio.run(run())
    else:
        with Session(agent(), ":memory:") as session:
            events = [*session.send("go")]

    assert [str(each.kind) for each in events if each.content == "It is Rome"] == ["message"]
    tokens = "".join(each.content for each in events if str(each.kind) == "token")
    assert tokens == "It is Rome"
    assert {type(each) for each in list_streamed(parts)} == {AIMessageChunk}


def test_a_caller_of_a_compiled_graph_is_streamed_whole_messages() -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    graph = agent().compile(":memory:")
    streamed = [*graph.stream(TASK, config, stream_mode=["messages"], subgraphs=True)]

    assert "found Rome" in [each.text for each in list_streamed(streamed)]
