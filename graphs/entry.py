"""`enter_tree`: the one way into a tree, whatever runs it.

A session, and so the command line and the MCP server, runs an `AgentGraph`, as do a tool or a
function of another agent, `as_tool`, and a graph around the tree. Each run enters here: it gets a
gate and services of its own, within what the tree around it passes down. A subordinate enters its
level by `RunContext.enter_level`.

A run may end with an interrupt that has become obsolete: of several agents asked in parallel, one
may wait for a person when the others already suffice. LangGraph ends the run then, as every task of
a superstep must end; it is started again at once, and the waiting agent finds that it has lost.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid5

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import INTERRUPT

from echelons.checkpoints.coordination.candidates import TreeBreakers, TreeRaces
from echelons.checkpoints.coordination.gate import TreeGate
from echelons.checkpoints.ledger import MemoryLedger, get_ledger
from echelons.checkpoints.run_config import get_saver, is_embedded, with_saver
from echelons.checkpoints.storage.connection import IN_MEMORY
from echelons.checkpoints.threads.store import hide_library_metadata
from echelons.delegation.join import Races
from echelons.delegation.policy import DEFAULT_POLICY
from echelons.errors import DelegationError
from echelons.features.feature import GateScope
from echelons.features.registry import open_guards
from echelons.guards.budget import get_allowance
from echelons.guards.gate import InnerRow, OuterStep
from echelons.identity.failures import FailureLog
from echelons.identity.lineage import ECHELONS_NS, Identity
from echelons.langgraph_internals import (
    CHECKPOINT_MAP_KEY,
    PULL,
    SCRATCHPAD_KEY,
    TASK_PATH_KEY,
    parent_config,
)
from echelons.nodes.attempt import is_failure
from echelons.run_context import CONTEXT_KEY, RunContext, get_context
from echelons.text.error_lines import sanitize_value
from echelons.tree.members import measure_heights
from echelons.tree.permission_rules import get_rights

if TYPE_CHECKING:
    from echelons.agent import Agent
    from echelons.graphs.compiled_tree import AgentGraph


NO_RECURSION_LIMIT = 10**9
"""The `recursion_limit` of a caller who sets none: higher than any limit of a tree. LangGraph's
counts the steps of each graph by itself, those of the tree count all."""


class TreeEntry(NamedTuple):
    """A run that enters a tree; its config has the context of the root."""

    config: RunnableConfig
    gate: TreeGate
    races: Races
    failures: FailureLog
    saver: Any


def enter_tree(
    graph: AgentGraph, identity: Identity, config: RunnableConfig | None, around: RunnableConfig
) -> TreeEntry:
    """Return a run of a tree; `around` is the config, merged with the one around the call."""
    agent, configurable = graph.agent, around["configurable"]
    levels_above = check_depth(agent, around)
    inherited, context_around = _find_inherited(around), get_context(around)
    turn = context_around.turn
    saver = get_saver(configurable) or graph.checkpointer
    ledger = get_ledger(saver) if isinstance(saver, BaseCheckpointSaver) else MemoryLedger()
    thread_id = str(configurable.get("thread_id") or identity.thread_id)
    fence = turn.fence if turn else None
    gate = TreeGate(identity, thread_id, agent.limits, ledger, fence, monotonic)
    caller = find_caller(around)
    outer = get_context(caller)
    if outer.gate:
        # A run without a thread of its own is stored with the step around it.
        is_nested = caller is around and get_saver(configurable) is not None
        rows: InnerRow = "" if is_nested else _find_rows(saver, caller)
        gate.outer = OuterStep(outer.gate, caller, rows)
    if turn:
        # Let the gate of a run take part in its turn.
        gate.backpressure = turn.backpressure
        gate.hidden_messages = turn.hidden_messages
        gate.note_usage = turn.note_usage
        mark = turn.answer_mark
        # A tree that a tool runs is not held: the tool would begin again.
        if mark and not is_embedded(configurable):
            gate.answer_mark, gate.held_attempts = mark, mark.held_attempts
            gate.note_orders = turn.note_orders
    scope = GateScope(
        agent,
        identity,
        thread_id,
        ledger,
        saver if isinstance(saver, BaseCheckpointSaver) else None,
        turn,
        inherited,
        get_allowance(around),
        configurable,
        monotonic,
    )
    gate.add_guards(open_guards(scope))
    rules = agent.delegation or DEFAULT_POLICY
    races = TreeRaces(ledger, thread_id, identity.turn, fence)
    inner = inherited.enter_tree(outer, get_rights(agent))
    context = replace(
        inner,
        gate=gate,
        circuits=TreeBreakers(ledger, rules.breaker_scope, rules.breaker),
        races=races,
        failures=graph.failures,
        contract=agent.contract,
        levels_around=levels_above + 1 - len(identity.path),
        max_depth=min(levels_above + agent.limits.depth, outer.max_depth),
    )
    if inherited.allowance:
        context = replace(context, allowance=get_allowance({}, gate))
    config_within = _build_config(config or {}, around, identity, context)
    return TreeEntry(config_within, gate, races, graph.failures, saver)


def find_caller(around: RunnableConfig) -> RunnableConfig:
    """Return the config of the agent's node that runs a tree; an empty one outside of a tree."""
    # A run on a thread of its own has a context of its own, or none. A thread that a tool starts
    # by itself has no config around it, and begins anew.
    return around if get_context(around).gate else parent_config.get() or {}


