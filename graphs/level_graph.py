"""Builds the level graph of an agent, of `reason`, `act` and `delegate`, or of another member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph

from echelons.agent import Agent
from echelons.delegation.approvals import StandingDecisions
from echelons.delegation.contract import get_contract, get_inputs
from echelons.delegation.effects import Journal, is_polling
from echelons.features.feature import (
    AgentHooks,
    AttemptHooks,
    BuiltIn,
    Place,
    RequestPlace,
    SubordinateSource,
)
from echelons.features.middleware.calls import ModelCalls, ToolCalls
from echelons.features.middleware.delegation import DelegationCalls
from echelons.features.middleware.level import HookEdge, HookNode, LevelMiddleware
from echelons.features.registry import bind_features, bind_requests
from echelons.graphs.delegation_graph import BuildLevel, build_delegation_graph
from echelons.graphs.edges import AfterReason, AfterReply, BeforeReason, LoopNodes
from echelons.graphs.state import (
    Conversation,
    LevelInput,
    LevelOutput,
    LevelState,
    RootInput,
    RootState,
)
from echelons.graphs.tools import (
    choose_shown_tools,
    find_source,
    list_built_in_tools,
    list_shown_tools,
)
from echelons.guards.limits import (
    DEFAULT_REFUSALS,
    DEFAULT_REPEATS,
    DEFAULT_RESULT_TOKENS,
)
from echelons.guards.permissions import RulesByName
from echelons.human import Human
from echelons.identity.thread_history import GraphHistory, ThreadHistory
from echelons.models.bound_model import takes_timeout
from echelons.nodes.act import Act
from echelons.nodes.base_node import Node
from echelons.nodes.long_results import LongResults
from echelons.nodes.model_call import AgentModel, ModelFunction, StopHooks, SystemPrompt
from echelons.nodes.planning.call_arguments import ToolArguments
from echelons.nodes.planning.repeated_calls import RepeatRules
from echelons.nodes.planning.task_router import TaskRouter
from echelons.nodes.planning.tool_calls import CallableTools
from echelons.nodes.reason import Reason, ReasonSettings
from echelons.nodes.request_queue import RequestQueue
from echelons.nodes.run import RunFunction, RunGraph, RunHuman, RunRunnable
from echelons.nodes.subordinate import assign_nodes
from echelons.nodes.tool_execution.approval import ToolApprovals
from echelons.nodes.tool_execution.user_answers import ToldRun
from echelons.prompts import build_guidance
from echelons.tree.members import (
    FunctionMember,
    GraphMember,
    Member,
    RunnableMember,
    describe_subordinates,
)
from echelons.tree.names import (
    ASK,
    PATH_SEPARATOR,
    READ_RESULT,
    REPORT,
    RUN,
    get_provider_tool_name,
)

LevelBuilder = StateGraph[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPosition(Place):
    """An agent at its place, with what its level gets from the tree around it."""

    depth: int
    # Seconds for each declared subordinate, by its name; `None` for no limit.
    timeouts: Mapping[str, float | None]
    # Those of all agents that run here, by the ids of what the agents have.
    tools: Mapping[int, BaseTool]
    history: ThreadHistory
    journal: Journal
    router: TaskRouter
    decisions: StandingDecisions
    # Most parallel calls in one message; here and below, `None` is no limit.
    width: int | None = None
    # Of the same call in a row.
    max_refusals: int | None = DEFAULT_REFUSALS
    # Of a result that a model is shown.
    result_tokens: int | None = DEFAULT_RESULT_TOKENS
    # Calls with the same result for one request.
    max_repeats: int | None = DEFAULT_REPEATS
    # The approval rules of the agent and its superiors.
    rules: RulesByName = field(default_factory=dict)
    # `None` for the library's own text, a mapping for texts in place of some of its parts.
    guidance: str | Mapping[str, str] | None = None
    middleware: tuple[Any, ...] = ()
    build_added_level: BuildLevel
    # Added at run time: its tools may be fewer now than those that it has called.
    is_added: bool = False
    models: Mapping[str, Any] = field(default_factory=dict)


def build_agent_level(
    position: LevelPosition, levels: Mapping[str, Runnable[Any, Any]]
) -> LevelBuilder:
    """Return the graph of an agent's level over those of its subordinates, not yet compiled."""
    agent = position.agent
    own_tools = [
        position.tools[id(tool)] for tool in agent.tools if not get_provider_tool_name(tool)
    ]
    hooks = None
    if position.middleware:
        # Only these levels need the package `langchain`.

        hooks = LevelHooks(agent, position, own_tools)
    builder = hooks.builder if hooks else _create_builder(position.reports)
    nodes = hooks.nodes if hooks else LoopNodes()
    ends = [*nodes]
    features = bind_features(position)
    tools = _collect_tools(position, own_tools, features)
    executed = {name: tool for name, tool in tools.built_in.items() if tool.is_executed}
    if own_tools or executed or position.is_added:
        approvals = ToolApprovals(position.rules, own_tools, position.journal, position.decisions)
        wraps = hooks.tool_calls if hooks else None
        act = Act(own_tools, position.journal, position.history, approvals, executed, wraps=wraps)
        builder.add_node("act", act)
        builder.add_edge("act", nodes.entry)
        ends.append("act")
    source = find_source(features)
    if agent.subordinates or source:
        nodes_below = assign_nodes([member.name for member in agent.subordinates])

        def bind(member: Member) -> list[AttemptHooks]:
            rules, decisions = position.rules, position.decisions
            bound = bind_requests(RequestPlace(member, rules, decisions, position.history))
            # Middleware stands around all attempts that follow from a request.
            return [*(hooks.delegation_calls if hooks else ()), *bound]

        delegation = build_delegation_graph(
            agent,
            levels,
            RequestQueue(
                nodes_below,
                position.history,
                position.timeouts,
                position.policy,
                position.models,
                source,
            ),
            bind,
            position.build_added_level,
        )
        builder.add_node("delegate", delegation)
        if nodes.entry == "reason":
            builder.add_edge("delegate", "reason")
        else:
            edge = BeforeReason(nodes.entry)
            builder.add_conditional_edges("delegate", edge, ["reason", nodes.entry])
        ends.append("delegate")
    after = AfterReason(
        position.depth, position.policy, position.timeouts, nodes if hooks else None
    )
    if hooks:
        hooks.add_nodes(after, ends)
    else:
        builder.add_edge(START, "reason")
        builder.add_conditional_edges("reason", after, ends)
    # A stop stands within what features do around a model call, and middleware within all.
    steps: list[AgentHooks] = [*features, *(() if position.reports else (StopHooks(),))]
    model = _build_model(position, tools, features)
    if hooks:
        model_calls = hooks.build_model_calls(tools.shown)
        steps.append(model_calls)
        model.always_shortens = model_calls.wraps_calls
    settings = _build_settings(position, model, tools, source)
    builder.add_node("reason", Reason(settings, position.history, steps))
    return builder


