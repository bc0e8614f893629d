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
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any, Self
from weakref import WeakSet

from pydantic import BaseModel

from echelons.checkpoints.coordination.turns import get_turn
from echelons.checkpoints.queries import ReadPlan, arun_plan, run_plan
from echelons.checkpoints.threads.pending_work import Question
from echelons.delegation.contract import Contract
from echelons.delegation.request import DelegationResponse, Usage
from echelons.errors import InvalidInput
from echelons.langgraph_internals import parent_config
from echelons.runtime.nested_results import add_values, read_nested_results
from echelons.runtime.run_end import RunEnd, RunRecord, TurnStatus, read_run_end
from echelons.runtime.run_events import RunEvent
from echelons.runtime.session_requests import SessionRequest
from echelons.runtime.turn_engine import TurnEngine
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
            continues it; `limited` if a limit has ended it, `stopped` an order, or `dismissed` the
            dismissal of the root. With `queued` it is `running`: how it ends, only the other run
            returns.
        reason: Why there is no whole answer: the limit with its value, what was stopped, what is
            paused, who asks. If the root has subordinates and no tools, and has answered
            without asking any of them, that. Empty for neither.
        response: The root's own response, of the whole turn, with its turn's id as
            `request_id`: `partial` or `unable` if it ended early. `None` before its end.
        value: The answer as an instance of the output that the root's contract declares; `None`
            without one, and before the end of the turn.
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
    value: BaseModel | None = None

    def __post_init__(self) -> None:
        if self.status == _NO_STATUS:
            open_status = "asking" if self.questions else "paused"
            object.__setattr__(self, "status", "finished" if self.finished else open_status)

    @classmethod
    def from_run_end(cls, end: RunEnd, usage: Usage, contract: Contract | None = None) -> Result:
        """Return the result of an ended run of a root with a contract, or without."""
        value: BaseModel | None = None
        if contract and contract.output and end.status == "finished":
            # What an earlier version of the tree has answered may be no output of this one.
            with suppress(InvalidInput):
                value = contract.read_output(end.text)
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
            value,
        )

    def __str__(self) -> str:
        """The answer, or what must be answered first, or why there is neither; never empty."""
        if self.text.strip():
            return self.text
        waiting = (f"{question.path} asks: {question.value}" for question in self.questions)
        return "\n".join(waiting) or self.reason or self.status


class _TurnRun:
    """The parts that both kinds of run share."""

    def __init__(self, engine: TurnEngine) -> None:
        self._engine = engine
        self._record = RunRecord(engine.graph.failures.redact)
        self._driver: object = None
        with _RUNS_LOCK:
            _RUNS.add(self)

    def pause(self) -> None:
        """Ask the tree to stop at the end of its current step; signal handlers may call it."""
        self._record.control.request_drain("paused")

    def _leave(self) -> None:
        self._record.control.request_drain("closed")
        self._record.backpressure.close()

    def _read_result(self) -> ReadPlan[Result]:
        """Return the result, with the results of all agents below the root."""
        record, engine = self._record, self._engine
        end = record.run_end or (
            yield from read_run_end(engine.thread.id, engine.thread.confidence)
        )
        if end.response and end.response.subordinate_responses:
            response = yield from read_nested_results(engine.thread.id, end.response)
            models = [engine.graph.agent, *(agent.member for agent in engine.spawnable.values())]
            end = replace(end, response=add_values(response, models))
        # It may be asked for once more when the session is closed.
        record.run_end = end
        return Result.from_run_end(end, record.usage, engine.graph.agent.contract)

    def _is_caller_within(self) -> bool:
        """Return whether a step of the run is calling, which cannot wait for its end."""
        turn = get_turn((parent_config.get() or {}).get("configurable") or {})
        return turn is not None and turn.backpressure is self._record.backpressure

    def __del__(self) -> None:
        if not (self._record.started or self._record.ended):
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
                self._record.ended = True
                raise
            self._record.ended = event is None
            return event

    def result(self) -> Result:
        """Drive the turn to its end and return its result."""
        self._record.skip_events()
        for _ in self:
            pass
        return run_plan(self._engine.saver, self._read_result())

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
                self._record.ended = True
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
        # Not a method of this object, which may be collected before.
        self._pump = _EventPump(engine, self._events, self._record)
        self._lock = asyncio.Lock()

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return _AsyncEvents(self._take_event)

    async def _take_event(self, *, to_end: bool = False) -> RunEvent | None:
        async with self._lock:
            self._driver = asyncio.current_task()
            if self._record.ended:
                return None
            try:
                return await self._pump.request_event(to_end=to_end)
            except asyncio.CancelledError:
                await self._pump.end()
                raise

    async def result(self) -> Result:
        """Async version of `Run.result`."""
        await self._take_event(to_end=True)
        return await arun_plan(self._engine.saver, self._read_result())

    async def close(self) -> None:
        """Async version of `Run.close`."""
        self._leave()
        if self._is_caller_within():
            return
        if self._record.started:
            await self._take_event(to_end=True)
        else:
            await self._events.aclose()
            self._record.ended = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __del__(self) -> None:
        super().__del__()
        self._pump.end_threadsafe()


