"""`Run` and `AsyncRun`: one turn in progress, as a stream of events with a result.

`Session` makes them. Nothing happens until they are iterated or asked for the result.
Leaving one early stops the tree at the end of its current step; all that was done is
stored, and `Session.resume` continues from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Self

from echelons.checkpoints.queries import arun_plan, run_plan
from echelons.checkpoints.threads.pending_work import Question
from echelons.delegation.request import DelegationResponse, Usage
from echelons.runtime.run_end import RunEnd, RunRecord, read_run_end
from echelons.runtime.run_events import RunEvent
from echelons.runtime.session_requests import SessionRequest
from echelons.runtime.turn_engine import TurnEngine
from echelons.runtime.turn_status import TurnStatus

_NO_STATUS: Any = ""
"""The default of a status: a stored result of an earlier version has none."""


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
        self._record = RunRecord()

    def pause(self) -> None:
        """Ask the tree to stop at the end of its current step; signal handlers may call it."""
        self._record.control.request_drain("paused")


class Run(_TurnRun):
    """A turn, driven by its consumer.

    It holds the thread from its first event to its last; leave it with `close` or `with`.
    """

    def __init__(self, engine: TurnEngine, request: SessionRequest) -> None:
        super().__init__(engine)
        # Not a method of this object: a run that is dropped midway must release the thread at
        # once, not at the next garbage collection.
        self._events = engine.run_request(request, self._record)

    def __iter__(self) -> Iterator[RunEvent]:
        return self._events

    def result(self) -> Result:
        """Drive the turn to its end and return its result."""
        for _ in self._events:
            pass
        end, saver, thread = self._record.run_end, self._engine.saver, self._engine.thread
        if end is None:
            end = run_plan(saver, read_run_end(thread.id, thread.confidence))
        return Result.from_run_end(end, self._record.usage)

    def close(self) -> None:
        """Stop at the end of the current step, with everything done so far stored.

        A run that was never started stores nothing.
        """
        self._record.control.request_drain("closed")
        if self._record.started:
            for _ in self._events:
                pass
        else:
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncRun(_TurnRun):
    """A turn in an event loop, driven by its consumer; leave it with `close` or `async with`."""

    def __init__(self, engine: TurnEngine, request: SessionRequest) -> None:
        super().__init__(engine)
        self._events = engine.arun_request(request, self._record)

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self._events

    async def result(self) -> Result:
        """Async version of `Run.result`."""
        async for _ in self._events:
            pass
        end, saver, thread = self._record.run_end, self._engine.saver, self._engine.thread
        if end is None:
            end = await arun_plan(saver, read_run_end(thread.id, thread.confidence))
        return Result.from_run_end(end, self._record.usage)

    async def close(self) -> None:
        """Async version of `Run.close`."""
        self._record.control.request_drain("closed")
        if self._record.started:
            async for _ in self._events:
                pass
        else:
            await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
