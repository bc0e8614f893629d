"""The compiled tree: a LangGraph graph that gives runs their identity, also as a LangChain tool."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4, uuid5

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_config
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore
from pydantic import BaseModel, Field

from echelons.agent import Agent, get_compiled, keep_compiled
from echelons.background_loop import get_background_loop
from echelons.capabilities import Deriver, ModelDeriver, derive_from_names
from echelons.checkpoints.checkpointer import SqliteCheckpointer
from echelons.checkpoints.coordination.capability_cache import CapabilityCache
from echelons.checkpoints.coordination.decisions import LedgerDecisions
from echelons.checkpoints.coordination.journal import LedgerFailures, LedgerJournal
from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.ledger import get_ledger
from echelons.checkpoints.open import open_checkpointer
from echelons.checkpoints.run_config import get_saver, is_embedded
from echelons.checkpoints.threads.segments import SavedHistory
from echelons.delegation.contract import Contract
from echelons.delegation.notice import MARK_KEY, create_mark
from echelons.delegation.policy import DEFAULT_POLICY, DelegationPolicy
from echelons.errors import (
    EventLoopMissing,
    InvalidInput,
    SessionNeeded,
    invalid_field,
    invalid_option,
)
from echelons.features.feature import Place, Reach
from echelons.features.registry import Made, bind_features, compile_features
from echelons.graphs.entry import (
    TreeEntry,
    astream_until_settled,
    enter_tree,
    separate_tool_call,
    stream_until_settled,
)
from echelons.graphs.inherited import (
    check_budgets,
    find_budgeted,
    resolve_guidance,
    resolve_middleware,
    resolve_models,
    resolve_policies,
)
from echelons.graphs.level_graph import (
    LevelBuilder,
    LevelPosition,
    build_agent_level,
    build_foreign_level,
    get_entry_node,
)
from echelons.graphs.nested_graphs import DirectGraph, EditableGraph, TreeDrawing
from echelons.graphs.run_checks import (
    NOTHING_HIDDEN,
    Hidden,
    acheck_resume,
    afind_hidden,
    check_resume,
    find_hidden,
    validate_input,
)
from echelons.graphs.state import LevelInput
from echelons.graphs.tools import (
    ToolLimits,
    choose_shown_tools,
    list_built_in_tools,
    probe_tree,
    resolve_reach,
)
from echelons.guards.limits import Limits
from echelons.guards.permissions import RulesByName, extend_rules
from echelons.human import Human
from echelons.identity.lineage import ECHELONS_NS, Identity
from echelons.models import is_offline_planner
from echelons.nodes.long_results import LongResults
from echelons.nodes.model_call import supports_tool_calls
from echelons.nodes.planning.task_router import FittingSubordinate, TaskRouter
from echelons.nodes.tool_execution.async_only import find_async_only
from echelons.text.error_lines import Redactor, redact_secrets, sanitize_value
from echelons.text.input_limits import shorten_repr
from echelons.tree.members import fingerprint_tree, measure_heights
from echelons.tree.names import check_name


class AgentGraph(EditableGraph):
    """The root of a compiled tree.

    Gives every run the identity of the root's thread and durability `"sync"`, and refuses
    to resume a thread whose interrupted agents the tree no longer has.
    """

    def __init__(
        self,
        *,
        agent: Agent,
        fingerprint: str,
        async_only: Sequence[str],
        models: Mapping[str, Any],
        failures: LedgerFailures,
        made: Made,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.models = models
        self.agent = agent
        self.made = made
        self.fingerprint = fingerprint
        self.async_only = async_only
        self.failures = failures

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Run the tree, see `CompiledStateGraph.stream`.

        Raises:
            ThreadError: The config names a checkpoint that the thread does not have.
            EventLoopMissing: Parts of the tree are only async, and the run is not a session's.
            InvalidInput: The input, or the thread's id, is refused.
            MissingAgents: The thread waits in agents that this tree does not have.
            SessionNeeded: The tree uses a feature that needs a session, and this run is of none.
        """
        around = self.merge_call_config(config)
        if self.async_only and get_background_loop(around) is None:
            raise EventLoopMissing(self.async_only)
        validated, stored, hidden = input, None, Hidden()
        if not _is_checked(around):
            self._check_features()
            validated = validate_input(input, around)
            stored, validated = check_resume(self.agent, self.checkpointer, validated, around)
            hidden = find_hidden(self.checkpointer, around)
        entry, options = self._enter(config, around, stored, kwargs)
        hidden.add_to(entry.gate)
        run = partial(super().stream, **options)
        return stream_until_settled(run, _add_mark(validated), entry)

    def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Async version of `stream`."""
        around = self.merge_call_config(config)
        if _is_checked(around):
            return self._astream_settled(input, config, around, kwargs)
        self._check_features()
        return self._acheck_and_stream(validate_input(input, around), config, around, kwargs)

    async def _acheck_and_stream(
        self,
        input: Any,
        config: RunnableConfig | None,
        around: RunnableConfig,
        kwargs: dict[str, Any],
    ) -> AsyncIterator[Any]:
        stored, begin = await acheck_resume(self.agent, self.checkpointer, input, around)
        hidden = await afind_hidden(self.checkpointer, around)
        run = self._astream_settled(begin, config, around, kwargs, stored, hidden)
        async with aclosing(run) as parts:
            async for part in parts:
                yield part

    def _astream_settled(
        self,
        input: Any,
        config: RunnableConfig | None,
        around: RunnableConfig,
        kwargs: dict[str, Any],
        stored: Identity | None = None,
        hidden: Hidden = NOTHING_HIDDEN,
    ) -> AsyncGenerator[Any]:
        entry, options = self._enter(config, around, stored, kwargs)
        hidden.add_to(entry.gate)
        run = partial(super().astream, **options)
        return astream_until_settled(run, _add_mark(input), entry)

    def get_graph(
        self, config: RunnableConfig | None = None, *, xray: int | bool = False
    ) -> TreeDrawing:
        """Return a drawable graph, see `CompiledStateGraph.get_graph`."""
        drawn = super().get_graph(config, xray=xray)
        return TreeDrawing(drawn.nodes, drawn.edges)

    async def aget_graph(
        self, config: RunnableConfig | None = None, *, xray: int | bool = False
    ) -> TreeDrawing:
        """Async version of `get_graph`."""
        drawn = await super().aget_graph(config, xray=xray)
        return TreeDrawing(drawn.nodes, drawn.edges)

    def get_input_jsonschema(self, config: RunnableConfig | None = None) -> dict[str, Any]:
        """Return the schema of an input, without what the tree adds itself."""
        schema = super().get_input_jsonschema(config)
        schema["properties"].pop(MARK_KEY, None)
        return schema

    def _check_features(self) -> None:
        for feature, result in self.made.items():
            if feature.needs_session:
                raise SessionNeeded([*feature.list_members(result)])

    def _enter(
        self,
        config: RunnableConfig | None,
        around: RunnableConfig,
        stored: Identity | None,
        kwargs: dict[str, Any],
    ) -> tuple[TreeEntry, dict[str, Any]]:
        """Return a run of the tree, and the other arguments of LangGraph's `stream`."""
        identity = self.build_initial_identity(around)
        if not identity.turn:
            identity = replace(identity, turn=stored.turn if stored else str(uuid4()))
        entry, options = enter_tree(self, identity, config, around), dict(kwargs)
        # With LangGraph's default, "async", a tool can run twice after a crash. Without a
        # checkpointer, LangGraph warns of any durability.
        if entry.saver:
            options["durability"] = kwargs.get("durability") or "sync"
        return entry, options

    def build_initial_identity(self, around: RunnableConfig) -> Identity:
        """Return the identity of the root, whose turn may still be empty."""
        configurable, metadata = around["configurable"], around.get("metadata") or {}
        turn = get_turn(configurable)
        # Inside another tree, it is below the agent whose node runs it.
        outer = Identity.from_metadata(metadata) if configurable.get("checkpoint_ns") else None
        return Identity(
            agent=self.agent.name,
            path=(*(outer.path if outer else ()), self.agent.name),
            thread_id=_resolve_thread_id(configurable, self.agent.name),
            tree=self.fingerprint,
            superior_thread_id=outer.thread_id if outer else "",
            thread_name=str(metadata.get("thread_name", "")),
            turn=turn.id if turn else outer.turn if outer else "",
        )