def build_foreign_level(
    member: Member, history: GraphHistory, journal: Journal | None = None
) -> LevelBuilder:
    """Return the one-node graph of a level whose member is not an agent, not yet compiled."""
    # With a journal, its superior reads its questions to the user.
    builder = _create_builder(reports=True)
    node: Node
    match member:
        case FunctionMember():
            node = RunFunction(member.function, member.contract)
        case RunnableMember():
            node = RunRunnable(member.runnable, member.contract)
        case GraphMember():
            node = RunGraph(member.graph, history, member.contract)
        case Human():
            node = RunHuman(history)
        case _:
            raise TypeError(f"{member!r} is no kind of subordinate that a level is made for")
    if journal and not isinstance(member, Human):
        node = ToldRun(node, member.name, journal)
    builder.add_node(RUN, node)
    builder.add_edge(START, RUN)
    builder.add_edge(RUN, END)
    return builder


def get_entry_node(builder: LevelBuilder) -> str:
    """Return the name of a level's first node."""
    return next(end for start, end in builder.edges if start == START)


def _create_builder(reports: bool) -> LevelBuilder:
    if reports:
        return StateGraph(LevelState, input_schema=LevelInput, output_schema=LevelOutput)
    return StateGraph(RootState, input_schema=RootInput, output_schema=Conversation)


def _name_members(agent: Agent) -> dict[str, Member]:
    return {member.name: member for member in agent.subordinates}


class _LevelTools(NamedTuple):
    """The tools of one agent."""

    own: Sequence[BaseTool]
    # Those that the agent may call.
    built_in: Mapping[str, BuiltIn]
    # Names of the built-in ones that its model is shown.
    offered: Sequence[str]
    shown: Sequence[Any]
    results: LongResults


