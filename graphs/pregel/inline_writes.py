"""Synchronous runs that write checkpoints in the calling thread.

LangGraph gives every graph a thread pool, submits each write for the checkpointer to it, and
waits for the result. A tree has a pool for each nested graph: the round trips were a third of
the cost of a synchronous run. With durability `"sync"` nothing happens meanwhile, so the
calling thread can write as well.

For the same reason, a stream waits for its events without a thread of the pool. It would wait for
ever if steps that are held back have all threads, or if nothing takes events any more.

LangGraph has no hook for it: a run is LangGraph's own `stream` with another loop class and
another queue. Where LangGraph has changed, or its `stream` has been replaced, LangGraph's own
is used unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Semaphore
from types import FunctionType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel

from echelons.checkpoints.coordination.turns import TURN_KEY, get_turn
from echelons.langgraph_internals import STREAM_QUEUE_NAME, SyncPregelLoop

LOOP_NAME = SyncPregelLoop.__name__
"""The global name under which LangGraph's `stream` looks up its loop class."""


class EventQueue:
    """The events of a stream, with a future for the next one; the interface is LangGraph's.

    LangGraph's own queue waits for the next event in a thread.
    """

    def __init__(self) -> None:
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._next: Future[None] | None = None
        self._lock = Lock()
        self.get = self._events.get_nowait
        # What LangGraph releases at the end of a stream, for the thread that waits.
        self._count = Semaphore(0)

    def put(self, event: Any) -> None:
        """Add an event."""
        self._events.put(event)
        if self._next:
            self._announce()

    def wait(self) -> Future[None]:
        """Return a future that is done as soon as there is an event."""
        waiting = self._next = Future()
        # Only now: an event that was added before has not seen the future.
        if not self._events.empty():
            self._announce()
        return waiting

    def _announce(self) -> None:
        with self._lock:
            waiting, self._next = self._next, None
        if waiting:
            waiting.set_result(None)


class InlineLoop(SyncPregelLoop):
    """LangGraph's loop, with the checkpointer's writes in the calling thread."""

    # LangGraph assigns its pool's `submit`, and reads the attribute for each piece of work.
    @property
    def submit(self) -> Callable[..., Future[Any]]:
        """Return the function that runs work inline, or submits it to the pool."""
        return self._run_inline

    @submit.setter
    def submit(self, pooled: Callable[..., Future[Any]]) -> None:
        self._pooled = pooled
        # Assigned when the pool is on the stack: what is put there now is unwound before it.
        configurable = self.config["configurable"]
        if TURN_KEY in configurable and not self.is_nested:
            turn = get_turn(configurable)
            if turn and turn.backpressure:
                turn.backpressure.guard_loop(self.stack)

    def _run_inline(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        stores = work in (self.checkpointer_put_writes, self._checkpointer_put_after_previous)
        if not stores or self.durability != "sync":
            owner = getattr(work, "__self__", None)
            if isinstance(owner, EventQueue):
                return owner.wait()
            return self._pooled(work, *args, **kwargs)
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  raised by the future's reader
            done.set_exception(error)
            # Some futures are never read: the pool raises their errors when the run leaves it.
            return self._pooled(done.result)
        return done


def replace_loop(stream: FunctionType) -> FunctionType | None:
    """Return a copy of LangGraph's `stream` with our loop and queue.

    `None` if it has no such globals.
    """
    globals_ = stream.__globals__
    if globals_.get(LOOP_NAME) is not SyncPregelLoop or STREAM_QUEUE_NAME not in globals_:
        return None
    own = FunctionType(
        stream.__code__,
        {**globals_, LOOP_NAME: InlineLoop, STREAM_QUEUE_NAME: EventQueue},
        stream.__name__,
        stream.__defaults__,
        stream.__closure__,
    )
    own.__kwdefaults__ = stream.__kwdefaults__
    return own


_PREGEL_STREAM = Pregel.stream
_INLINE_STREAM = replace_loop(_PREGEL_STREAM) if isinstance(_PREGEL_STREAM, FunctionType) else None


class InlineGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A graph whose synchronous runs write checkpoints in the calling thread."""

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Run the graph, see `CompiledStateGraph.stream`."""
        if _INLINE_STREAM is None or Pregel.stream is not _PREGEL_STREAM:
            return super().stream(input, config, **kwargs)
        run: Iterator[Any] = _INLINE_STREAM(self, input, config, **kwargs)
        return run
