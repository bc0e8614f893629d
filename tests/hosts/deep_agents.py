"""Deep agents that have a tree of ours inside."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent

from echelons.testing import Call, ScriptedModel
from tests.hosts.hosts import TO_BARI, TO_ROME, Saver
from tests.hosts.ours import PURPOSE, build_tree


def with_tool(saver: Saver) -> Any:
    """Return one that calls the tree as a tool."""
    model = ScriptedModel([TO_ROME, "Have a nice trip."])
    return create_deep_agent(model, [build_tree().as_tool()], checkpointer=saver)


def with_two_calls(saver: Saver) -> Any:
    """Return one that calls it twice in a message."""
    model = ScriptedModel([[TO_ROME, TO_BARI], "Have a nice trip."])
    return create_deep_agent(model, [build_tree().as_tool()], checkpointer=saver)


def with_subagent(saver: Saver) -> Any:
    """Return one of whose subagents the tree is one."""
    call = Call("task", {"description": "Rome", "subagent_type": "travel"})
    below: Any = {
        "name": "travel",
        "description": PURPOSE,
        "runnable": build_tree(takes_messages=True).compile(),
    }
    model = ScriptedModel([call, "Have a nice trip."])
    return create_deep_agent(model, subagents=[below], checkpointer=saver)


def with_tool_of_subagent(saver: Saver) -> Any:
    """Return one whose subagent calls the tree as a tool."""
    call = Call("task", {"description": "Rome", "subagent_type": "helper"})
    below: Any = {
        "name": "helper",
        "description": "Helps",
        "system_prompt": "Help.",
        "model": ScriptedModel([TO_ROME, "Found."]),
        "tools": [build_tree().as_tool()],
    }
    model = ScriptedModel([call, "Have a nice trip."])
    return create_deep_agent(model, subagents=[below], checkpointer=saver)
