"""For any tree of runaways and any limits, no more is done than the limits say."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool

from echelons import Agent, Limits, effect
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.proof import sample

Shape = list[Any]
SHAPES: st.SearchStrategy[Shape] = st.recursive(
    st.just([]), lambda below: st.lists(below, max_size=3), max_leaves=8
)
LIMITS = st.builds(
    Limits,
    steps=st.integers(1, 120),
    calls=st.none() | st.integers(1, 60),
    width=st.none() | st.integers(1, 4),
    # Everybody makes the same calls for ever.
    max_repeats=st.none(),
)


def grown(shape: Shape, limits: Limits, done: dict[str, int]) -> Agent:
    """Return a tree of a shape in which everybody digs and hands work down, for ever."""

    @tool
    @effect(reads_only=True)
    def dig() -> str:
        """Dig."""
        done["tools"] += 1
        return "dug"

    def agent(name: str, below: Shape, own: Limits) -> Agent:
        members = [agent(f"{name}{n}", each, Limits()) for n, each in enumerate(below)]
        calls = [Call("dig"), *(delegate(each.name, "go", reset=True) for each in members)]

        def step(_: Any) -> Reply:
            done["calls"] += 1
            return Reply(calls=calls)

        model = ScriptedModel(step)
        return Agent(name, model=model, tools=[dig], subordinates=members, limits=own)

    return agent("a", shape, limits)


@settings(max_examples=sample(10, 200))
@given(SHAPES, LIMITS, st.booleans())
def test_no_tree_does_more_than_its_limits_say(shape: Shape, limits: Limits, waits: bool) -> None:
    done = {"tools": 0, "calls": 0}
    graph = grown(shape, limits, done).compile()
    task: Any = {"messages": [("user", "go")]}

    ended = asyncio.run(graph.ainvoke(task)) if waits else graph.invoke(task)

    assert done["calls"] <= (limits.calls or limits.steps)
    assert done["calls"] + done["tools"] <= limits.steps
    last = ended["messages"][-1]
    assert isinstance(last, AIMessage)
    assert last.response_metadata["halt"]["kind"] == "limit"
    calls = [call["id"] for each in ended["messages"] for call in getattr(each, "tool_calls", ())]
    answers = [each.tool_call_id for each in ended["messages"] if isinstance(each, ToolMessage)]
    assert sorted(map(str, calls)) == sorted(map(str, answers))
