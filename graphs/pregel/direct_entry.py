"""Nested graphs that start with their first node directly.

LangGraph gives every graph a step before the first, in which `__start__` forwards the input.
A tree pays for it twice a level, for nothing: the caller of a nested graph knows its first
node. Such a graph is inspected as LangGraph made it, and run by a copy whose input also
triggers the first node.

LangGraph merges the config of a call with the config around it, and each of its values with
itself. A nested graph whose config is the one around it is run without.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig

from echelons.graphs.pregel.inline_writes import InlineGraph
from echelons.graphs.pregel.state_updates import EditableGraph
from echelons.langgraph_internals import BRANCH_PREFIX, parent_config

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
        runner, given = self._prepare_run(input, config)
        return runner.stream(given, _without_inherited(config), **kwargs)

    def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Async version of `stream`."""
        runner, given = self._prepare_run(input, config)
        return runner.astream(given, _without_inherited(config), **kwargs)

    def _prepare_run(self, given: Any, config: RunnableConfig | None) -> tuple[InlineGraph, Any]:
        """Return the copy that runs an input, and the input as it takes it."""
        started = self._start(given, config) if isinstance(given, Mapping) else given
        return self.runner, started

    def _start(self, given: Mapping[str, Any], config: RunnableConfig | None) -> dict[str, Any]:
        """Return an input with the trigger of the first node."""
        return {**given, f"{BRANCH_PREFIX}{self.entry(given, config or {})}": None}


def _without_inherited(config: RunnableConfig | None) -> RunnableConfig | None:
    """Return a config without what LangGraph also takes from the config around the call."""
    if config is None or config is not parent_config.get():
        return config
    # These tell LangGraph that the graph is nested.
    return {"configurable": config["configurable"]}
