"""Runs that write checkpoints where they are, in the calling thread or the event loop.

LangGraph gives every graph a thread pool, submits each write for the checkpointer to it, and
waits for the result; in an event loop it makes a task for each write. A tree has a pool for each
nested graph: the round trips were a third of the cost of a synchronous run. With durability
`"sync"` nothing happens meanwhile, so the run can write itself. In an event loop it does so if
the database is free; if not, and for other savers, there is a task.

The writes of a step with one task are stored with the checkpoint of its end, in one transaction:
nothing is awaited between. Not so at the root, and not for questions, errors and `Send`s. Neither
is stored at the end of a delegation graph, if it was not interrupted: the superior's next write has
the answer, and the subordinate's own end is read again if the run is cut short before.

For the same reason, a stream waits for its events without a thread of the pool. It would wait for
ever if steps that are held back have all threads, or if nothing takes events any more.

LangGraph has no hook for it: a run is LangGraph's own `stream` with another loop class and
another queue, or its `astream` with another loop class. Where LangGraph has changed, or a method
has been replaced, LangGraph's own is used unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Semaphore
from types import FunctionType
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, Checkpoint
from langgraph.checkpoint.serde.types import TASKS
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel

from echelons.checkpoints.checkpointer import SqliteCheckpointer, TaskWrites
from echelons.checkpoints.coordination.turns import RootState, Turn
from echelons.checkpoints.delta_channels import MESSAGES
from echelons.checkpoints.storage.connection import DatabaseBusy
from echelons.graphs.token_stream import stream_only_tokens
from echelons.langgraph_internals import (
    RESUMING_KEY,
    STREAM_QUEUE_NAME,
    AsyncPregelLoop,
    SyncPregelLoop,
)
from echelons.run_context import get_context


class RootStateHandler(BaseCallbackHandler):
    """Notes the messages of the run whose own handler it is, when the run ends."""

    run_inline = True

    def __init__(self, state: RootState) -> None:
        self._state = state

    def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        """Note the messages."""
        self._state.messages = outputs.get(MESSAGES) if isinstance(outputs, dict) else None


def note_root_state(manager: Any, turn: Turn | None, thread_id: Any) -> None:
    """Note the state in which a run ends, if it is of the root of a session."""
    # A tool may run a graph on another thread.
    if manager and turn and turn.thread_id == thread_id:
        # Those that are not inherited by the runs below; the list itself may be shared.
        manager.handlers = [*manager.handlers, RootStateHandler(turn.root)]


class EventQueue:
    """The events of a stream, with a future for the next one; the interface is LangGraph's."""

    # LangGraph's own queue waits for the next event in a thread.

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


