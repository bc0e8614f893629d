"""The same trees as somebody writes them by hand with LangGraph, after its documentation.

A level is a ``StateGraph`` over ``add_messages``; a subordinate is a compiled graph that a
node of its superior invokes; the saver is LangGraph's own. The asynchronous tree has
``async def`` nodes; edges are plain functions in both, as ``tools_condition`` is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Send
from typing_extensions import TypedDict

from benchmarks.trees import Role

Builder = StateGraph[Any, Any, Any, Any]
Synchronous = Literal["NORMAL", "FULL"]


class State(TypedDict):
    """The state of every level."""

    messages: Annotated[list[AnyMessage], add_messages]


class Sent(TypedDict):
    """One call of a subordinate."""

    call: dict[str, Any]


@tool
def call_subordinate(message: str, subordinate: str) -> str:
    """Give a task to a subordinate and get its answer."""
    raise NotImplementedError("the node `delegate` runs the call")


def handwritten(role: Role, remembers: Literal[True] | None = None) -> Builder:
    """Return the graph of a role for ``invoke``, its subordinates compiled.

    Args:
        role: The agent.
        remembers: LangGraph's way of letting a subgraph know its earlier calls.
    """
    subordinates = {
        each.name: handwritten(each, remembers).compile(checkpointer=remembers)
        for each in role.subordinates
    }
    model = _model(role)

    def reason(state: State) -> dict[str, Any]:
        return {"messages": [model.invoke(_shown(role, state))]}

    def delegate(state: Sent) -> dict[str, Any]:
        called = state["call"]["args"]
        given = {"messages": [HumanMessage(called["message"])]}
        result = subordinates[called["subordinate"]].invoke(given)
        return {"messages": [_answer(state, result)]}

    return _level(role, reason, delegate)


def ahandwritten(role: Role, remembers: Literal[True] | None = None) -> Builder:
    """Return the graph of a role for ``ainvoke``, its subordinates compiled."""
    subordinates = {
        each.name: ahandwritten(each, remembers).compile(checkpointer=remembers)
        for each in role.subordinates
    }
    model = _model(role)

    async def reason(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(_shown(role, state))]}

    async def delegate(state: Sent) -> dict[str, Any]:
        called = state["call"]["args"]
        given = {"messages": [HumanMessage(called["message"])]}
        result = await subordinates[called["subordinate"]].ainvoke(given)
        return {"messages": [_answer(state, result)]}

    return _level(role, reason, delegate)


def _level(role: Role, reason: Any, delegate: Any) -> Builder:
    def after_reason(state: State) -> list[Send] | str:
        calls = cast("AIMessage", state["messages"][-1]).tool_calls
        if not calls:
            return END
        if role.subordinates:
            return [Send("delegate", {"call": call}) for call in calls]
        return "tools"

    builder: Builder = StateGraph(State)
    builder.add_node("reason", reason)
    builder.add_edge(START, "reason")
    ends = [END]
    if role.subordinates:
        builder.add_node("delegate", delegate)
        builder.add_edge("delegate", "reason")
        ends.append("delegate")
    if role.tools:
        builder.add_node("tools", ToolNode(list(role.tools)))
        builder.add_edge("tools", "reason")
        ends.append("tools")
    builder.add_conditional_edges("reason", after_reason, ends)
    return builder


def _model(role: Role) -> Runnable[Any, AIMessage]:
    tools = [*role.tools, *([call_subordinate] if role.subordinates else [])]
    return role.model.bind_tools(tools) if tools else role.model


def _shown(role: Role, state: State) -> list[BaseMessage]:
    return [SystemMessage(role.prompt), *state["messages"]]


def _answer(state: Sent, result: Mapping[str, Any]) -> ToolMessage:
    return ToolMessage(
        result["messages"][-1].text, tool_call_id=state["call"]["id"], name="call_subordinate"
    )


@contextmanager
def saver(database: Path, synchronous: Synchronous) -> Iterator[SqliteSaver]:
    """Open LangGraph's saver; it leaves SQLite at ``synchronous=FULL``."""
    with SqliteSaver.from_conn_string(str(database)) as opened:
        opened.conn.execute(f"PRAGMA synchronous={synchronous}")
        yield opened


@asynccontextmanager
async def asaver(database: Path, synchronous: Synchronous) -> AsyncIterator[AsyncSqliteSaver]:
    """Open LangGraph's saver for event loops."""
    async with AsyncSqliteSaver.from_conn_string(str(database)) as opened:
        await opened.conn.execute(f"PRAGMA synchronous={synchronous}")
        yield opened
