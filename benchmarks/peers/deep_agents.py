"""deepagents with its own middleware, subagents by its ``task`` tool."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from deepagents import create_deep_agent
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.model import QuickModel
from benchmarks.peers import langgraph_family as family
from benchmarks.peers.langgraph_family import LOOK_UP, Graph, look_up
from benchmarks.peers.work import CHAIN, CROWD, SAID, THREAD, Size, Works

PACKAGES = ("deepagents", "langchain", *family.PACKAGES)


def opened(folder: Path, setting: str, size: Size) -> AbstractAsyncContextManager[Works]:
    """Build the trees."""

    def crowd(saver: AsyncSqliteSaver) -> Graph:
        names = family.members(size)
        below = [_plain(name, QuickModel(latency=size.latency)) for name in names]
        model = QuickModel(wanted=[_to(name) for name in names], latency=size.latency)
        return _agent("root", model, below, saver)

    return family.opened({CHAIN: _chain, CROWD: crowd, THREAD: _thread}, folder, setting)


def _chain(saver: AsyncSqliteSaver) -> Graph:
    leaf = _plain("leaf", QuickModel(wanted=[LOOK_UP]), [look_up])
    deeper = _agent("middle", QuickModel(wanted=[_to("leaf")]), [leaf])
    middle = {"name": "middle", "description": "Does what middle does", "runnable": deeper}
    return _agent("root", QuickModel(wanted=[_to("middle")]), [middle], saver)


def _thread(saver: AsyncSqliteSaver) -> Graph:
    return _agent("root", QuickModel(answer=SAID), [], saver)


def _agent(
    name: str,
    model: QuickModel,
    below: Sequence[Any],
    saver: AsyncSqliteSaver | None = None,
) -> Graph:
    prompt = f"You are {name}."
    return create_deep_agent(
        model, system_prompt=prompt, subagents=below, checkpointer=saver, name=name
    )


def _plain(name: str, model: QuickModel, tools: Sequence[Any] = ()) -> dict[str, Any]:
    """Return a subagent as most write it down: a dictionary."""
    said = {"description": f"Does what {name} does", "system_prompt": f"You are {name}."}
    return {"name": name, "model": model, "tools": list(tools), **said}


def _to(subordinate: str) -> tuple[str, dict[str, Any]]:
    return "task", {"description": "Do your part", "subagent_type": subordinate}
