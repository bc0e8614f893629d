"""The same tree with three of LangChain's middleware at each level: ours, and of ``create_agent``.

One has hooks around the model's reply, one wraps each call of the model, one each call of a tool.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    ModelCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langgraph.checkpoint.base import BaseCheckpointSaver

from benchmarks.peers.create_agent import build_call_tool
from benchmarks.peers.langgraph_family import Graph
from benchmarks.trees import Role, ours
from echelons import Agent


def list_middleware() -> list[AgentMiddleware[Any, Any]]:
    """Return the three."""
    return [
        ModelCallLimitMiddleware(run_limit=50),
        ContextEditingMiddleware(),
        ToolRetryMiddleware(),
    ]


def wrap(role: Role) -> Agent:
    """Return the role as an agent with middleware at each level."""
    below = tuple(wrap(each) for each in role.subordinates)
    return replace(ours(role), middleware=list_middleware(), subordinates=below)


def build_create_agent(
    role: Role,
    saver: BaseCheckpointSaver[Any] | None = None,
    *,
    is_async: bool,
    has_middleware: bool,
) -> Graph:
    """Return the role as ``create_agent`` makes it, its subagents as a tool."""
    below = {
        each.name: build_create_agent(each, is_async=is_async, has_middleware=has_middleware)
        for each in role.subordinates
    }
    return create_agent(
        role.model,
        [*role.tools, *([build_call_tool(below, is_async=is_async)] if below else [])],
        system_prompt=role.prompt,
        middleware=list_middleware() if has_middleware else (),
        name=role.name,
        checkpointer=saver,
    )