def _find_rows(saver: Any, caller: RunnableConfig) -> InnerRow:
    """Return where the rows of an inner tree stand, as the step around it sees it."""
    outer = get_saver(caller["configurable"])
    paths = {getattr(known, "path", IN_MEMORY) for known in (outer, saver)}
    is_same_file = IN_MEMORY not in paths and len({*map(os.path.realpath, paths)}) == 1
    return "here" if outer is not None and (saver is outer or is_same_file) else "elsewhere"


def check_depth(agent: Agent, around: RunnableConfig) -> int:
    """Check the levels of a tree within those around it, and return how many these are.

    Raises:
        DelegationError: It would be deeper than the trees around allow.
    """
    caller = find_caller(around)
    context, identity = get_context(caller), Identity.from_metadata(caller.get("metadata") or {})
    if context.gate is None or identity is None:
        return 0
    above = context.levels_around + len(identity.path)
    if (deepest := above + measure_heights(agent)[agent.name]) > context.max_depth:
        raise DelegationError(
            "{agent!r} would go down to level {depth}, trees within trees counted, and no agent "
            "may be below {limit}; flatten them, and see that none runs itself again",
            code="depth",
            agent=agent.name,
            depth=deepest,
            limit=context.max_depth,
        )
    return above


def _find_inherited(around: RunnableConfig) -> RunContext:
    """Return the context that a run of a tree takes over; an empty one outside of a tree."""
    configurable = around["configurable"]
    if CONTEXT_KEY in configurable or configurable.get("thread_id") is not None:
        return get_context(around)
    # LangGraph merges a call's config with that around it, unless the call names a thread.
    return get_context(parent_config.get())


def _build_config(
    config: RunnableConfig, around: RunnableConfig, identity: Identity, context: RunContext
) -> RunnableConfig:
    """Return the config of a run with its identity and its context."""
    whole: RunnableConfig = {
        **config,
        "metadata": {
            **(config.get("metadata") or {}),
            **hide_library_metadata(around.get("metadata") or {}),
            **identity.to_metadata(),
        },
        "configurable": {**around["configurable"], CONTEXT_KEY: context},
    }
    # LangGraph's own default is a subclass of `int`, which subgraphs inherit.
    if type(config.get("recursion_limit")) is not int:
        whole["recursion_limit"] = NO_RECURSION_LIMIT
    return whole