def compile_tree(
    agent: Agent,
    checkpointer: BaseCheckpointSaver[Any] | str | Path | None,
    store: BaseStore | None,
    context_schema: Any = None,
    redactor: Redactor = redact_secrets,
) -> AgentGraph:
    """Compile a tree, see `Agent.compile`."""
    if not issubclass(type(store), BaseStore | None):
        raise invalid_option("store", shorten_repr(store), "it is no LangGraph store (`BaseStore`)")
    if not issubclass(type(context_schema), type | None):
        why = "it is no class; give a pydantic model, a dataclass or a TypedDict"
        raise invalid_option("context_schema", shorten_repr(context_schema), why)
    callback: object = redactor
    if not callable(callback):
        why = "it is no function from text to text; leave it out for the default"
        raise invalid_option("redactor", shorten_repr(callback), why)
    # They are built once, and live as long as the root.
    levels: _Levels | None = get_compiled(agent)
    if levels is None:
        levels = _build_levels(agent)
        # Two threads may both get here: each has built the same.
        keep_compiled(agent, levels)
    saver: Any = open_checkpointer(checkpointer)
    root = levels.root
    builder = copy(root.builder)
    _copy_collections(builder.__dict__)
    # The levels below take the context from the graph around them, as it is.
    builder.context_schema = context_schema
    if not isinstance(saver, SqliteCheckpointer | None):
        # LangGraph gives such a saver the types of the state.
        root = builder.compile(checkpointer=saver, name=agent.name)
        saver = root.checkpointer
    attributes = {
        **root.__dict__,
        "builder": builder,
        "checkpointer": saver,
        "stream_transformers": levels.root.stream_transformers,
        "store": store,
        "context_schema": context_schema,
    }
    _copy_collections(attributes)
    return AgentGraph(
        agent=agent,
        fingerprint=levels.fingerprint,
        async_only=levels.async_only,
        models=levels.models,
        failures=LedgerFailures(redactor),
        made=levels.made,
        **attributes,
    )


