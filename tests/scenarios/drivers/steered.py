"""A tree whose first reply is slow, for tests that redirect it.

``python -m tests.scenarios.drivers.steered DATABASE`` opens the tree's thread, redirects the scout
at the first line that it reads, and prints when it began to; the clock is that of all processes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echelons import Agent, Result, Session
from echelons.testing import FakeClock, Reply, ScriptedModel, delegate

WORDS = " ".join(f"word{number}" for number in range(300))
SCOUT = "head/north/scout"


class Metronome(FakeClock):
    """A clock that calls a function at one of its beats, the waits before chunks."""

    def __init__(self, beat: int, function: Callable[[], object]) -> None:
        super().__init__()
        self.beats = 0
        self._beat = beat
        self._function = function

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self.beats += 1
        if self.beats == self._beat:
            self._function()


def tree(latency: float = 30.0, clock: Any = None, **scripts: Any) -> Agent:
    """Return a tree of three levels; the scout talks, a chunk every tenth of a second."""
    given = {
        "head": [delegate("north", "go"), "over"],
        "north": [delegate("scout", "go"), "north is done"],
        "scout": [Reply(WORDS, latency=latency), "redirected", "once more"],
        **scripts,
    }
    north = Agent("north", subordinates=[Agent("scout", tools=[look])])
    return Agent("head", model=ScriptedModel(given, clock=clock), subordinates=[north])


def look() -> str:
    """Look around."""
    raise AssertionError("the call of a reply that was cut off")


def run(database: Path, world: str, note: Callable[[Any], None]) -> Result:
    """Run the tree, whose scout could talk for ten minutes, and pass on its events."""
    if world == "async":
        return asyncio.run(_arun(database, note))
    with Session(_talking(), database, thread="t") as session, session.send("go") as going:
        for event in going:
            note(event)
        return going.result()


async def _arun(database: Path, note: Callable[[Any], None]) -> Result:
    async with (
        Session(_talking(), database, thread="t") as session,
        await session.asend("go") as going,
    ):
        async for event in going:
            note(event)
        return await going.result()


def _talking() -> Agent:
    return tree(scout=[Reply(" ".join([WORDS] * 20), latency=600.0), "redirected"])


def main(database: str) -> None:
    """Redirect the scout when told to."""
    with Session(tree(), database, thread="t") as session:
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        session.steer(SCOUT, "Come back.")
    print(began)


if __name__ == "__main__":
    main(*sys.argv[1:])