def _collect_tools(
    position: LevelPosition, tools_by_name: Sequence[BaseTool], features: Sequence[AgentHooks]
) -> _LevelTools:
    agent, results = position.agent, LongResults(position.result_tokens)
    taken = {tool.name for tool in tools_by_name} | get_inputs(_name_members(agent)).keys()
    built_in = list_built_in_tools(position, features, taken, results)
    offered = choose_shown_tools(agent, built_in)
    shown = list_shown_tools(agent, tools_by_name, offered, needs_roster=position.guidance == "")
    names = tuple(tool.name for tool in offered)
    return _LevelTools(tools_by_name, {tool.name: tool for tool in built_in}, names, shown, results)


def _build_model(
    position: LevelPosition, tools: _LevelTools, features: Sequence[AgentHooks]
) -> AgentModel:
    agent, base, shown = position.agent, position.model, tools.shown
    model: Runnable[Any, Any] | ModelFunction = base
    bind_more = None
    if not hasattr(base, "bind_tools"):
        model = ModelFunction(base, shown)
    elif position.can_call:
        output_format = _build_output_format(agent, base)
        bind_more = partial(base.bind_tools, **output_format)
        if shown:
            model = bind_more(shown)
        elif output_format:
            model = base.bind(**output_format)
    elif shown:
        model = base.bind_tools(shown)
    guidance = position.guidance
    # The instructions name the mark of notices where there are any: a single agent has none.
    announces_notices = not isinstance(guidance, str) and bool(
        position.reports
        or agent.subordinates
        or agent.permissions.contact_user
        or agent.contract
        or any(hooks.has_notices for hooks in features)
    )
    if not isinstance(guidance, str):
        guidance = build_guidance(
            agent.name,
            agent.description,
            can_report=REPORT in tools.offered,
            can_ask=ASK in tools.offered,
            has_superior=position.reports,
            has_subordinates=bool(agent.subordinates or find_source(features)),
            output=agent.contract.output_schema if agent.contract else None,
            texts=guidance or {},
        )
    if guidance:
        roster = describe_subordinates(agent.subordinates)
        guidance = "\n\n".join(filter(None, (guidance, roster)))
    return AgentModel(
        model,
        SystemPrompt(agent.prompt, guidance),
        base if takes_timeout(base) else None,
        shown,
        tools.results,
        bind_more,
        tools.built_in[READ_RESULT].build_schema(),
        announces_notices=announces_notices,
    )


def _build_settings(
    position: LevelPosition,
    model: AgentModel,
    tools: _LevelTools,
    source: SubordinateSource | None,
) -> ReasonSettings:
    agent = position.agent
    callable_tools = CallableTools(
        tools=frozenset(tool.name for tool in tools.own),
        subordinates=tuple(member.name for member in agent.subordinates),
        built_in=tools.built_in,
        shown=tools.offered,
        can_report=position.reports and position.can_call,
        name=agent.name,
        inputs=get_inputs(_name_members(agent)),
        output=agent.contract if agent.contract and agent.contract.output else None,
        arguments={tool.name: ToolArguments(tool) for tool in tools.own},
        width=position.width,
        has_deeper_levels=any(member.subordinates for member in agent.subordinates),
        is_person=partial(_is_person, agent),
    )
    repeat_rules = None
    if position.max_repeats is not None:
        # People answer questions as they like.
        exempt = [tool.name for tool in tools.own if is_polling(tool)]
        exempt += [tool.name for tool in tools.built_in.values() if tool.may_repeat]
        repeat_rules = RepeatRules(position.max_repeats, frozenset(exempt))
    return ReasonSettings(
        model,
        callable_tools,
        position.router if agent.subordinates or source else None,
        position.policy,
        position.depth,
        position.timeouts,
        position.max_refusals,
        repeat_rules,
        frozenset(tool.name for tool in tools.own if tool.return_direct),
        source,
    )


def _is_person(agent: Agent, subordinate: str, way: str) -> bool:
    """Return whether a person works on an agent's tasks for a subordinate and a target below it."""
    below, member = agent.subordinates, None
    for name in (subordinate, *filter(None, way.split(PATH_SEPARATOR))):
        member = next((other for other in below if other.name == name), None)
        if member is None:
            return False
        below = member.subordinates
    return isinstance(member, Human)


def _build_output_format(agent: Agent, model: Any) -> dict[str, Any]:
    """Return the arguments with which a model answers in a form only, if its provider can."""
    # As LangChain's `ProviderStrategy` gives them to the models of all providers.
    contract, profile = agent.contract, getattr(model, "profile", None) or {}
    if not (contract and contract.output and profile.get("structured_output")):
        return {}
    form = {"name": contract.output.__name__, "schema": contract.output_schema}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


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
