"""Deep agents: with a tree of ours inside, and as part of one."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepagents import create_deep_agent
from langchain_core.messages import BaseMessage

from echelons.testing import Call, ScriptedModel
from tests.hosts.graphs import TO_BARI, TO_ROME, Saver
from tests.hosts.trees import PURPOSE, ask_for_breakfast, build_tree, find_hotel


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


def with_two_subagents(saver: Saver) -> Any:
    """Return one that has the tree as a subagent work on two tasks at once."""
    tree = build_tree(takes_messages=True).compile()
    below: Any = {"name": "travel", "description": PURPOSE, "runnable": tree}
    calls = [
        Call("task", {"description": city, "subagent_type": "travel"}) for city in ("Rome", "Bari")
    ]
    model = ScriptedModel([calls, "Have a nice trip."])
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


def agent() -> Any:
    """Return one whose subagent asks with a tool."""

    def reply(messages: Sequence[BaseMessage]) -> Any:
        last = messages[-1]
        if last.type == "tool":
            return last.text
        return Call("task", {"description": "Rome", "subagent_type": "clerk"})

    clerk: Any = {
        "name": "clerk",
        "description": "Finds hotels",
        "system_prompt": "Find.",
        "model": ScriptedModel(find_hotel),
        "tools": [ask_for_breakfast],
    }
    return create_deep_agent(ScriptedModel(reply), subagents=[clerk])


def agent_with_approval() -> Any:
    """Return one whose tool is held until a person has approved the call."""

    def book(city: str) -> str:
        """Book."""
        return f"breakfast: in {city}"

    def reply(messages: Sequence[BaseMessage]) -> Any:
        found = find_hotel(messages)
        return Call("book", found.args) if isinstance(found, Call) else found

    return create_deep_agent(ScriptedModel(reply), [book], interrupt_on={"book": True})
