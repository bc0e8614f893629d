"""`Run` and `AsyncRun`: one turn in progress, as a stream of events with a result.

`Session` makes them. Nothing happens until they are iterated or asked for the result.
Leaving one early stops the tree at the end of its current step; all that was done is
stored, and `Session.resume` continues from there.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  before our own hook, at the end of the module
import inspect
import logging
import threading
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakSet

from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.queries import arun_plan, run_plan
from echelons.checkpoints.threads.pending_work import Question
from echelons.delegation.request import DelegationResponse, Usage
from echelons.langgraph_internals import parent_config
from echelons.runtime.run_end import RunEnd, RunRecord, read_run_end
from echelons.runtime.run_events import RunEvent
from echelons.runtime.session_requests import SessionRequest
from echelons.runtime.turn_engine import TurnEngine
from echelons.runtime.turn_status import TurnStatus
from echelons.text.error_lines import describe_error

_NO_STATUS: Any = ""
"""The default of a status: a stored result of an earlier version has none."""

LOG = logging.getLogger(__name__)
LAST_STEP_FAILED = "a run that was left has failed in its last step"

_RUNS: WeakSet[_TurnRun] = WeakSet()
_RUNS_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a turn.

    Attributes:
        text: The root's last message, if the turn has ended; else empty.
        questions: Questions that must be answered before it continues.
        finished: Whether `status` is `"finished"`.
        usage: Usage of all agents of the run together.
        replayed: Whether nothing was run, as the turn was submitted before; this is its result.
        queued: Whether answers were left to a run that is under way on the thread, and
            delivers them.
        status: `finished` with an answer; `asking` if only answers move it; `paused` if `resume`
            continues it; `limited` if a limit has ended it, or `stopped` an order. With `queued`
            it is `running`: how it ends, only the other run returns.
        reason: Why there is no whole answer: the limit with its value, what was stopped, what is
            paused, who asks. If the root has subordinates and no tools, and has answered
            without asking any of them, that. Empty for neither.
        response: The root's own response, of the whole turn, with its turn's id as
            `request_id`: `partial` or `unable` if it ended early. `None` before its end.
    """

    __stored_as__ = "echelons.runtime.run.Result"

    text: str
    questions: tuple[Question, ...]
    finished: bool
    usage: Usage
    replayed: bool = False
    queued: bool = False
    status: TurnStatus = _NO_STATUS
    reason: str = ""
    response: DelegationResponse | None = None

    def __post_init__(self) -> None:
        if self.status == _NO_STATUS:
            open_status = "asking" if self.questions else "paused"
            object.__setattr__(self, "status", "finished" if self.finished else open_status)

    @classmethod
    def from_run_end(cls, end: RunEnd, usage: Usage) -> Result:
        """Return the result of an ended run."""
        return cls(
            end.text,
            end.questions,
            end.status == "finished",
            usage,
            end.replayed,
            end.queued,
            end.status,
            end.reason,
            end.response,
        )

    def __str__(self) -> str:
        """The answer, or what must be answered first, or why there is neither; never empty."""
        if self.text.strip():
            return self.text
        asked = (f"{'/'.join(each.path)} asks: {each.value}" for each in self.questions)
        return "\n".join(asked) or self.reason or self.status


class _TurnRun:
    """What both kinds of run share."""

    def __init__(self, engine: TurnEngine) -> None:
        self._engine = engine
        self._record = RunRecord(engine.graph.failures.redact)
        self._driver: object = None
        self._has_ended = False
        with _RUNS_LOCK:
            _RUNS.add(self)

    def pause(self) -> None:
        """Ask the tree to stop at the end of its current step; signal handlers may call it."""
        self._record.control.request_drain("paused")

    def _leave(self) -> None:
        self._record.control.request_drain("closed")
        self._record.backpressure.close()

    def _is_caller_within(self) -> bool:
        """Return whether a step of the run is calling, which cannot wait for its end."""
        turn = get_turn((parent_config.get() or {}).get("configurable") or {})
        return turn is not None and turn.backpressure is self._record.backpressure

    def __del__(self) -> None:
        if not (self._record.started or self._has_ended):
            warnings.warn(
                f"a run on thread {self._engine.thread.name!r} was never started, so nothing was "
                "sent: iterate it, ask for its result, or close it",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )


class Run(_TurnRun):
    """A turn, driven by its consumer.

    It holds the thread from its first event to its last; leave it with `with` or `close`.
    """

    def __init__(self, engine: TurnEngine, request: SessionRequest) -> None:
        super().__init__(engine)
        # Not a method of this object: a run that is dropped midway must release the thread at
        # once, not at the next garbage collection.
        self._events = engine.run_request(request, self._record)
        # Of one thread, a signal handler may close the run within an event.
        self._lock = threading.RLock()

    def __iter__(self) -> Iterator[RunEvent]:
        return iter(self._take_event, None)

    def _take_event(self) -> RunEvent | None:
        with self._lock:
            self._driver = threading.current_thread()
            try:
                event = next(self._events, None)
            except BaseException:
                self._has_ended = True
                raise
            self._has_ended = event is None
            return event

    def result(self) -> Result:
        """Drive the turn to its end and return its result."""
        for _ in self:
            pass
        end, saver, thread = self._record.run_end, self._engine.saver, self._engine.thread
        if end is None:
            end = run_plan(saver, read_run_end(thread.id, thread.confidence))
        return Result.from_run_end(end, self._record.usage)

    def close(self) -> None:
        """Stop at the end of the current step, with everything done so far stored.

        No other step begins. A run that was never started stores nothing. If another thread
        drives it, this waits for its end.
        """
        self._leave()
        if self._is_caller_within():
            return
        with self._lock:
            if not self._record.started:
                self._events.close()
                self._has_ended = True
            elif inspect.getgeneratorstate(self._events) != inspect.GEN_RUNNING:
                for _ in self:
                    pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncRun(_TurnRun):
    """A turn in an event loop, driven by its consumer; leave it with `async with` or `close`."""

    def __init__(self, engine: TurnEngine, request: SessionRequest) -> None:
        super().__init__(engine)
        self._events = engine.arun_request(request, self._record)
        self._lock = asyncio.Lock()
        self._context: Context | None = None
        self._closing: asyncio.Task[None] | None = None

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return _AsyncEvents(self._take_event)

    async def _take_event(self) -> RunEvent | None:
        async with self._lock:
            self._driver = asyncio.current_task()
            if self._context is None:
                self._context = copy_context()
                # Not a method of this object, which may be collected before.
                closing = _close_at_end(self._engine, self._events, self._lock)
                self._closing = asyncio.create_task(closing, context=self._context)
            # In a task of its own: a web server cancels again and again, and would so cancel the
            # ending of the tree as well, which then runs on.
            step = asyncio.create_task(self._advance(), context=self._context)
            try:
                return await asyncio.shield(step)
            except asyncio.CancelledError:
                step.cancel()
                await _finish(step)
                if not self._has_ended:
                    # The step was done when the cancellation came, and its event is lost.
                    abandoning = self._events.aclose()
                    await _finish(asyncio.create_task(abandoning, context=self._context))
                    self._set_ended()
                raise

    async def _advance(self) -> RunEvent | None:
        try:
            event = await anext(self._events, None)
        except BaseException:
            self._set_ended()
            raise
        if event is None:
            self._set_ended()
        return event

    def _set_ended(self) -> None:
        self._has_ended = True
        if self._closing:
            self._closing.cancel()

    async def result(self) -> Result:
        """Async version of `Run.result`."""
        async for _ in self:
            pass
        end, saver, thread = self._record.run_end, self._engine.saver, self._engine.thread
        if end is None:
            end = await arun_plan(saver, read_run_end(thread.id, thread.confidence))
        return Result.from_run_end(end, self._record.usage)

    async def close(self) -> None:
        """Async version of `Run.close`."""
        self._leave()
        if self._is_caller_within():
            return
        if self._record.started:
            while not self._has_ended:
                await self._take_event()
        else:
            await self._events.aclose()
            self._has_ended = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __del__(self) -> None:
        super().__del__()
        closing = self._closing
        if closing and not closing.done() and not closing.get_loop().is_closed():
            # It may be collected in any thread.
            closing.get_loop().call_soon_threadsafe(closing.cancel)


