"""Nested graphs that begin with their first node at once.

LangGraph gives every graph a step before the first, in which `__start__` hands the input
on. A tree pays it twice a level, for nothing: who calls a nested graph knows where it
begins. A `Direct` graph is inspected as LangGraph made it, and run by a copy whose input
goes to the first node itself. This is the one module that knows LangGraph's name for that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig

from echelons.graphs.pregel.inline_writes import Inline
from echelons.graphs.pregel.state_updates import Editable

TRIGGER = "branch:to:{}"
"""The channel that starts a node, as LangGraph names it."""

Entry: TypeAlias = Callable[[Mapping[str, Any], Mapping[str, Any]], str]
"""Tells from an input and a config which node comes first."""


class Direct(Editable):
    """A nested graph without the step before its first node.

    Args:
        entry: Tells which node comes first.
        kwargs: The attributes of a compiled graph.
    """

    def __init__(self, *, entry: Entry, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.entry = entry
        keys = self.builder.schemas[self.builder.input_schema]
        triggers = [TRIGGER.format(node) for node in self.builder.nodes]
        self._runner = Inline(**{**kwargs, "input_channels": [*keys, *triggers]})

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Run the graph, see `CompiledStateGraph.stream`."""
        return self._runner.stream(self._entered(input, config), config, **kwargs)

    def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Run the graph, see `CompiledStateGraph.astream`."""
        return self._runner.astream(self._entered(input, config), config, **kwargs)

    def _entered(self, given: Any, config: RunnableConfig | None) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {**given, TRIGGER.format(self.entry(given, config or {})): None}
