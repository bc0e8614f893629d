"""A tree whose first reply is slow, for tests that redirect it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echelons import Agent, Result, Session
from echelons.testing import Reply, ScriptedModel, delegate

WORDS = " ".join(f"word{number}" for number in range(300))
SCOUT = "head/north/scout"


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


def run(folder: Path, world: str, note: Callable[[Any], None]) -> Result:
    """Run the tree, and pass on its events."""
    database = folder / "t.sqlite"
    if world == "async":
        return asyncio.run(_arun(database, note))
    with Session(tree(), database, thread="t") as session, session.send("go") as going:
        for event in going:
            note(event)
        return going.result()


async def _arun(database: Path, note: Callable[[Any], None]) -> Result:
    async with (
        Session(tree(), database, thread="t") as session,
        await session.asend("go") as going,
    ):
        async for event in going:
            note(event)
        return await going.result()
