"""`LevelHooks`: what the middleware of an agent adds to the graph of its level.

The hooks before and after the agent and the model are nodes, where a middleware defines them and
only there; `reason`, `act` and `delegate` stay as they are between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph

from echelons.agent import Agent
from echelons.delegation.contract import get_contract
from echelons.features.middleware.delegation import DelegationCalls
from echelons.features.middleware.hook_nodes import HookEdge, HookNode
from echelons.features.middleware.level import LevelMiddleware
from echelons.features.middleware.model_calls import ModelCalls
from echelons.features.middleware.tool_calls import ToolCalls
from echelons.graphs.edges import AfterReason, AfterReply, LoopNodes
from echelons.graphs.level_graph import LevelBuilder, LevelPosition
from echelons.graphs.state import (
    Conversation,
    LevelInput,
    LevelOutput,
    LevelState,
    RootInput,
    RootState,
)
from echelons.nodes.base_node import Node


class LevelHooks:
    """What middleware adds to one level: tools, nodes, and wraps around calls and requests."""

    def __init__(self, agent: Agent, position: LevelPosition, tools: list[BaseTool]) -> None:
        self._middleware = LevelMiddleware(agent.name, position.middleware)
        self._position = position
        tools += self._middleware.tools
        base = (LevelState, LevelInput, LevelOutput) if position.reports else _ROOT
        schema, input_schema, output_schema = self._middleware.build_schemas(*base)
        self._state_keys = frozenset(schema.__annotations__)
        self.builder: LevelBuilder = StateGraph(
            schema, input_schema=input_schema, output_schema=output_schema
        )
        direct = frozenset(tool.name for tool in tools if tool.return_direct)
        self._hooks = {
            hook: [
                HookNode(middleware, hook, position.history, self._state_keys, direct)
                for middleware in self._middleware.find(hook)
            ]
            for hook in _HOOKS
        }
        entry = _get_first(self._hooks["before_model"], "reason")
        leaving = _get_first(self._hooks["after_agent"][::-1], END)
        self.nodes = LoopNodes(entry, leaving)
        has_wraps = self._middleware.find("wrap_tool_call")
        self.tool_calls = ToolCalls(self._middleware, tools) if has_wraps else None
        wraps = self._middleware.find("wrap_delegation")
        contracts = {
            subordinate.name: get_contract(subordinate) for subordinate in agent.subordinates
        }
        self.delegation_calls = (DelegationCalls(wraps, contracts),) if wraps else ()

    def build_model_calls(self, shown_tools: Sequence[Any]) -> ModelCalls:
        """Return what the middleware does around a step and its model call."""
        return ModelCalls(self._middleware, self._position.model, shown_tools, self._state_keys)

    def add_nodes(self, after: AfterReason, ends: Sequence[str]) -> None:
        """Add the hooks' nodes, and all edges of the loop but those that lead back to it."""
        hooks, entry = self._hooks, self.nodes.entry
        replied = hooks["after_model"][::-1]
        self._chain(hooks["before_agent"], entry, after, ends)
        self._chain(hooks["before_model"], "reason", after, ends)
        self._chain(replied, after, after, ends)
        self._chain(hooks["after_agent"][::-1], END, after, ends)
        self.builder.add_edge(START, _get_first(hooks["before_agent"], entry))
        edge: Node = AfterReply(replied[0].node_name, after) if replied else after
        self.builder.add_conditional_edges(
            "reason", edge, [*ends, END, *(node.node_name for node in replied[:1])]
        )

    def _chain(
        self, nodes: Sequence[HookNode], last: str | Node, after: AfterReason, ends: Sequence[str]
    ) -> None:
        """Add nodes that run one after the other, each of which may jump."""
        following: list[str | Node] = [*(node.node_name for node in nodes[1:]), last]
        for node, onward in zip(nodes, following, strict=False):
            self.builder.add_node(node.node_name, node)
            if isinstance(onward, str) and not node.jumps:
                self.builder.add_edge(node.node_name, onward)
                continue
            edge = HookEdge(node.node_name, onward, *self.nodes, after)
            named = [onward] if isinstance(onward, str) else []
            self.builder.add_conditional_edges(node.node_name, edge, [*ends, END, *named])


_HOOKS = ("before_agent", "before_model", "after_model", "after_agent")
_ROOT: Any = (RootState, RootInput, Conversation)


def _get_first(nodes: Sequence[HookNode], otherwise: str) -> str:
    return nodes[0].node_name if nodes else otherwise
