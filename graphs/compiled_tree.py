"""The compiled tree: a LangGraph graph that gives each run its identity and services.

`compile_tree` builds it; `Agent.compile` is the public entry.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4, uuid5

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from echelons.agent import Agent
from echelons.checkpoints.coordination.circuit_breakers import Breakers
from echelons.checkpoints.coordination.effect_journal import SavedJournal
from echelons.checkpoints.coordination.race_ledger import TreeRaces
from echelons.checkpoints.coordination.run_gate import TreeGate
from echelons.checkpoints.coordination.turns import turn_of
from echelons.checkpoints.inherited_config import saver_of
from echelons.checkpoints.ledger import MemoryLedger, ledger_of
from echelons.checkpoints.open import open_checkpointer
from echelons.checkpoints.threads.segments import SavedHistory
from echelons.delegation.policy import Delegating
from echelons.graphs.agent_models import models_of
from echelons.graphs.invocation.input_validation import admitted
from echelons.graphs.invocation.rerun import aon_and_on, on_and_on
from echelons.graphs.invocation.resume_check import acheck_resume, check_resume
from echelons.graphs.invocation.run_services import Aids, closing, gated
from echelons.graphs.lazy_level import UntouchedLevel
from echelons.graphs.level_graph import Builder, Position, agent_level, foreign_level
from echelons.graphs.pregel.state_updates import Editable
from echelons.graphs.task_router import TreeRouter
from echelons.identity.lineage import ECHELONS_NS, Identity
from echelons.text.sanitize import mend
from echelons.tree.members import Member
from echelons.tree.walk import fingerprint, walk


class AgentGraph(Editable):
    """The root of a compiled tree.

    Gives every run the identity of the root's thread and durability `"sync"`, and refuses
    to resume a thread whose interrupted agents the tree no longer has.
    """

    def __init__(self, *, agent: Agent, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.agent = agent
        self.fingerprint = fingerprint(agent)

    def copy(self, update: dict[str, Any] | None = None) -> AgentGraph:
        """Return a copy with some attributes changed, as LangGraph's server makes one."""
        attributes = {
            key: value
            for key, value in self.__dict__.items()
            if key not in ("__orig_class__", "fingerprint")
        }
        return type(self)(**{**attributes, **(update or {})})

    def stream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Run the tree, see `CompiledStateGraph.stream`.

        Raises:
            InvalidInput: The input, or the thread's id, is refused.
            MissingAgents: The thread waits in agents that this tree does not have.
        """
        around = self.around(config)
        given = admitted(input, around)
        stored = check_resume(self.agent, self.checkpointer, given, around)
        identity = self._identity(config, stored)
        aids = self._aids(around, identity)
        own = gated(config, around, identity, aids)
        run = partial(super().stream, config=own, **self._durable(around, kwargs))
        return closing(on_and_on(run, given, aids.races), aids.gate)

    def astream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Async version of `stream`."""
        around = self.around(config)
        return self._aresumed(admitted(input, around), config, around, kwargs)

    async def _aresumed(
        self,
        given: Any,
        config: RunnableConfig | None,
        around: RunnableConfig,
        kwargs: dict[str, Any],
    ) -> AsyncIterator[Any]:
        stored = await acheck_resume(self.agent, self.checkpointer, given, around)
        identity = self._identity(config, stored)
        aids = self._aids(around, identity)
        own = gated(config, around, identity, aids)
        run = partial(super().astream, config=own, **self._durable(around, kwargs))
        async with aids.gate, aclosing(aon_and_on(run, given, aids.races)) as parts:
            async for part in parts:
                yield part

    def _identity(self, config: RunnableConfig | None, stored: Identity | None) -> Identity:
        """Return the identity of a run that continues a stored turn, or begins a new one."""
        own = self._unstored(config or {})
        if own.turn:
            return own
        return replace(own, turn=stored.turn if stored else str(uuid4()))

    def _aids(self, around: RunnableConfig, identity: Identity) -> Aids:
        saver = saver_of(around["configurable"]) or self.checkpointer
        kept = saver if isinstance(saver, BaseCheckpointSaver) else None
        ledger = ledger_of(kept) if kept else MemoryLedger()
        thread_id = str(around["configurable"].get("thread_id") or identity.thread_id)
        turn = turn_of(around["configurable"])
        fence = turn.fence if turn else None
        rules = self.agent.delegating or Delegating()
        return Aids(
            TreeGate(identity, thread_id, self.agent.limits, ledger, fence, monotonic),
            Breakers(ledger, self.agent.name, rules.breaking),
            TreeRaces(ledger, thread_id, identity.turn, fence),
        )

    def _unstored(self, config: RunnableConfig) -> Identity:
        around = self.around(config)
        configurable, metadata = around["configurable"], around.get("metadata") or {}
        turn = turn_of(configurable)
        # Inside another tree, it is below the agent whose node runs it.
        above = Identity.read(metadata) if configurable.get("checkpoint_ns") else None
        return Identity(
            agent=self.agent.name,
            path=(*(above.path if above else ()), self.agent.name),
            thread_id=_thread_id(configurable, self.agent.name),
            tree=self.fingerprint,
            superior_thread_id=above.thread_id if above else "",
            thread_name=str(metadata.get("thread_name", "")),
            turn=turn.id if turn else above.turn if above else "",
        )

    def _durable(self, around: RunnableConfig, kwargs: dict[str, Any]) -> dict[str, Any]:
        # With LangGraph's default, "async", a tool can run twice after a crash. Without a
        # checkpointer, LangGraph warns of any durability.
        kept = saver_of(around["configurable"]) or self.checkpointer
        return {**kwargs, "durability": kwargs.get("durability") or "sync"} if kept else kwargs