async def _close_at_end(
    engine: TurnEngine, events: AsyncGenerator[RunEvent], lock: asyncio.Lock
) -> None:
    """Close the events of a run when it is collected or its event loop ends, which cancels this.

    An event loop that ends closes all generators at the same time, but these are nested: each
    closes those within.
    """
    with suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().create_future()
    async with lock:
        try:
            await events.aclose()
        except Exception as error:  # noqa: BLE001  logged, as there is no caller any more
            why = describe_error(error, engine.graph.failures.redactor)
            LOG.warning("%s: %s", LAST_STEP_FAILED, why)


async def _finish(task: asyncio.Task[Any]) -> None:
    """Wait for the end of a task, however often the waiting is cancelled."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((task,))


class _AsyncEvents(AsyncIterator[RunEvent]):
    """The events of a run, which it keeps alive; a generator would be closed by the event loop."""

    def __init__(self, take: Callable[[], Awaitable[RunEvent | None]]) -> None:
        self._take = take

    async def __anext__(self) -> RunEvent:
        event = await self._take()
        if event is None:
            raise StopAsyncIteration
        return event


def end_left_run(engine: TurnEngine) -> None:
    """End the run of an engine that the calling thread has left."""
    for run in _list_open_runs(engine):
        if isinstance(run, Run) and run._driver is threading.current_thread():
            _end(run)


async def aend_left_run(engine: TurnEngine) -> None:
    """Async version of `end_left_run`."""
    end_left_run(engine)
    for run in _list_open_runs(engine):
        if isinstance(run, AsyncRun) and run._driver is asyncio.current_task():
            await _aend(run)


def end_runs(engine: TurnEngine) -> None:
    """End the open runs of an engine.

    One in an event loop is only asked to: it ends at its next event, or with its loop.
    """
    for run in _list_open_runs(engine):
        if isinstance(run, Run):
            _end(run)
        else:
            run._leave()


async def aend_runs(engine: TurnEngine) -> None:
    """Async version of `end_runs`."""
    for run in _list_open_runs(engine):
        if isinstance(run, AsyncRun):
            await _aend(run)
    end_runs(engine)


def _list_open_runs(engine: TurnEngine | None = None) -> list[_TurnRun]:
    """Return the runs of an engine, or of the process, that have begun and not ended."""
    with _RUNS_LOCK:
        runs = [each for each in _RUNS if engine in (None, each._engine)]
    return [each for each in runs if each._record.started and not each._has_ended]


def _end(run: Run) -> None:
    try:
        run.close()
    except Exception as error:  # noqa: BLE001  logged, as there is no caller any more
        # Without its traceback, which the log of failures has.
        why = describe_error(error, run._engine.graph.failures.redactor)
        LOG.warning("%s: %s", LAST_STEP_FAILED, why)


async def _aend(run: AsyncRun) -> None:
    try:
        await run.close()
    except Exception as error:  # noqa: BLE001  as above
        why = describe_error(error, run._engine.graph.failures.redactor)
        LOG.warning("%s: %s", LAST_STEP_FAILED, why)


def _abandon_runs() -> None:
    """Abandon the runs in threads that were left, as the process ends.

    The interpreter waits for the threads of their steps, before it collects any garbage.
    """
    for run in _list_open_runs():
        if isinstance(run, Run):
            run._leave()
            if inspect.getgeneratorstate(run._events) == inspect.GEN_SUSPENDED:
                run._events.close()


# `atexit` comes too late: after the threads of all pools have been waited for. This comes before
# what `concurrent.futures.thread` has registered in the same way, which is imported above.
getattr(threading, "_register_atexit", atexit.register)(_abandon_runs)