class LevelGraph(DirectGraph):
    """The compiled graph of one level."""

    # Keys of the middleware's state, with which a request begins as the one before has ended.
    carried_keys: frozenset[str] = frozenset()


class LazyLevel(LevelGraph):
    """A level that compiles itself at the first attribute access, and then is a `LevelGraph`."""

    # So a tree of thousands of agents compiles only what runs. Inspection sees no difference: only
    # the class, and the two attributes below, can be read without compiling.

    def __init__(self, name: str, build: Callable[[], LevelBuilder]) -> None:
        # Not Pregel's `__init__`: there is no graph to hold yet.
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_build", build)

    def __getattribute__(self, key: str) -> Any:
        if key in ("__class__", "__dict__", "__init__"):
            return object.__getattribute__(self, key)
        # LangGraph reads these two of every node's graph while it compiles the superior.
        if key == "checkpointer":
            return None
        if key == "name":
            return object.__getattribute__(self, "_name")
        held = object.__getattribute__(self, "__dict__")
        builder = held["_build"]()
        first = get_entry_node(builder)
        compiled = builder.compile(name=held["_name"])
        # What is passed on to another agent is none of a middleware's.
        relay = "reason" if "reason" in builder.nodes else first
        whole = LevelGraph(
            entry=lambda state, config: relay if state.get("forward") else first,
            **compiled.__dict__,
        )
        keys = frozenset(builder.schemas[builder.input_schema])
        whole.carried_keys = keys - LevelInput.__annotations__.keys()
        # Two threads may both get here; both fill in equal graphs, and the class changes last.
        held.update(whole.__dict__)
        object.__setattr__(self, "__class__", LevelGraph)
        return getattr(self, key)


def _copy_collections(attributes: dict[str, Any]) -> None:
    """Copy the collections of a graph, so that an edit of it reaches no other graph."""
    for key, value in attributes.items():
        if isinstance(value, dict | list | set):
            attributes[key] = value.copy()


@dataclass(frozen=True, slots=True)
class _Levels:
    """The parts that all graphs of one agent share, as an agent never changes."""

    # Nothing of it may depend on what a graph or a run has of its own, such as a saver, a store or
    # a redactor: nodes read these from the config of a run.

    # The root's level, which holds the levels below.
    root: CompiledStateGraph[Any, Any, Any, Any]
    fingerprint: str
    async_only: Sequence[str]
    # What features make of the tree.
    made: Made
    # By the names of the agents.
    models: Mapping[str, Any]


def _build_levels(agent: Agent) -> _Levels:
    tools = probe_tree(agent)
    policy, models = agent.delegation or DEFAULT_POLICY, resolve_models(agent)
    check_budgets(agent, models)
    levels = _LevelFactory(
        models=models,
        tools=tools,
        heights=measure_heights(agent, with_added=True),
        depth=measure_heights(agent)[agent.name],
        history=SavedHistory(),
        journal=LedgerJournal(),
        router=TaskRouter(agent, policy, partial(resolve_deriver, agent.name, policy.deriver)),
        policies=resolve_policies(agent),
        guidance=resolve_guidance(agent),
        middleware=resolve_middleware(agent),
        budgeted=find_budgeted(agent),
        reach=resolve_reach(agent, resolve_policies(agent)),
        limits=agent.limits,
        decisions=LedgerDecisions(),
    )
    levels.check_tools(agent)
    # LangGraph gives each its scope, and those of the levels below to the root.
    transformers: dict[int, Any] = {
        id(transformer): transformer
        for layers in levels.middleware.values()
        for layer in layers
        for transformer in layer.transformers
    }
    builder = levels.build_level(agent, {})
    root = builder.compile(name=agent.name, transformers=[*transformers.values()])
    made = compile_features(agent, models, levels.policies)
    return _Levels(root, fingerprint_tree(agent), find_async_only(agent), made, models)


