"""Supervisors of langgraph-supervisor that have a tree of ours inside."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph_supervisor import create_supervisor

from echelons.testing import Call, ScriptedModel
from tests.hosts.hosts import TO_ROME, Saver
from tests.hosts.ours import build_tree


def with_tool(saver: Saver) -> Any:
    """Return a supervisor that calls the tree as a tool."""
    model = ScriptedModel([TO_ROME, "Have a nice trip."])
    return create_supervisor([], model=model, tools=[build_tree().as_tool()]).compile(
        checkpointer=saver
    )


def with_member(saver: Saver) -> Any:
    """Return a supervisor of which the tree is a member."""

    def reply(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type == "human":
            return Call("transfer_to_travel", {})
        return "Have a nice trip."

    tree = build_tree(takes_messages=True).compile()
    return create_supervisor([tree], model=ScriptedModel(reply)).compile(checkpointer=saver)