class StoredFuture(Future[None]):
    """A future that is done: nothing has to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.set_result(None)

    def result(self, timeout: float | None = None) -> None:
        """Return at once; a done future would take its lock for it."""


_STORED = StoredFuture()
_OWN = SqliteCheckpointer
_PUT, _PUT_WRITES, _APUT, _APUT_WRITES = _OWN.put, _OWN.put_writes, _OWN.aput, _OWN.aput_writes
_WRITERS = frozenset({"put", "put_writes", "aput", "aput_writes"})


def find_saver(saver: Any) -> SqliteCheckpointer | None:
    """Return a saver if it is ours and its writing methods have not been replaced."""
    if not isinstance(saver, SqliteCheckpointer) or not _WRITERS.isdisjoint(vars(saver)):
        return None
    kind = type(saver)
    is_sync_ours = kind.put is _PUT and kind.put_writes is _PUT_WRITES
    is_async_ours = kind.aput is _APUT and kind.aput_writes is _APUT_WRITES
    return saver if is_sync_ours and is_async_ours else None


def holds_writes(
    loop: InlineLoop | AsyncInlineLoop, writes: Sequence[tuple[str, Any]], task_id: str
) -> bool:
    """Return whether the writes of a task are stored with the checkpoint of the end of its step."""
    tasks = getattr(loop, "tasks", ())
    if not loop.is_nested or len(tasks) != 1 or task_id not in tasks:
        return False
    return not any(channel == TASKS or channel in WRITES_IDX_MAP for channel, _ in writes)


def ends_delegation(
    loop: InlineLoop | AsyncInlineLoop, held: TaskWrites | None, checkpoint: Checkpoint
) -> bool:
    """Return whether a step is the end of a delegation graph that its superior stores as well."""
    # Not so after a question, which the state would go on to show as open, and not for an answer
    # that the subordinate's own thread does not have: a failure, or a part of several.
    # Only a delegation graph has a queue. While it goes on, a request is left in it.
    if held is None or checkpoint["channel_values"].get("queue") != []:
        return False
    answers = [message for channel, value in held[1] if channel == MESSAGES for message in value]
    succeeded = all(
        isinstance(answer, ToolMessage) and answer.status != "error" for answer in answers
    )
    return bool(answers) and succeeded and not loop.config["configurable"].get(RESUMING_KEY)


class InlineLoop(SyncPregelLoop):
    """LangGraph's loop, with the checkpointer's writes in the calling thread."""

    _held_writes: TaskWrites | None = None
    _saver: SqliteCheckpointer | None = None

    def __init__(self, *args: Any, stream: Any, **kwargs: Any) -> None:
        super().__init__(*args, stream=stream, **kwargs)
        # LangGraph adds the stream of the graph around it, if that is watched.
        self._is_watched = self.stream is not stream

    # LangGraph assigns its pool's `submit`, and reads the attribute for each piece of work.
    @property
    def submit(self) -> Callable[..., Future[Any]]:
        """Return the function that runs work inline, or submits it to the pool."""
        return self._run_inline

    @submit.setter
    def submit(self, pooled: Callable[..., Future[Any]]) -> None:
        self._pooled = pooled
        self._saver = find_saver(self.checkpointer)
        # Assigned when the pool is on the stack: what is put there now is unwound before it.
        context = get_context(self.config)
        if (turn := context.turn) and not self.is_nested:
            if turn.backpressure:
                turn.backpressure.guard_loop(self.stack)
            stream_only_tokens(self.manager, context.gate)
            note_root_state(self.manager, turn, self.config["configurable"]["thread_id"])

    def _run_inline(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        if self.durability == "sync":
            if work == self.checkpointer_put_writes:
                return self._store_writes(work, *args)
            if work == self._checkpointer_put_after_previous:
                return self._store(self._put_step, *args)
        owner = getattr(work, "__self__", None)
        if isinstance(owner, EventQueue):
            return owner.wait()
        return self._pooled(work, *args, **kwargs)

    def _store_writes(self, store: Callable[..., Any], *arguments: Any) -> Future[Any]:
        # Another thread must not see an event of writes that are not stored yet.
        if self._saver and not self._is_watched and holds_writes(self, arguments[1], arguments[2]):
            self._held_writes = arguments
            return _STORED
        return self._store(store, *arguments)

    def _store(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        try:
            work(*args)
        except Exception as error:  # noqa: BLE001  raised by the future's reader
            failed: Future[Any] = Future()
            failed.set_exception(error)
            # Some futures are never read: the pool raises their errors when the run leaves it.
            return self._pooled(failed.result)
        return _STORED

    def _put_step(
        self, previous: Future[Any] | None, writes: Sequence[Future[Any]], *arguments: Any
    ) -> None:
        if self._saver is None:
            self._checkpointer_put_after_previous(previous, writes, *arguments)
            return
        held, self._held_writes = self._held_writes, None
        for write in (*writes, previous):
            if write is not None and write is not _STORED:
                write.result()
        if not ends_delegation(self, held, arguments[1]):
            self._saver.put_step(held, *arguments[:3])

    def __exit__(self, *error: Any) -> bool | None:
        if self._held_writes is not None and self._saver is not None:
            self._pooled(self._saver.put_writes, *self._held_writes)
        return super().__exit__(*error)


class AsyncInlineLoop(AsyncPregelLoop):
    """LangGraph's loop for event loops, with the checkpointer's writes in the run's own task."""

    _held_writes: TaskWrites | None = None
    _saver: SqliteCheckpointer | None = None
    _has_tasks = False

    @property
    def submit(self) -> Callable[..., Any]:
        """Return the function that runs work inline, or makes a task for it."""
        return self._run_inline

    @submit.setter
    def submit(self, pooled: Callable[..., Any]) -> None:
        self._pooled = pooled
        self._saver = find_saver(self.checkpointer) if self.durability == "sync" else None
        self._stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stored.set_result(None)
        context = get_context(self.config)
        if (turn := context.turn) and not self.is_nested:
            stream_only_tokens(self.manager, context.gate)
            note_root_state(self.manager, turn, self.config["configurable"]["thread_id"])

    def _run_inline(
        self, work: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> asyncio.Future[Any]:
        if self._saver is not None:
            if work == self.checkpointer_put_writes:
                return self._store_writes(self._saver, *args)
            if work == self._checkpointer_put_after_previous:
                return self._put_step(self._saver, *args)
        return self._make_task(work, *args, **kwargs)

    def _make_task(
        self, work: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> asyncio.Future[Any]:
        self._has_tasks = True
        future: asyncio.Future[Any] = self._pooled(work, *args, **kwargs)
        return future

    def _store_writes(self, saver: SqliteCheckpointer, *arguments: Any) -> asyncio.Future[Any]:
        if holds_writes(self, arguments[1], arguments[2]):
            self._held_writes = arguments
            return self._stored
        try:
            saver.run_at_once(saver.put_writes, *arguments)
        except DatabaseBusy:
            return self._make_task(saver.aput_writes, *arguments)
        except Exception as error:  # noqa: BLE001  raised by the future's reader
            return self._make_task(_raise_error, error)
        return self._stored

    def _put_step(
        self,
        saver: SqliteCheckpointer,
        previous: asyncio.Future[Any] | None,
        writes: Sequence[asyncio.Future[Any]],
        *arguments: Any,
    ) -> asyncio.Future[Any]:
        held, self._held_writes = self._held_writes, None
        step = held, *arguments[:3]
        before = [write for write in (*writes, previous) if write not in (None, self._stored)]
        if not before:
            if ends_delegation(self, held, arguments[1]):
                return self._stored
            try:
                saver.run_at_once(saver.put_step, *step)
            except DatabaseBusy:
                pass
            except Exception as error:  # noqa: BLE001  raised by the future's reader
                return self._make_task(_raise_error, error)
            else:
                return self._stored
        return self._make_task(_put_step_after, before, saver, *step)

    async def __aexit__(self, *error: Any) -> bool | None:
        if self._held_writes is not None and self._saver is not None:
            self._make_task(self._saver.aput_writes, *self._held_writes)
        if self._has_tasks or self._saver is None:
            return await super().__aexit__(*error)
        # Without tasks it waits for nothing, so that no cancellation can cut it short.
        return await self.stack.__aexit__(*error)


async def _put_step_after(
    before: Sequence[asyncio.Future[Any]], saver: SqliteCheckpointer, *step: Any
) -> None:
    for write in before:
        await write
    await saver.aput_step(*step)


async def _raise_error(error: Exception) -> None:
    raise error


def replace_loop(
    stream: FunctionType, theirs: type[Any], ours: type[Any], **others: type[Any]
) -> FunctionType | None:
    """Return a copy of LangGraph's `stream` or `astream` with other classes, if it has them."""
    globals_ = stream.__globals__
    if globals_.get(theirs.__name__) is not theirs or not others.keys() <= globals_.keys():
        return None
    copy = FunctionType(
        stream.__code__,
        {**globals_, theirs.__name__: ours, **others},
        stream.__name__,
        stream.__defaults__,
        stream.__closure__,
    )
    copy.__kwdefaults__ = stream.__kwdefaults__
    return copy


_PREGEL_STREAM: Any = Pregel.stream
_PREGEL_ASTREAM: Any = Pregel.astream
_INLINE_STREAM, _INLINE_ASTREAM = None, None
if isinstance(_PREGEL_STREAM, FunctionType) and isinstance(_PREGEL_ASTREAM, FunctionType):
    _INLINE_STREAM = replace_loop(
        _PREGEL_STREAM, SyncPregelLoop, InlineLoop, **{STREAM_QUEUE_NAME: EventQueue}
    )
    _INLINE_ASTREAM = replace_loop(_PREGEL_ASTREAM, AsyncPregelLoop, AsyncInlineLoop)


class InlineGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A graph whose runs write checkpoints themselves, without a thread or a task."""

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Run the graph, see `CompiledStateGraph.stream`."""
        if _INLINE_STREAM is None or Pregel.stream is not _PREGEL_STREAM:
            return super().stream(input, config, **kwargs)
        run: Iterator[Any] = _INLINE_STREAM(self, input, config, **kwargs)
        return run

    def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Async version of `stream`."""
        if _INLINE_ASTREAM is None or Pregel.astream is not _PREGEL_ASTREAM:
            return super().astream(input, config, **kwargs)
        run: AsyncIterator[Any] = _INLINE_ASTREAM(self, input, config, **kwargs)
        return run