def separate_tool_call(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a tool call that runs a tree, with a namespace of its own."""
    # LangGraph numbers the graphs that a task runs as they begin. A `ToolNode` in a plain graph
    # runs all calls of a message in one task and side by side: by that number, one that goes on
    # could take up another one's tree. A call that a `Send` has begun is a task of its own already,
    # as with `create_agent`, and so is one of an agent of ours.
    config = options.get("config") or {}
    configurable, metadata = config.get("configurable", {}), config.get("metadata") or {}
    call_id, pad = options.get("tool_call_id"), configurable.get(SCRATCHPAD_KEY)
    origin, *_ = metadata.get(TASK_PATH_KEY) or ("",)
    if pad is None or not call_id or origin != PULL or Identity.from_metadata(metadata):
        return options
    # As if each call were a task of the node.
    node, _, task_id = configurable["checkpoint_ns"].rpartition(":")
    changed = {
        **configurable,
        "checkpoint_ns": f"{node}:{uuid5(ECHELONS_NS, sanitize_value(f'{task_id}/{call_id}'))}",
        SCRATCHPAD_KEY: replace(pad, subgraph_counter=lambda: 0),
    }
    return {**options, "config": {**config, "configurable": changed}}


def stream_until_settled(
    run: Callable[..., Iterator[Any]], graph_input: Any, entry: TreeEntry
) -> Iterator[Any]:
    """Yield the parts of a run and of its reruns until no interrupt is obsolete; close the gate."""
    reruns = _Reruns(graph_input, entry)
    with entry.gate, _record_failure(reruns):
        for arguments in reruns:
            yield from filter(reruns.passes, run(**arguments))
        yield from reruns.interrupts


async def astream_until_settled(
    run: Callable[..., AsyncIterator[Any]], graph_input: Any, entry: TreeEntry
) -> AsyncGenerator[Any]:
    """Async version of `stream_until_settled`."""
    reruns = _Reruns(graph_input, entry)
    async with entry.gate, _arecord_failure(reruns):
        for arguments in reruns:
            # Closed with this generator: LangGraph cancels at once, not at garbage collection.
            async with aclosing(cast("AsyncGenerator[Any]", run(**arguments))) as parts:
                async for part in parts:
                    if reruns.passes(part):
                        yield part
        for interrupt in reruns.interrupts:
            yield interrupt


class _Reruns:
    """Iterates over the arguments of a tree's runs, until no interrupt is obsolete.

    Attributes:
        entry: The run that enters the tree.
        interrupts: The interrupts of the latest run; those of the last one are passed on.
    """

    def __init__(self, graph_input: Any, entry: TreeEntry) -> None:
        self.entry = entry
        self._config = entry.config
        self.interrupts: list[Any] = []
        self._input = graph_input

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # Reruns have no input, and begin at the checkpoint that the run before has ended with.
        while True:
            self.entry.races.begin()
            self.interrupts = []
            yield {"input": self._input, "config": self._config}
            if not self.entry.races.has_obsolete_interrupt:
                return
            self._input, self._config = None, _without_checkpoint(self._config)

    def get_config(self) -> RunnableConfig:
        """Return the config of the latest run, with its saver."""
        return with_saver(self._config, self.entry.saver)

    def passes(self, part: Any) -> bool:
        """Return whether a part of a run is passed on at once: it is no interrupt of the root."""
        payload = part
        if isinstance(part, tuple):
            if part[0] and isinstance(part[0], tuple):  # of a subgraph
                return True
            payload = part[-1]
        if isinstance(payload, dict) and INTERRUPT in payload:
            self.interrupts.append(part)
            return False
        return True


@contextmanager
def _record_failure(reruns: _Reruns) -> Iterator[None]:
    """Record the failure that leaves a tree."""
    try:
        yield
    except Exception as error:
        if is_failure(error):
            reruns.entry.failures.record(error, reruns.get_config(), leaves=True)
        raise


@asynccontextmanager
async def _arecord_failure(reruns: _Reruns) -> AsyncIterator[None]:
    """Async version of `_record_failure`."""
    try:
        yield
    except Exception as error:
        if is_failure(error):
            await reruns.entry.failures.arecord(error, reruns.get_config(), leaves=True)
        raise


def _without_checkpoint(config: RunnableConfig) -> RunnableConfig:
    """Return a run's config without the past checkpoint that it named, if it did."""
    named = ("checkpoint_id", CHECKPOINT_MAP_KEY)
    kept = {key: value for key, value in config["configurable"].items() if key not in named}
    return {**config, "configurable": kept}
