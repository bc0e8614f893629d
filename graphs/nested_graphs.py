"""Graphs whose state can be updated by hand, and nested ones that start with their first node.

An update by Studio, or by any caller of `update_state`, runs the edges of a node with the caller's
config only, and stores a checkpoint with the caller's metadata only: the identity that a run would
carry is read from the checkpoint that is updated.

LangGraph gives every graph a step before the first, in which `__start__` forwards the input. A tree
pays for it twice a level, for nothing: the caller of a nested graph knows its first node. Such a
graph is inspected as LangGraph made it, and run by a copy whose input also triggers the first node.
LangGraph also merges the config of a call with the config around it, and each of its values with
itself: a nested graph whose config is the one around it is run without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.graph import Graph
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import StateUpdate

from echelons.checkpoints.delta_channels import normalize_messages
from echelons.checkpoints.queries import (
    OneCheckpoint,
    ReadPlan,
    arun_plan,
    check_named_checkpoints,
    list_named_checkpoints,
    run_plan,
)
from echelons.checkpoints.run_config import get_saver, split_namespace
from echelons.checkpoints.threads.store import hide_library_metadata
from echelons.errors import invalid_option
from echelons.graphs.inline_writes import InlineGraph
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import BRANCH_PREFIX, parent_config
from echelons.nodes.request_queue import DISPATCH
from echelons.text.input_limits import list_items, refuse_unreadable, shorten_repr

Supersteps = Sequence[Sequence[StateUpdate]]


class _EditedPlace(NamedTuple):
    """What an update changes: the checkpoint and its saver, if it is stored anywhere."""

    saver: Any = None
    checkpoint: OneCheckpoint | None = None


class EditableGraph(InlineGraph):
    """A graph whose `update_state` keeps the agent's identity."""

    def bulk_update_state(self, config: RunnableConfig, supersteps: Supersteps) -> RunnableConfig:
        """Update a stored state, see `CompiledStateGraph.bulk_update_state`.

        Raises:
            ThreadError: The config names a checkpoint that the thread does not have.
            InvalidInput: The `messages` of an update are not messages; the config names the state
                of an agent whose node is `dispatch`.
        """
        around = self.merge_call_config(config)
        place = self._find_edited_checkpoint(around)
        identity = run_plan(place.saver, self._read_identity(place, around))
        with _with_identity_in_context(identity, config, around) as named:
            return super().bulk_update_state(named, _convert_messages(supersteps))

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Supersteps
    ) -> RunnableConfig:
        """Async version of `bulk_update_state`."""
        around = self.merge_call_config(config)
        place = self._find_edited_checkpoint(around)
        identity = await arun_plan(place.saver, self._read_identity(place, around))
        with _with_identity_in_context(identity, config, around) as named:
            return await super().abulk_update_state(named, _convert_messages(supersteps))

    def merge_call_config(self, config: RunnableConfig | None) -> RunnableConfig:
        """Return a call's config, merged with the graph's own and the one around the call."""
        with refuse_unreadable(lambda why: invalid_option("config", shorten_repr(config), why)):
            configurable: Any = (config or {}).get("configurable") or {}
            if not isinstance(configurable, Mapping):
                raise invalid_option("configurable", shorten_repr(configurable), "it is no mapping")
            for key in list_items(configurable):
                if not isinstance(key, str):
                    raise invalid_option("configurable", shorten_repr(key), "a key is a text")
            # Few graphs have a config of their own, and merging makes every config whole first.
            return ensure_config(merge_configs(self.config, config) if self.config else config)

    def build_initial_identity(self, around: RunnableConfig) -> Identity | None:
        """Return the identity of the state where nothing is stored yet."""
        return None

    def _read_identity(
        self, place: _EditedPlace, around: RunnableConfig
    ) -> ReadPlan[Identity | None]:
        stored = None
        if place.checkpoint:
            yield from check_named_checkpoints(list_named_checkpoints(around["configurable"]))
            saved = yield place.checkpoint
            stored = Identity.from_metadata(saved.metadata) if saved else None
        return stored or self.build_initial_identity(around)

    def _find_edited_checkpoint(self, around: RunnableConfig) -> _EditedPlace:
        configurable = around["configurable"]
        saver, thread_id = (
            get_saver(configurable) or self.checkpointer,
            configurable.get("thread_id"),
        )
        if not isinstance(saver, BaseCheckpointSaver) or thread_id is None:
            return _EditedPlace()
        namespace = str(configurable.get("checkpoint_ns") or "")
        nodes = (part.partition(":")[0] for part in split_namespace(namespace))
        if DISPATCH in nodes:
            # LangGraph looks for one graph of the node, and it has as many as agents.
            why = (
                f"the state of an agent whose node is {DISPATCH!r} cannot be edited; send it a "
                "message (Session.send_message, Session.steer), or edit its superior's state"
            )
            raise invalid_option("checkpoint_ns", namespace, why)
        checkpoint_id = configurable.get("checkpoint_id") or None
        return _EditedPlace(saver, OneCheckpoint(str(thread_id), namespace, checkpoint_id))


