"""Ours, hand-written LangGraph, and the floor, as peers: in processes of their own, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.benchmarks.model import QuickModel
from tests.benchmarks.peers.work import CHAIN, CROWD, SAID, TASK, THREAD, Size, Work, Works, place
from tests.benchmarks.rivals import Rival, arivals
from tests.benchmarks.trees import Role, chain, crowd

PACKAGES = ("echelons", "langgraph", "langgraph-checkpoint-sqlite", "langchain-core")


@asynccontextmanager
async def opened(folder: Path, setting: str, size: Size) -> AsyncIterator[Works]:
    """Open the rival of that name for each of the works."""
    roles = {
        CHAIN: chain(),
        CROWD: crowd(size.crowd, size.latency),
        THREAD: Role("root", QuickModel(answer=SAID)),
    }
    async with AsyncExitStack() as stack:
        works: Works = {}
        for name, role in roles.items():
            kept = place(folder, name)
            field = await stack.enter_async_context(arivals(role, [setting], folder=kept))
            works[name] = _work(field[setting], name == THREAD)
        yield works


def _work(rival: Rival, grows: bool) -> Work:
    async def done(number: int) -> str:
        if grows:
            return await rival.ainvoke(SAID, "thread")
        return await rival.ainvoke(TASK, f"thread{number}")

    return done
