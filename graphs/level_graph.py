"""Builds the level graph of an agent, of `reason`, `act` and `delegate`, or of another member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph

from echelons.agent import Agent
from echelons.delegation.policy import DelegationPolicy
from echelons.effects.journal import Journal
from echelons.graphs.agent_models import supports_tool_calls
from echelons.graphs.delegation_graph import build_delegation_graph
from echelons.graphs.edges import AfterReason
from echelons.graphs.state import Conversation, LevelInput, LevelOutput, LevelState
from echelons.guards.limits import DEFAULT_REFUSALS
from echelons.identity.thread_history import GraphHistory, ThreadHistory
from echelons.models.call_timeouts import takes_timeout
from echelons.nodes.act import Act
from echelons.nodes.base_node import Node
from echelons.nodes.planning.task_router import TaskRouter
from echelons.nodes.planning.tool_calls import CallableTools
from echelons.nodes.planning.tool_schemas import (
    build_call_subordinate_schema,
    build_delegate_many_schema,
    build_report_schema,
)
from echelons.nodes.reason import Reason, ReasonSettings
from echelons.nodes.run import RunFunction, RunGraph, RunRunnable
from echelons.tree.members import FunctionMember, GraphMember, Member, RunnableMember
from echelons.tree.names import RUN

LevelBuilder = StateGraph[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class LevelPosition:
    """What a level gets from the tree around it.

    Attributes:
        model: The agent's model, its own or inherited.
        reports: Whether there is a superior agent to report to.
        depth: Levels of the whole tree.
        timeouts: Seconds for each subordinate, by its name; `None` for no limit.
        history: Reads threads.
        journal: Records tool calls with side effects.
        router: Routes tasks that name no subordinate.
        policy: The agent's delegation policy, its own or inherited.
        width: Most parallel calls in one message; `None` for no limit.
        max_refusals: Most refusals of the same call in a row; `None` for no limit.
    """

    model: BaseChatModel
    reports: bool
    depth: int
    timeouts: Mapping[str, float | None]
    history: ThreadHistory
    journal: Journal
    router: TaskRouter
    policy: DelegationPolicy
    width: int | None = None
    max_refusals: int | None = DEFAULT_REFUSALS


def build_agent_level(
    agent: Agent, position: LevelPosition, levels: Mapping[str, Runnable[Any, Any]]
) -> LevelBuilder:
    """Return the graph of an agent's level over those of its subordinates, not yet compiled."""
    builder = _create_builder(position.reports)
    tools = [each if isinstance(each, BaseTool) else tool(each) for each in agent.tools]
    ends = [END, "reason"]
    if tools:
        builder.add_node("act", Act(tools, position.journal))
        builder.add_edge("act", "reason")
        ends.append("act")
    if agent.subordinates:
        members = {member.name: member for member in agent.subordinates}
        delegation = build_delegation_graph(members, levels, position.history, position.timeouts)
        builder.add_node("delegate", delegation)
        builder.add_edge("delegate", "reason")
        ends.append("delegate")
    builder.add_node("reason", Reason(_build_settings(agent, tools, position), position.history))
    builder.add_edge(START, "reason")
    edge = AfterReason(position.depth, position.policy, position.timeouts)
    builder.add_conditional_edges("reason", edge, ends)
    return builder


def build_foreign_level(member: Member, history: GraphHistory) -> LevelBuilder:
    """Return the one-node graph of a level whose member is not an agent, not yet compiled.

    Raises:
        TypeError: The member is of an unknown kind.
    """
    builder = _create_builder(reports=True)
    builder.add_node(RUN, _create_run_node(member, history))
    builder.add_edge(START, RUN)
    builder.add_edge(RUN, END)
    return builder


def get_entry_node(builder: LevelBuilder) -> str:
    """Return the name of a level's first node."""
    return "reason" if "reason" in builder.nodes else RUN


def _create_builder(reports: bool) -> LevelBuilder:
    if reports:
        return StateGraph(LevelState, input_schema=LevelInput, output_schema=LevelOutput)
    return StateGraph(LevelState, input_schema=Conversation, output_schema=Conversation)


def _create_run_node(member: Member, history: GraphHistory) -> Node:
    match member:
        case FunctionMember():
            return RunFunction(member.function)
        case RunnableMember():
            return RunRunnable(member.runnable)
        case GraphMember():
            return RunGraph(member.graph, history)
        case _:
            raise TypeError(f"{member!r} is no kind of subordinate that a level is made for")


def _build_settings(
    agent: Agent, tools: Sequence[BaseTool], position: LevelPosition
) -> ReasonSettings:
    shown: list[Any] = list(tools)
    if agent.subordinates:
        shown.append(build_call_subordinate_schema(agent.subordinates))
    if len(agent.subordinates) > 1:
        shown.append(build_delegate_many_schema(agent.subordinates))
    reports = position.reports and supports_tool_calls(position.model)
    if reports:
        shown.append(build_report_schema())
    model: Runnable[Any, Any] = position.model.bind_tools(shown) if shown else position.model
    callable_tools = CallableTools(
        tools=frozenset(each.name for each in tools),
        subordinates=tuple(each.name for each in agent.subordinates),
        can_report=reports,
        width=position.width,
        has_deeper_levels=any(each.subordinates for each in agent.subordinates),
    )
    router = position.router if agent.subordinates else None
    prompt = agent.prompt
    if agent.description and not prompt:
        prompt = f"You are {agent.name}. {agent.description}"
    return ReasonSettings(
        model,
        prompt,
        callable_tools,
        router,
        position.policy,
        position.depth,
        position.timeouts,
        position.model if takes_timeout(position.model) else None,
        position.max_refusals,
    )
