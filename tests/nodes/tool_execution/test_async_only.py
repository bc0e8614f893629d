"""What has no sync form is found, however it is wrapped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

import pytest
from langchain_core.runnables import (
    RunnableBranch,
    RunnableGenerator,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
)
from langchain_core.tools import BaseTool, StructuredTool, Tool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from echelons import Agent
from echelons.nodes.tool_execution.async_only import find_async_only, is_async_only
from echelons.testing import ScriptedModel


def look(place: str) -> str:
    """Look around."""
    return place


async def alook(place: str) -> str:
    """Look around."""
    return place


@wraps(alook)
def logged(place: str) -> Any:
    return alook(place)


class Refusing(BaseTool):
    """A tool as LangChain's documentation writes one that is only async."""

    name: str = "refusing"
    description: str = "Looks."

    def _run(self, place: str) -> str:
        raise NotImplementedError("use ainvoke")

    async def _arun(self, place: str) -> str:
        return place


class Both(Refusing):
    """A tool with both forms."""

    def _run(self, place: str) -> str:
        return place


def words(given: Iterator[str]) -> Iterator[str]:
    yield from given


async def awords(given: AsyncIterator[str]) -> AsyncIterator[str]:
    async for each in given:
        yield each


def graph(node: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile()


async def anode(state: MessagesState) -> dict[str, Any]:
    return {}


def node(state: MessagesState) -> dict[str, Any]:
    return {}


async def aget(name: str) -> Any:
    return name


SYNC = RunnableLambda(look)
ASYNC: Any = RunnableLambda(aget)
CONDITION: Any = RunnableLambda(look)
DEEP = Agent(
    "head",
    subordinates=[Agent("middle", subordinates=[Agent("leaf", tools=[alook], model="offline")])],
)

ONLY_ASYNC: list[Callable[[], Any]] = [
    lambda: alook,
    lambda: logged,
    lambda: tool(alook),
    lambda: StructuredTool.from_function(coroutine=alook, name="look", description="Looks."),
    lambda: Tool("look", None, "Looks.", coroutine=alook),
    Refusing,
    lambda: ASYNC,
    lambda: SYNC | ASYNC,
    lambda: RunnableParallel(a=SYNC, b=SYNC | ASYNC),
    lambda: RunnableBranch((CONDITION, ASYNC), SYNC),
    lambda: SYNC.with_fallbacks([ASYNC]),
    lambda: ASYNC.with_config(tags=["x"]),
    ASYNC.with_retry,
    lambda: RunnablePassthrough.assign(a=ASYNC),
    lambda: RunnableGenerator(awords),
    lambda: graph(anode),
    lambda: graph(ASYNC),
    lambda: graph(graph(anode)),
    lambda: graph(ToolNode([look, alook])),
    lambda: graph(DEEP.compile()),
]
WITH_SYNC: list[Callable[[], Any]] = [
    lambda: look,
    lambda: tool(look),
    lambda: StructuredTool.from_function(look, coroutine=alook),
    lambda: Tool("look", look, "Looks.", coroutine=alook),
    Both,
    lambda: SYNC,
    lambda: RunnableLambda(look, afunc=alook),
    lambda: SYNC | RunnablePassthrough(),
    lambda: RunnableGenerator(words),
    lambda: RunnableGenerator(words, atransform=awords),
    lambda: ScriptedModel([]),
    lambda: graph(node),
    lambda: graph(ToolNode([look])),
    lambda: graph(Agent("head", tools=[look]).compile()),
]


@pytest.mark.parametrize("make", ONLY_ASYNC)
def test_what_is_only_async_is_found(make: Callable[[], Any]) -> None:
    assert is_async_only(make())


@pytest.mark.parametrize("make", WITH_SYNC)
def test_what_has_a_sync_form_is_not(make: Callable[[], Any]) -> None:
    assert not is_async_only(make())


def test_they_are_named_with_their_place_in_the_tree() -> None:
    assert find_async_only(DEEP) == ["the tool 'alook' of head/middle/leaf"]
    compiled = DEEP.compile()
    assert find_async_only(Agent("top", subordinates=[compiled, alook])) == [
        "the tool 'alook' of top/head/middle/leaf",
        "top/alook",
    ]
    assert find_async_only(Agent("top", tools=[look])) == []
