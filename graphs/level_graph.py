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
from echelons.delegation.policy import Delegating
from echelons.effects.journal import Journal
from echelons.graphs.agent_models import can_call
from echelons.graphs.delegation_graph import delegation_graph
from echelons.graphs.edges import AfterReason
from echelons.graphs.state import Brief, Conversation, Level, Outcome
from echelons.identity.thread_history import History
from echelons.nodes.act import Act
from echelons.nodes.base_node import Shell
from echelons.nodes.planning.delegation_plan import Finder
from echelons.nodes.planning.tool_calls import Abilities
from echelons.nodes.planning.tool_schemas import (
    call_subordinate_schema,
    delegate_many_schema,
    report_schema,
)
from echelons.nodes.reason import Mind, Reason
from echelons.nodes.run import RUN, RunFunction, RunGraph, RunRunnable
from echelons.tree.members import FunctionMember, GraphMember, Member, RunnableMember

Builder = StateGraph[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Position:
    """What a level gets from the tree around it.

    Attributes:
        model: The agent's model, its own or inherited.
        reports: Whether there is a superior agent to report to.
        depth: Levels of the whole tree.
        history: Reads threads.
        journal: Records tool calls with side effects.
        finder: Routes tasks that name no subordinate.
        rules: The agent's delegation policy, its own or inherited.
        width: Most parallel calls in one message; `None` for no limit.
    """

    model: BaseChatModel
    reports: bool
    depth: int
    history: History
    journal: Journal
    finder: Finder
    rules: Delegating
    width: int | None = None


def agent_level(
    agent: Agent, position: Position, levels: Mapping[str, Runnable[Any, Any]]
) -> Builder:
    """Return the graph of an agent's level, not yet compiled.

    Args:
        agent: The agent.
        position: What it gets from the tree.
        levels: The level graphs of its subordinates, by name.
    """
    builder = _builder(position.reports)
    tools = [each if isinstance(each, BaseTool) else tool(each) for each in agent.tools]
    ends = [END, "reason"]
    if tools:
        builder.add_node("act", Act(tools, position.journal))
        builder.add_edge("act", "reason")
        ends.append("act")
    if agent.subordinates:
        members = {member.name: member for member in agent.subordinates}
        builder.add_node(
            "delegate", delegation_graph(members, levels, position.history, position.rules.timeout)
        )
        builder.add_edge("delegate", "reason")
        ends.append("delegate")
    builder.add_node("reason", Reason(_mind(agent, tools, position), position.history))
    builder.add_edge(START, "reason")
    builder.add_conditional_edges("reason", AfterReason(position.depth, position.rules), ends)
    return builder


def foreign_level(member: Member, history: History) -> Builder:
    """Return the one-node graph of a level whose member is not an agent, not yet compiled.

    Raises:
        TypeError: The member is of an unknown kind.
    """
    builder = _builder(reports=True)
    builder.add_node(RUN, _runner(member, history))
    builder.add_edge(START, RUN)
    builder.add_edge(RUN, END)
    return builder


def entry_of(builder: Builder) -> str:
    """Return the name of a level's first node."""
    return "reason" if "reason" in builder.nodes else RUN


def _builder(reports: bool) -> Builder:
    if reports:
        return StateGraph(Level, input_schema=Brief, output_schema=Outcome)
    return StateGraph(Level, input_schema=Conversation, output_schema=Conversation)


def _runner(member: Member, history: History) -> Shell:
    match member:
        case FunctionMember():
            return RunFunction(member.function)
        case RunnableMember():
            return RunRunnable(member.runnable)
        case GraphMember():
            return RunGraph(member.graph, history)
        case _:
            raise TypeError(f"{member!r} is no kind of subordinate that a level is made for")


def _mind(agent: Agent, tools: Sequence[BaseTool], position: Position) -> Mind:
    shown: list[Any] = list(tools)
    if agent.subordinates:
        shown.append(call_subordinate_schema(agent.subordinates))
    if len(agent.subordinates) > 1:
        shown.append(delegate_many_schema(agent.subordinates))
    reports = position.reports and can_call(position.model)
    if reports:
        shown.append(report_schema())
    model: Runnable[Any, Any] = position.model.bind_tools(shown) if shown else position.model
    abilities = Abilities(
        tools=frozenset(each.name for each in tools),
        subordinates=tuple(each.name for each in agent.subordinates),
        reports=reports,
        width=position.width,
        leads_on=any(each.subordinates for each in agent.subordinates),
    )
    finder = position.finder if agent.subordinates else None
    return Mind(model, _prompt(agent), abilities, finder, position.rules, position.depth)


def _prompt(agent: Agent) -> str:
    if agent.prompt or not agent.description:
        return agent.prompt
    return f"You are {agent.name}. {agent.description}"