@dataclass(frozen=True, slots=True)
class _LevelFactory:
    """Builds the levels of one tree from what they share."""

    models: Mapping[str, Any]
    tools: Mapping[int, BaseTool]
    heights: Mapping[str, int]
    depth: int
    history: SavedHistory
    journal: LedgerJournal
    router: TaskRouter
    policies: Mapping[str, DelegationPolicy]
    guidance: Mapping[str, str | Mapping[str, str] | None]
    middleware: Mapping[str, tuple[Any, ...]]
    budgeted: frozenset[str]
    reach: Mapping[str, Reach]
    limits: Limits
    decisions: LedgerDecisions

    def _add_finder(self, agent: Agent) -> Any:
        """Return the model of an agent; the offline planner also finds whom the router finds."""
        model = self.models[agent.name]
        if not (agent.subordinates and is_offline_planner(model)):
            return model
        finder = FittingSubordinate(self.router, agent.name)
        return model.model_copy(update={"finder": finder})

    def build_level(
        self,
        agent: Agent,
        inherited: RulesByName,
        superior: str = "",
        siblings: tuple[str, ...] = (),
        is_added: bool = False,
    ) -> LevelBuilder:
        """Return the level of an agent; `siblings` include itself."""
        rules = extend_rules(inherited, agent.permissions)
        names = tuple(
            subordinate.name for subordinate in agent.subordinates if isinstance(subordinate, Agent)
        )
        below = {
            subordinate.name: LazyLevel(
                subordinate.name,
                partial(self.build_level, subordinate, rules, agent.name, names)
                if isinstance(subordinate, Agent)
                else partial(build_foreign_level, subordinate, self.history, self.journal),
            )
            for subordinate in agent.subordinates
        }
        policy = self.policies[agent.name]
        position = LevelPosition(
            agent=agent,
            model=self._add_finder(agent),
            can_call=supports_tool_calls(self.models[agent.name]),
            reports=bool(superior),
            depth=self.depth,
            # Those of a policy are not meant for people.
            timeouts={
                subordinate.name: subordinate.timeout
                if isinstance(subordinate, Human)
                else policy.compute_timeout(self.heights[subordinate.name])
                for subordinate in agent.subordinates
            },
            tools=self.tools,
            history=self.history,
            journal=self.journal,
            router=self.router,
            policy=policy,
            decisions=self.decisions,
            width=self.limits.width,
            max_refusals=self.limits.max_refusals,
            result_tokens=self.limits.result_tokens,
            max_repeats=self.limits.max_repeats,
            siblings=siblings,
            superior_policy=self.policies[superior] if superior else None,
            rules=rules,
            guidance=self.guidance[agent.name],
            middleware=self.middleware[agent.name],
            has_budget=agent.name in self.budgeted,
            build_added_level=lambda added: LazyLevel(
                added.name, partial(self._build_added, agent.name, rules, added)
            ),
            is_added=is_added,
            models=self.models,
            reach=self.reach[agent.name],
        )
        return build_agent_level(position, below)

    def check_tools(self, root: Agent, superior: str = "") -> None:
        """Check the tools of all agents of a tree, see `ToolLimits.check`."""

        def list_built_in(agent: Agent, names: frozenset[str]) -> Sequence[str]:
            model = self.models[agent.name]
            place = Place(
                agent=agent,
                model=model,
                can_call=supports_tool_calls(model),
                reports=bool(superior) or agent is not root,
                policy=self.policies[agent.name],
                reach=self.reach[agent.name],
            )
            tools = list_built_in_tools(place, bind_features(place), names, LongResults(None))
            return [tool.name for tool in choose_shown_tools(agent, tools)]

        superiors = (superior,) if superior else ()
        ToolLimits(self.models, self.tools, self.middleware, list_built_in, superiors).check(root)

    def _build_added(self, superior: str, inherited: RulesByName, added: Agent) -> LevelBuilder:
        """Return the level of an agent that was made at run time, the root of a tree of its own."""
        # Names below it are for itself, so those of two made after the same agent do not meet. What
        # is wrong with it is known when it runs, and is then its failure.
        tools = probe_tree(added)
        policy, depth = self.policies[superior], measure_heights(added)[added.name]
        policies = {superior: policy, **resolve_policies(added, policy)}
        inner = replace(
            self,
            models=resolve_models(added, self.models[superior]),
            tools=tools,
            heights=measure_heights(added, with_added=True),
            depth=max(self.depth, depth),
            router=self.router.for_tree(added),
            policies=policies,
            guidance=resolve_guidance(added, self.guidance[superior]),
            middleware=resolve_middleware(added, self.middleware[superior]),
            budgeted=find_budgeted(added, superior in self.budgeted),
            reach=resolve_reach(added, policies, superior),
        )
        inner.check_tools(added, superior)
        return inner.build_level(added, inherited, superior, is_added=True)


