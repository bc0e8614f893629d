"""The base class of every node and edge, with a sync and an async body.

LangGraph finds subgraphs in the `deps` of a `RunnableLambda`, and calls `invoke` and
`ainvoke` of the Runnable that a node is. The base class offers just that: subclasses
implement the two bodies around one pure core, and name the graphs that they run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda


class Node(RunnableLambda[Any, Any], ABC):
    """A node or an edge with separate sync and async bodies.

    `subgraphs` are the graphs that it invokes, which LangGraph lists as its subgraphs.
    """

    def __init__(self, name: str, subgraphs: Sequence[Runnable[Any, Any]] = ()) -> None:
        # Not RunnableLambda.__init__: it inspects and wraps functions, at a cost for each call.
        self.name = name
        self.func = self.invoke
        self.afunc = self.ainvoke
        self._subgraphs = list(subgraphs)

    @property
    def deps(  # pyright: ignore[reportIncompatibleVariableOverride]  # theirs is cached
        self,
    ) -> list[Runnable[Any, Any]]:
        """The graphs that this node runs."""
        return self._subgraphs

    @abstractmethod
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the node, blocking the calling thread."""

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Async version of `invoke`; a node whose `invoke` may block overrides it."""
        return self.invoke(input, config, **kwargs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:  # type: ignore[override]  # RunnableLambda has none
        return id(self)
