"""Agents of LangChain and graphs of LangGraph: with a tree of ours inside, and as part of one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from echelons.testing import Call, ScriptedModel
from tests.hosts.trees import (
    PURPOSE,
    Hotel,
    ask_for_breakfast,
    build_tree,
    build_tree_around,
    find_hotel,
)

Saver = BaseCheckpointSaver[Any]
Host = Callable[[Saver], Any]
"""Builds a host on a saver."""

TO_ROME = Call("travel", {"city": "Rome", "nights": 2})
TO_BARI = Call("travel", {"city": "Bari"})


def agent_with_tool(saver: Saver) -> Any:
    """Return an agent of LangChain's that calls the tree as a tool."""
    model = ScriptedModel([TO_ROME, "Have a nice trip."])
    return create_agent(model, [build_tree().as_tool()], checkpointer=saver)


def agent_with_two_calls(saver: Saver) -> Any:
    """Return one that calls it twice in a message."""
    model = ScriptedModel([[TO_ROME, TO_BARI], "Have a nice trip."])
    return create_agent(model, [build_tree().as_tool()], checkpointer=saver)


def agent_around_agent(saver: Saver) -> Any:
    """Return one that calls a tree as a tool, whose third level is another one that asks."""
    call = Call("head", {"task": "Rome"})
    tree = build_tree_around(agent()).as_tool(description=PURPOSE)
    return create_agent(ScriptedModel([call, "Have a nice trip."]), [tree], checkpointer=saver)


def agent_with_approval(saver: Saver) -> Any:
    """Return one that asks before it calls the tree."""
    model = ScriptedModel([TO_ROME, "Have a nice trip."])
    asks: Any = HumanInTheLoopMiddleware(interrupt_on={"travel": True})
    return create_agent(model, [build_tree().as_tool()], middleware=[asks], checkpointer=saver)


def graph_with_tool_node(saver: Saver) -> Any:
    """Return a graph of a model and a `ToolNode`."""
    return _build_tool_graph(saver, [TO_ROME])


def graph_with_two_calls(saver: Saver) -> Any:
    """Return one whose model calls the tree twice in a message."""
    return _build_tool_graph(saver, [TO_ROME, TO_BARI])


def graph_with_node(saver: Saver) -> Any:
    """Return a graph of which the tree is a node."""

    def end(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("Have a nice trip.")]}

    builder = StateGraph(MessagesState)
    builder.add_node("team", build_tree(takes_messages=True).compile())
    builder.add_node("after", end)
    builder.add_edge(START, "team")
    builder.add_edge("team", "after")
    builder.add_edge("after", END)
    return builder.compile(checkpointer=saver)


def agent() -> Any:
    """Return an agent of LangChain's whose tool asks."""
    return create_agent(ScriptedModel(find_hotel), [ask_for_breakfast])


def typed_agent() -> Any:
    """Return one with a response format, so that its answer is an instance in its state."""

    def reply(messages: Sequence[BaseMessage]) -> Any:
        found = find_hotel(messages)
        return found if isinstance(found, Call) else Call("Hotel", json.loads(found))

    return create_agent(
        ScriptedModel(reply), [ask_for_breakfast], response_format=ToolStrategy(Hotel)
    )


class Wanted(MessagesState):
    """A state with the fields of the input, beside the messages."""

    city: str
    nights: int


def graph() -> Any:
    """Return a graph with a node that asks."""

    def find(state: Wanted) -> dict[str, Any]:
        answer = interrupt(f"Breakfast? {state['city']}, {state['nights']} nights")
        return {"messages": [AIMessage(Hotel(name=f"Ibis, {answer}").model_dump_json())]}

    builder = StateGraph(Wanted)
    builder.add_node("find", find)
    builder.add_edge(START, "find")
    builder.add_edge("find", END)
    return builder.compile()


def _build_tool_graph(saver: Saver, calls: list[Call]) -> Any:
    tool = build_tree().as_tool()
    model = ScriptedModel([calls, "Have a nice trip."]).bind_tools([tool])

    async def think_later(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("think", RunnableLambda(think, think_later))
    builder.add_node("tools", ToolNode([tool]))
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", tools_condition)
    builder.add_edge("tools", "think")
    return builder.compile(checkpointer=saver)
