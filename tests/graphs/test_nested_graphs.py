"""A nested graph takes its config from the task that runs it, each part of it once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tools import tool
from langgraph.prebuilt import ToolRuntime

from echelons import Agent
from echelons.testing import Call, ScriptedModel, delegate


class StartedTools(BaseCallbackHandler):
    """Notes the tools that are started, with the metadata of their runs."""

    def __init__(self) -> None:
        self.metadata: list[dict[str, Any]] = []

    def on_tool_start(self, *_: Any, metadata: dict[str, Any] | None = None, **__: Any) -> None:
        """Note it."""
        self.metadata.append(metadata or {})


@pytest.mark.parametrize("world", ["sync", "async"])
def test_a_tool_two_levels_down_has_the_callers_config_and_its_own_place(world: str) -> None:
    configs: list[Any] = []

    @tool
    def look(runtime: ToolRuntime) -> str:
        """Look around."""
        configs.append(runtime.config)
        return "looked"

    model = ScriptedModel(
        {
            "head": [delegate("days", "one"), "planned"],
            "days": [delegate("eat", "dinner"), "done"],
            "eat": [Call("look"), "told"],
        }
    )
    days = Agent("days", subordinates=[Agent("eat", tools=[look])])
    tree = Agent("head", model=model, subordinates=[days]).compile(None)
    started = StartedTools()
    given: Any = {
        "tags": ["mine"],
        "metadata": {"trip": "Italy"},
        "callbacks": [started],
        "recursion_limit": 77,
        "configurable": {"thread_id": "t", "language": "it"},
    }

    task: Any = {"messages": [("user", "plan")]}
    if world == "sync":
        tree.invoke(task, given)
    else:
        asyncio.run(tree.ainvoke(task, given))

    [config], [metadata] = configs, started.metadata
    assert (config["tags"].count("mine"), config["recursion_limit"]) == (1, 77)
    assert config["configurable"]["language"] == "it"
    for found in (config["metadata"], metadata):
        assert (found["trip"], found["agent_path"]) == ("Italy", "head/days/eat")
        assert (found["langgraph_node"], found["langgraph_step"]) == ("act", 1)
        assert found["langgraph_checkpoint_ns"] == config["configurable"]["checkpoint_ns"]