class _EventPump:
    """Takes the events of an async run from the engine, each when it is requested, in one task."""

    # It is a task of its own, as a web server cancels again and again, and would so cancel the
    # ending of the tree as well, which then runs on. It closes the events when the run is collected
    # or its event loop ends, which cancels it. An event loop that ends closes all generators at the
    # same time, but these are nested: each closes those within.

    def __init__(
        self, engine: TurnEngine, events: AsyncGenerator[RunEvent], record: RunRecord
    ) -> None:
        self._engine = engine
        self._events = events
        self._record = record
        self._task: asyncio.Task[None] | None = None
        self._is_ending = False
        self._to_end = False
        self._requested: asyncio.Future[None]
        self._taken: asyncio.Future[RunEvent | None]

    def request_event(self, *, to_end: bool) -> asyncio.Future[RunEvent | None]:
        """Return a future of the next event, of `None` at the end or, with `to_end`, only there."""
        loop = asyncio.get_running_loop()
        if to_end:
            self._record.skip_events()
        self._taken, self._to_end = loop.create_future(), to_end
        if self._task is None:
            self._task = loop.create_task(self._run(), context=copy_context())
        else:
            self._requested.set_result(None)
        return self._taken

    async def end(self) -> None:
        """End the run, and wait for that however often the waiting is cancelled."""
        self._cancel()
        while self._task and not self._task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((self._task,))

    def end_threadsafe(self) -> None:
        """End the run soon; it may have been collected in any thread."""
        task = self._task
        if task and not task.done() and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task and not self._is_ending:
            self._is_ending = True
            self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                event = await anext(self._events, None)
                while self._to_end and event is not None:
                    event = await anext(self._events, None)
            except BaseException as error:
                self._record.ended = True
                if self._taken.done():
                    self._log_failure(error)
                elif isinstance(error, asyncio.CancelledError):
                    self._taken.cancel()
                else:
                    self._taken.set_exception(error)
                # The event loop must see these; any other is its consumer's.
                if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                    raise
                return
            self._record.ended = event is None
            self._requested = loop.create_future()
            if self._taken.done():
                break  # cancelled by who requested the event, which is lost
            self._taken.set_result(event)
            if event is None:
                return
            try:
                await self._requested
            except asyncio.CancelledError:
                break
        self._is_ending = True
        await self._close_events()

    async def _close_events(self) -> None:
        try:
            await self._events.aclose()
        except Exception as error:  # noqa: BLE001  logged, as there is no caller any more
            self._log_failure(error)
        finally:
            self._record.ended = True

    def _log_failure(self, error: BaseException) -> None:
        if not isinstance(error, asyncio.CancelledError):
            why = describe_error(error, self._engine.graph.failures.redactor)
            LOG.warning("%s: %s", LAST_STEP_FAILED, why)


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
    """End the open runs of an engine; one in an event loop at its next event, or with its loop."""
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
        runs = [run for run in _RUNS if engine in (None, run._engine)]
    return [run for run in runs if run._record.started and not run._record.ended]


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
    """Abandon the runs in threads that were left, as the process ends."""
    # The interpreter waits for the threads of their steps, before it collects any garbage.
    for run in _list_open_runs():
        if isinstance(run, Run):
            run._leave()
            if inspect.getgeneratorstate(run._events) == inspect.GEN_SUSPENDED:
                run._events.close()


# `atexit` comes too late: after the threads of all pools have been waited for. This comes before
# what `concurrent.futures.thread` has registered in the same way, which is imported above.
getattr(threading, "_register_atexit", atexit.register)(_abandon_runs)
