"""The base class of nodes and edges, with a sync and an async body, and their cancellation."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from echelons.guards.gate import Halt, get_gate


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


class CancelOnStop:
    """A block that is cancelled when the agent of a config is stopped.

    Attributes:
        halt: Why the block was cancelled; `None` if it was not.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.halt: Halt | None = None
        self._config = config
        self._inside = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a subordinate is run outside of a task")
        self._loop, self._task, self._before = task.get_loop(), task, task.cancelling()
        self._inside = True
        self._stop_listening = get_gate(self._config).listen(self._config, self._on_halt)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._inside = False
        self._stop_listening()
        if self.halt is None:
            return False
        # Another cancellation of the task must stay in effect.
        only_ours = self._task.uncancel() <= self._before
        return only_ours and kind is asyncio.CancelledError

    def _on_halt(self, halt: Halt) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing runs any more
            self._loop.call_soon_threadsafe(self._cancel, halt)

    def _cancel(self, halt: Halt) -> None:
        if self._inside and self.halt is None:
            self.halt = halt
            self._task.cancel()