def compile_tree(
    agent: Agent,
    checkpointer: BaseCheckpointSaver[Any] | str | Path | None,
    store: BaseStore | None,
) -> AgentGraph:
    """Compile a tree, see `Agent.compile`."""
    levels = _Levels(
        models=models_of(agent),
        depth=max(len(place.path) for place in walk(agent)),
        history=SavedHistory(),
        journal=SavedJournal(),
        router=TreeRouter(agent, agent.delegating or Delegating()),
        rules=rules_of(agent),
        width=agent.limits.width,
    )
    compiled = levels.of_agent(agent, reports=False).compile(
        checkpointer=open_checkpointer(checkpointer), store=store, name=agent.name
    )
    return AgentGraph(agent=agent, **compiled.__dict__)


@dataclass(frozen=True, slots=True)
class _Levels:
    """Builds the levels of one tree from what they share."""

    models: Mapping[str, BaseChatModel]
    depth: int
    history: SavedHistory
    journal: SavedJournal
    router: TreeRouter
    rules: Mapping[str, Delegating]
    width: int | None

    def of_agent(self, agent: Agent, reports: bool) -> Builder:
        below = {
            member.name: UntouchedLevel(member.name, partial(self._of_member, member))
            for member in agent.subordinates
        }
        position = Position(
            model=self.models[agent.name],
            reports=reports,
            depth=self.depth,
            history=self.history,
            journal=self.journal,
            finder=self.router,
            rules=self.rules[agent.name],
            width=self.width,
        )
        return agent_level(agent, position, below)

    def _of_member(self, member: Member) -> Builder:
        if isinstance(member, Agent):
            return self.of_agent(member, reports=True)
        return foreign_level(member, self.history)


def rules_of(root: Agent) -> dict[str, Delegating]:
    """Return the delegation policy of every agent: its own, or its superior's."""
    rules: dict[str, Delegating] = {}
    for place in walk(root):
        if isinstance(place.member, Agent):
            above = rules[place.path[-2]] if len(place.path) > 1 else Delegating()
            rules[place.member.name] = place.member.delegating or above
    return rules


def _thread_id(configurable: Mapping[str, Any], agent: str) -> str:
    given, namespace = configurable.get("thread_id"), configurable.get("checkpoint_ns")
    if given is None:
        return str(uuid4())
    if not namespace:
        return str(given)
    # Embedded as a node of another graph, several runs and trees share the host's thread id.
    # That may hold lone surrogates, which `uuid5` rejects; the saver reports them, if any.
    return str(uuid5(ECHELONS_NS, mend(f"{given}/{namespace}/{agent}")))
