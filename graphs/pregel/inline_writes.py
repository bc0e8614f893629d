"""Synchronous runs that store in the thread that runs them.

LangGraph gives every graph a pool of threads, hands each write for the checkpointer to it, and
waits until it has come back. A tree has a pool for each nested graph: the way there and back
was a third of what a synchronous run cost. With durability `"sync"` nothing goes on meanwhile,
so the caller may as well write himself.

LangGraph has no hook for it. This is the one module that knows its loop: a run is LangGraph's
own `stream` with another loop, and where LangGraph is not as it was when this was written, or
somebody else has replaced its `stream`, its own is used as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FunctionType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.pregel._loop import SyncPregelLoop

LOOP = SyncPregelLoop.__name__
"""What LangGraph's `stream` calls its loop."""


class InCaller(SyncPregelLoop):
    """LangGraph's loop, but for who does the writing."""

    # LangGraph sets the way into its pool, and asks for it whenever there is something to do.
    @property
    def submit(self) -> Callable[..., Future[Any]]:
        """Return the way to have something done."""
        return self._have_done

    @submit.setter
    def submit(self, pooled: Callable[..., Future[Any]]) -> None:
        self._pooled = pooled

    def _have_done(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        stores = work in (self.checkpointer_put_writes, self._checkpointer_put_after_previous)
        if not stores or self.durability != "sync":
            return self._pooled(work, *args, **kwargs)
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  raised by whoever waits for it, as a pool's is
            done.set_exception(error)
            # Nobody waits for some writes: those that failed end the run when it leaves the pool.
            return self._pooled(done.result)
        return done


def with_loop(stream: FunctionType) -> FunctionType | None:
    """Return LangGraph's `stream` with our loop; `None` if it uses none of that name."""
    if stream.__globals__.get(LOOP) is not SyncPregelLoop:
        return None
    own = FunctionType(
        stream.__code__,
        {**stream.__globals__, LOOP: InCaller},
        stream.__name__,
        stream.__defaults__,
        stream.__closure__,
    )
    own.__kwdefaults__ = stream.__kwdefaults__
    return own


_THEIRS = Pregel.stream
_OURS = with_loop(_THEIRS) if isinstance(_THEIRS, FunctionType) else None


class Inline(CompiledStateGraph[Any, Any, Any, Any]):
    """A graph whose synchronous runs store in the thread that runs them."""

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Run the graph, see `CompiledStateGraph.stream`."""
        if _OURS is None or Pregel.stream is not _THEIRS:
            return super().stream(input, config, **kwargs)
        run: Iterator[Any] = _OURS(self, input, config, **kwargs)
        return run