def _convert_messages(supersteps: Supersteps) -> Supersteps:
    return [
        [update._replace(values=normalize_messages(update.values)) for update in step]
        for step in supersteps
    ]


@contextmanager
def _with_identity_in_context(
    identity: Identity | None, config: RunnableConfig, around: RunnableConfig
) -> Iterator[RunnableConfig]:
    metadata: dict[str, str | None] = {**hide_library_metadata(around.get("metadata") or {})}
    metadata |= identity.to_metadata() if identity else {}
    # LangGraph drops a config's metadata after the first of several steps; the config around
    # the call reaches them all.
    token = parent_config.set(_with_metadata(metadata, parent_config.get() or {}))
    try:
        yield _with_metadata(metadata, config)
    finally:
        parent_config.reset(token)


def _with_metadata(metadata: Mapping[str, str | None], config: RunnableConfig) -> RunnableConfig:
    return {**config, "metadata": {**(config.get("metadata") or {}), **metadata}}


class TreeDrawing(Graph):
    """The graph of a tree, in which graphs of several agents have the same name.

    LangChain draws Mermaid only with unique names; a graph keeps those of LangGraph elsewhere, by
    which Studio finds its nodes.
    """

    def draw_mermaid(self, **options: Any) -> str:
        """Draw the graph as Mermaid, see `Graph.draw_mermaid`."""
        groups = {id_.rpartition(":")[0] for id_ in self.nodes if ":" in id_}
        parts = {group: group.split(":") for group in groups}
        taken = Counter(path[-1] for path in parts.values())
        labels = {
            # An agent's name is unique in its tree; a graph of its own has it behind its name.
            group: path[-1] if taken[path[-1]] == 1 or len(path) == 1 else "-".join(path[:-3:-1])
            for group, path in parts.items()
        }

        def rename(id_: str) -> str:
            *above, name = id_.split(":")
            ways = (":".join(above[: end + 1]) for end in range(len(above)))
            return ":".join([*(labels.get(way, way) for way in ways), name])

        names = {id_: rename(id_) for id_ in self.nodes}
        nodes = {
            names[id_]: node.copy(id=names[id_], name=names[id_])
            for id_, node in self.nodes.items()
        }
        edges = [
            edge.copy(source=names[edge.source], target=names[edge.target]) for edge in self.edges
        ]
        return Graph(nodes, edges).draw_mermaid(**options)


EntrySelector: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
"""Returns the name of the first node from an input and a config."""


class DirectGraph(EditableGraph):
    """A nested graph without the step before its first node, which `entry` names."""

    def __init__(self, *, entry: EntrySelector, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.entry = entry
        keys = self.builder.schemas[self.builder.input_schema]
        triggers = [f"{BRANCH_PREFIX}{node}" for node in self.builder.nodes]
        self.run_fields = {**kwargs, "input_channels": [*keys, *triggers]}

    @cached_property
    def runner(self) -> InlineGraph:
        """The copy that runs."""
        return InlineGraph(**self.run_fields)

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Run the graph, see `CompiledStateGraph.stream`."""
        runner, triggered = self.prepare_run(input, config)
        return runner.stream(triggered, _without_inherited(config), **kwargs)

    def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Async version of `stream`."""
        runner, triggered = self.prepare_run(input, config)
        return runner.astream(triggered, _without_inherited(config), **kwargs)

    def prepare_run(self, input: Any, config: RunnableConfig | None) -> tuple[InlineGraph, Any]:
        """Return the copy that runs an input, and the input as it takes it."""
        started = self.add_trigger(input, config) if isinstance(input, Mapping) else input
        return self.runner, started

    def add_trigger(
        self, input: Mapping[str, Any], config: RunnableConfig | None
    ) -> dict[str, Any]:
        """Return an input with the trigger of the first node."""
        return {**input, f"{BRANCH_PREFIX}{self.entry(input, config or {})}": None}


def _without_inherited(config: RunnableConfig | None) -> RunnableConfig | None:
    """Return a config without what LangGraph also takes from the config around the call."""
    if config is None or config is not parent_config.get():
        return config
    # These tell LangGraph that the graph is nested.
    return {"configurable": config["configurable"]}
