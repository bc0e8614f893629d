"""Goes on with a run that waits for an answer which nobody needs any more.

Of several agents that were asked at the same time, one may wait for a person when the others
have been enough. LangGraph ends the run then, for every task of a superstep must end; it is
begun again at once, and whoever waits learns that it has lost. `AgentGraph` runs within this.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, cast

from echelons.delegation.race import Races

INTERRUPT = "__interrupt__"
"""Under which LangGraph streams what a graph waits for."""


def on_and_on(run: Callable[[Any], Iterator[Any]], given: Any, races: Races) -> Iterator[Any]:
    """Yield the parts of a run, and of those that go on with it.

    Args:
        run: Begins a run with an input.
        given: The input of the first.
        races: The races of the run.
    """
    while True:
        races.begin()
        questions: list[Any] = []
        for part in run(given):
            if _asks(part):
                questions.append(part)
            else:
                yield part
        if not races.moot:
            yield from questions
            return
        given = None


async def aon_and_on(
    run: Callable[[Any], AsyncIterator[Any]], given: Any, races: Races
) -> AsyncGenerator[Any]:
    """Do what `on_and_on` does in an event loop."""
    while True:
        races.begin()
        questions: list[Any] = []
        # Closed with us: LangGraph then cancels what still runs at once, not at some collection.
        async with aclosing(cast("AsyncGenerator[Any]", run(given))) as parts:
            async for part in parts:
                if _asks(part):
                    questions.append(part)
                else:
                    yield part
        if not races.moot:
            for question in questions:
                yield question
            return
        given = None


def _asks(part: Any) -> bool:
    """Return whether a part of a stream says what the whole graph waits for."""
    payload = part
    if isinstance(part, tuple):
        if part[0] and isinstance(part[0], tuple):  # of a graph below
            return False
        payload = part[-1]
    return isinstance(payload, dict) and INTERRUPT in payload
