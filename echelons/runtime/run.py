"""``Run`` and ``AsyncRun``: one turn on its way, as a stream of events with a result.

``Session`` makes them. Nothing happens until they are iterated or asked for the result.
Leaving one early stops the tree at the end of its current step; all that was done is
stored, and ``Session.resume`` goes on from there.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Self

from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from echelons.checkpoints.pending import Question
from echelons.delegation import Usage
from echelons.runtime.events import Kind, RunEvent, Translator


@dataclass(frozen=True, slots=True)
class Result:
    """What a turn came to.

    Attributes:
        text: The root's answer; empty while questions are open or the run was stopped.
        questions: What must be answered before it goes on.
        finished: Whether the turn is at its end.
        usage: What the run cost, all agents together.
    """

    text: str
    questions: tuple[Question, ...]
    finished: bool
    usage: Usage

    def __str__(self) -> str:
        """The answer, or what must be answered first."""
        asked = (f"{'/'.join(each.path)} asks: {each.value}" for each in self.questions)
        return self.text or "\n".join(asked)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a thread stands when a run has ended.

    Attributes:
        text: The root's last words.
        questions: What it waits for.
        finished: Whether no task is open.
    """

    text: str
    questions: Sequence[Question]
    finished: bool


class _Tally:
    """What both kinds of run keep while they go."""

    def __init__(self) -> None:
        self.control = RunControl()
        self.translator = Translator()
        self.usage = Usage()
        self.begun = False

    def events(self, part: Any) -> Iterator[RunEvent]:
        for event in self.translator.events(part):
            if event.kind is Kind.MESSAGE:
                self.usage += event.usage
            yield event

    def result(self, standing: Standing) -> Result:
        text = standing.text if standing.finished else ""
        return Result(text, tuple(standing.questions), standing.finished, self.usage)


class Run:
    """A turn, driven by whoever iterates it.

    Args:
        start: Starts the stream; called once, with the control that can stop it.
        standing: Tells where the thread stands afterwards.
    """

    def __init__(
        self,
        start: Callable[[RunControl], Iterator[Any]],
        standing: Callable[[], Standing],
    ) -> None:
        self._tally = _Tally()
        self._standing = standing
        self._events = self._drive(start)

    def __iter__(self) -> Iterator[RunEvent]:
        return self._events

    def result(self) -> Result:
        """Drive the turn to its end and return what it came to."""
        for _ in self._events:
            pass
        return self._tally.result(self._standing())

    def pause(self) -> None:
        """Ask the tree to stop at the end of its current step; signal handlers may call it."""
        self._tally.control.request_drain("paused")

    def close(self) -> None:
        """Stop at the end of the current step, with everything done so far stored.

        A run that nobody has begun stores nothing.
        """
        self._tally.control.request_drain("closed")
        if self._tally.begun:
            for _ in self._events:
                pass
        else:
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _drive(self, start: Callable[[RunControl], Iterator[Any]]) -> Generator[RunEvent]:
        self._tally.begun = True
        try:
            for part in start(self._tally.control):
                yield from self._tally.events(part)
        except GraphDrained:
            return


class AsyncRun:
    """A turn in an event loop, driven by whoever iterates it.

    Args:
        start: Starts the stream; called once, with the control that can stop it.
        standing: Tells where the thread stands afterwards.
    """

    def __init__(
        self,
        start: Callable[[RunControl], AsyncGenerator[Any]],
        standing: Callable[[], Awaitable[Standing]],
    ) -> None:
        self._tally = _Tally()
        self._standing = standing
        self._events = self._drive(start)

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self._events

    async def result(self) -> Result:
        """Drive the turn to its end and return what it came to."""
        async for _ in self._events:
            pass
        return self._tally.result(await self._standing())

    def pause(self) -> None:
        """Ask the tree to stop at the end of its current step; signal handlers may call it."""
        self._tally.control.request_drain("paused")

    async def close(self) -> None:
        """Stop at the end of the current step, with everything done so far stored.

        A run that nobody has begun stores nothing.
        """
        self._tally.control.request_drain("closed")
        if self._tally.begun:
            async for _ in self._events:
                pass
        else:
            await self._events.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _drive(
        self, start: Callable[[RunControl], AsyncGenerator[Any]]
    ) -> AsyncGenerator[RunEvent]:
        self._tally.begun = True
        try:
            async with aclosing(start(self._tally.control)) as parts:
                async for part in parts:
                    for event in self._tally.events(part):
                        yield event
        except GraphDrained:
            return
