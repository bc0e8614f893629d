"""Supervisors of langgraph-supervisor: with a tree of ours inside, and as part of one."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langgraph_supervisor import create_supervisor

from echelons.testing import Call, ScriptedModel
from tests.hosts.graphs import TO_BARI, TO_ROME, Saver
from tests.hosts.trees import ask_for_breakfast, build_tree, find_hotel


def with_tool(saver: Saver) -> Any:
    """Return a supervisor that calls the tree as a tool."""
    return _build_tool_supervisor(saver, [TO_ROME])


def with_two_calls(saver: Saver) -> Any:
    """Return one that calls it twice in a message."""
    return _build_tool_supervisor(saver, [TO_ROME, TO_BARI])


def with_member(saver: Saver) -> Any:
    """Return a supervisor of which the tree is a member."""

    def reply(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type == "human":
            return Call("transfer_to_travel", {})
        return "Have a nice trip."

    tree = build_tree(takes_messages=True).compile()
    return create_supervisor([tree], model=ScriptedModel(reply)).compile(checkpointer=saver)


def supervisor() -> Any:
    """Return a supervisor whose member asks with a tool."""

    def reply(messages: Sequence[BaseMessage]) -> Any:
        found = [each.text for each in messages if each.type == "ai" and "Ibis" in each.text]
        return found[-1] if found else Call("transfer_to_clerk", {})

    clerk = create_agent(ScriptedModel(find_hotel), [ask_for_breakfast], name="clerk")
    return create_supervisor([clerk], model=ScriptedModel(reply)).compile()


def _build_tool_supervisor(saver: Saver, calls: list[Call]) -> Any:
    model = ScriptedModel([calls, "Have a nice trip."])
    return create_supervisor([], model=model, tools=[build_tree().as_tool()]).compile(
        checkpointer=saver
    )
