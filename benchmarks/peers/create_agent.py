"""LangChain's ``create_agent``, its subagents as tools of their superior."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from benchmarks.model import QuickModel
from benchmarks.peers import langgraph_family as family
from benchmarks.peers.langgraph_family import LOOK_UP, Graph, look_up
from benchmarks.peers.work import CHAIN, CROWD, SAID, THREAD, Size, Works

PACKAGES = ("langchain", *family.PACKAGES)


def opened(folder: Path, setting: str, size: Size) -> AbstractAsyncContextManager[Works]:
    """Build the trees."""

    def crowd(saver: AsyncSqliteSaver) -> Graph:
        names = family.members(size)
        below = {name: _agent(name, QuickModel(latency=size.latency)) for name in names}
        model = QuickModel(wanted=[_to(name) for name in names], latency=size.latency)
        return _agent("root", model, [build_call_tool(below)], saver)

    return family.opened({CHAIN: _chain, CROWD: crowd, THREAD: _thread}, folder, setting)


def _chain(saver: AsyncSqliteSaver) -> Graph:
    leaf = _agent("leaf", QuickModel(wanted=[LOOK_UP]), [look_up])
    middle = _agent("middle", QuickModel(wanted=[_to("leaf")]), [build_call_tool({"leaf": leaf})])
    model = QuickModel(wanted=[_to("middle")])
    return _agent("root", model, [build_call_tool({"middle": middle})], saver)


def _thread(saver: AsyncSqliteSaver) -> Graph:
    return _agent("root", QuickModel(answer=SAID), saver=saver)


def _agent(
    name: str,
    model: QuickModel,
    tools: list[BaseTool] | None = None,
    saver: AsyncSqliteSaver | None = None,
) -> Graph:
    prompt = f"You are {name}."
    return create_agent(model, tools or [], system_prompt=prompt, name=name, checkpointer=saver)


def build_call_tool(below: Mapping[str, Graph], *, is_async: bool = True) -> BaseTool:
    """Return the tool by which an agent hands a task to one below it."""

    def call_subordinate(message: str, subordinate: str) -> str:
        """Give a task to a subordinate and get its answer."""
        done = below[subordinate].invoke({"messages": [("user", message)]})
        return str(done["messages"][-1].text)

    async def acall_subordinate(message: str, subordinate: str) -> str:
        """Give a task to a subordinate and get its answer."""
        done = await below[subordinate].ainvoke({"messages": [("user", message)]})
        return str(done["messages"][-1].text)

    return tool("call_subordinate")(acall_subordinate if is_async else call_subordinate)


def _to(subordinate: str) -> tuple[str, dict[str, Any]]:
    return "call_subordinate", {"message": "Do your part", "subordinate": subordinate}