def resolve_deriver(tree: str, deriver: Deriver | None) -> tuple[Deriver, Any]:
    """Return a tree's capability deriver, and the saver that it caches its results with, if any."""
    # A `ModelDeriver` caches its results in the ledger of the run's saver.
    if isinstance(deriver, ModelDeriver):
        saver = get_saver(get_config().get("configurable", {}))
        if saver:
            return deriver.with_store(CapabilityCache(get_ledger(saver), tree)), saver
    return deriver or derive_from_names, None


def _add_mark(input: Any) -> Any:
    """Return an input with a mark, which a thread that has none keeps."""
    return {**input, MARK_KEY: create_mark()} if isinstance(input, Mapping) else input


def _is_checked(around: RunnableConfig) -> bool:
    """Return whether a session has checked the input and the thread of a run already."""
    configurable = around["configurable"]
    return get_turn(configurable) is not None and not is_embedded(configurable)


def _resolve_thread_id(configurable: Mapping[str, Any], agent: str) -> str:
    thread_id, namespace = configurable.get("thread_id"), configurable.get("checkpoint_ns")
    if thread_id is None:
        return str(uuid4())
    if not namespace:
        return str(thread_id)
    # Embedded as a node of another graph, several runs and trees share the host's thread id.
    # That may hold lone surrogates, which `uuid5` rejects; the saver reports them, if any.
    return str(uuid5(ECHELONS_NS, sanitize_value(f"{thread_id}/{namespace}/{agent}")))


class TaskArgs(BaseModel):
    """Arguments of a tree without an input of its own."""

    task: str = Field(min_length=1, description="The task, complete in itself.")


class TreeTool(StructuredTool):
    """The tool of a tree, each of whose calls stores under a namespace of its own."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the tree, see `BaseTool.run`."""
        return super().run(*args, **separate_tool_call(kwargs))

    async def arun(self, *args: Any, **kwargs: Any) -> Any:
        """Async version of `run`."""
        return await super().arun(*args, **separate_tool_call(kwargs))


def build_agent_tool(agent: Agent, name: str | None, description: str | None) -> BaseTool:
    """Return the tool of a tree, see `Agent.as_tool`."""
    contract = agent.contract
    graph = compile_tree(agent, None, None, None, redact_secrets)
    purpose = agent.description if description is None else description
    if not isinstance(purpose, str) or not purpose.strip():
        raise invalid_field(agent.name, "description", purpose, "str; a tool needs one")

    # The host's config has its checkpointer, so the tree's steps are stored with its own.
    def run(config: RunnableConfig, **fields: Any) -> str:
        return _read_answer(graph.invoke(_build_input(fields), config), contract)

    async def arun(config: RunnableConfig, **fields: Any) -> str:
        return _read_answer(await graph.ainvoke(_build_input(fields), config), contract)

    return TreeTool.from_function(
        run,
        arun,
        name=check_name(name or agent.name),
        description=purpose,
        args_schema=(contract and contract.input) or TaskArgs,
        infer_schema=False,
        handle_tool_error=True,
    )


def _build_input(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input of the tree: a text as it is, other fields as JSON."""
    plain = {
        key: value.model_dump(mode="json", by_alias=True) if isinstance(value, BaseModel) else value
        for key, value in fields.items()
    }
    only = next(iter(plain.values())) if len(plain) == 1 else None
    task = only if isinstance(only, str) else json.dumps(plain, ensure_ascii=False, default=str)
    return {"messages": [HumanMessage(task)]}


def _read_answer(state: Mapping[str, Any], contract: Contract | None) -> str:
    """Return the answer of the tree, if it is of the contract's output."""
    text = str(state["messages"][-1].text)
    if contract is None or contract.output is None:
        return text
    try:
        return contract.read_output(text).model_dump_json(by_alias=True)
    except InvalidInput as error:
        raise ToolException(f"{text} ({error})") from error
