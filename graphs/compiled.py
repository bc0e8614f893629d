"""The compiled tree: an ordinary LangGraph graph that knows whose conversation it holds.

``compile_tree`` makes it; ``Agent.compile`` is the user's way in. ``AgentGraph`` is the
root; the levels below are ``LevelGraph``s, compiled when they are first touched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4, uuid5

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig, ensure_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore

from echelons import tree
from echelons.agent import Agent
from echelons.checkpoints.history import SavedHistory
from echelons.checkpoints.inherited import saver_of
from echelons.checkpoints.opening import open_checkpointer
from echelons.graphs.level import Builder, Position, agent_level, foreign_level
from echelons.graphs.resuming import acheck_resume, check_resume
from echelons.lineage import ECHELONS_NS, Identity
from echelons.members import Member
from echelons.models import resolve

Compiled = CompiledStateGraph[Any, Any, Any, Any]


class LevelGraph(Compiled):
    """The compiled graph of one level."""


class UntouchedLevel(LevelGraph):
    """A level that compiles itself at its first touch, and then is a ``LevelGraph``.

    A tree of thousands is made in milliseconds, and no inspection can tell the difference:
    anything but the type and the two facts below fills it first.
    """

    def __init__(self, name: str, build: Callable[[], Builder]) -> None:
        # Not Pregel's own: there is nothing to hold yet.
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_build", build)

    def __getattribute__(self, key: str) -> Any:
        if key in ("__class__", "__dict__", "__init__"):
            return object.__getattribute__(self, key)
        # LangGraph asks these two of every node's graph while it compiles the superior.
        if key == "checkpointer":
            return None
        if key == "name":
            return object.__getattribute__(self, "_name")
        _fill(self)
        return getattr(self, key)


def _fill(level: UntouchedLevel) -> None:
    held = object.__getattribute__(level, "__dict__")
    compiled = held["_build"]().compile(name=held["_name"])
    # Two threads may both get here; both fill in equal graphs, and the class changes last.
    held.update(compiled.__dict__)
    object.__setattr__(level, "__class__", LevelGraph)


class AgentGraph(Compiled):
    """The root of a compiled tree.

    Gives every run the identity of the root's thread and durability ``"sync"``, and refuses
    to resume a thread whose interrupted agents the tree no longer has.
    """

    def __init__(self, *, agent: Agent, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.agent = agent
        self.fingerprint = tree.fingerprint(agent)

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
        """Run the tree, see ``CompiledStateGraph.stream``.

        Raises:
            MissingAgents: The thread waits in agents that this tree does not have.
        """
        own = self._identified(config)
        check_resume(self.agent, self.checkpointer, input, own)
        return super().stream(input, own, **self._durable(own, kwargs))

    def astream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Run the tree, see ``CompiledStateGraph.astream``.

        Raises:
            MissingAgents: The thread waits in agents that this tree does not have.
        """
        own = self._identified(config)
        return self._astream(input, own, self._durable(own, kwargs))

    async def _astream(
        self, given: Any, config: RunnableConfig, kwargs: dict[str, Any]
    ) -> AsyncIterator[Any]:
        await acheck_resume(self.agent, self.checkpointer, given, config)
        async for part in super().astream(given, config, **kwargs):
            yield part

    def _identified(self, config: RunnableConfig | None) -> RunnableConfig:
        given = config or {}
        # A node that calls the tree without a config still lends its own.
        around = ensure_config(config)
        metadata = given.get("metadata") or {}
        identity = Identity(
            agent=self.agent.name,
            path=(self.agent.name,),
            thread_id=_thread_id(around.get("configurable") or {}, self.agent.name),
            tree=self.fingerprint,
            thread_name=str(metadata.get("thread_name", "")),
        )
        return {**given, "metadata": {**metadata, **identity.metadata()}}

    def _durable(self, config: RunnableConfig, kwargs: dict[str, Any]) -> dict[str, Any]:
        # With LangGraph's default, "async", a tool can run twice after a crash. Where nothing
        # is kept, it warns of any durability.
        kept = saver_of(ensure_config(config).get("configurable") or {}) or self.checkpointer
        return {**kwargs, "durability": kwargs.get("durability") or "sync"} if kept else kwargs


def compile_tree(
    agent: Agent,
    checkpointer: BaseCheckpointSaver[Any] | str | Path | None,
    store: BaseStore | None,
) -> AgentGraph:
    """Compile a tree, see ``Agent.compile``."""
    places = list(tree.walk(agent))
    # All at once, so that a missing key is known now and not in the middle of a run.
    asked = (place.member.model for place in places if isinstance(place.member, Agent))
    named = {model for model in asked if isinstance(model, str)}
    plan = _Plan(
        models={name: resolve(name) for name in sorted(named)},
        depth=max(len(place.path) for place in places),
        history=SavedHistory(),
    )
    builder = plan.agent(agent, resolve(None) if agent.model is None else None, reports=False)
    compiled = builder.compile(
        checkpointer=open_checkpointer(checkpointer), store=store, name=agent.name
    )
    return AgentGraph(agent=agent, **compiled.__dict__)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What all levels of one compiled tree share."""

    models: Mapping[str, BaseChatModel]
    depth: int
    history: SavedHistory

    def agent(self, agent: Agent, above: BaseChatModel | None, reports: bool) -> Builder:
        own = agent.model
        model = self.models[own] if isinstance(own, str) else own or above
        assert model is not None  # noqa: S101  the root always has one
        levels = {
            member.name: UntouchedLevel(member.name, self._below(member, model))
            for member in agent.subordinates
        }
        return agent_level(agent, Position(model, reports, self.depth, self.history), levels)

    def _below(self, member: Member, model: BaseChatModel) -> Callable[[], Builder]:
        if isinstance(member, Agent):
            return lambda: self.agent(member, model, reports=True)
        return lambda: foreign_level(member, self.history)


def _thread_id(configurable: Mapping[str, Any], agent: str) -> str:
    given, namespace = configurable.get("thread_id"), configurable.get("checkpoint_ns")
    if given is None:
        return str(uuid4())
    # Embedded as a node of another graph, several runs and trees share the host's thread.
    return str(uuid5(ECHELONS_NS, f"{given}/{namespace}/{agent}")) if namespace else str(given)
