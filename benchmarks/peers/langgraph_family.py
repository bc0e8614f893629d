"""What peers built on LangGraph have in common: the model, the tool, the saver, the run.

The model is the one of all our benchmarks. Settings are ``as it comes`` (LangGraph's saver
leaves SQLite at ``synchronous=FULL``, a run stores with ``durability="async"``) and
``FULL, sync``, which has every step stored before the next.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Durability

from benchmarks.peers import work
from benchmarks.peers.work import SAID, SUBJECT, TASK, THREAD, Size, Work, Works

PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "langchain-core")
DURABILITY: Mapping[str, Durability | None] = {"as it comes": None, "FULL, sync": "sync"}

Graph = Any
"""A compiled graph: frameworks name different classes."""
Build = Callable[[AsyncSqliteSaver], Graph]

look_up = tool(work.look_up)


LOOK_UP: tuple[str, dict[str, Any]] = ("look_up", {"subject": SUBJECT})


def members(size: Size) -> list[str]:
    """Return the names of the crowd."""
    return [f"member{number}" for number in range(size.crowd)]


@asynccontextmanager
async def opened(builds: Mapping[str, Build], folder: Path, setting: str) -> AsyncIterator[Works]:
    """Open a database for each graph, and give the works that they do."""
    async with AsyncExitStack() as stack:
        works: Works = {}
        for name, build in builds.items():
            kept = AsyncSqliteSaver.from_conn_string(str(work.database(folder, name)))
            graph = build(await stack.enter_async_context(kept))
            works[name] = _grow(graph, setting) if name == THREAD else _work(graph, setting)
        yield works


def _work(graph: Graph, setting: str) -> Work:
    async def done(number: int) -> str:
        return await _run(graph, setting, TASK, f"thread{number}")

    return done


def _grow(graph: Graph, setting: str) -> Work:
    async def done(number: int) -> str:
        return await _run(graph, setting, SAID, "thread")

    return done


async def _run(graph: Graph, setting: str, given: str, thread: str) -> str:
    given_state = {"messages": [("user", given)]}
    config = {"configurable": {"thread_id": thread}}
    state = await graph.ainvoke(given_state, config, durability=DURABILITY[setting])
    return str(state["messages"][-1].text)
