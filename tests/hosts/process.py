"""A process that runs a host, or goes on with one, and prints what came of it as JSON.

`python -m tests.hosts.process '{"host": "tests.hosts.hosts:agent_with_tool", "database": …}'`
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

THREAD: RunnableConfig = {"configurable": {"thread_id": "trip"}}
STREAM: dict[str, Any] = {"stream_mode": ["values", "messages"], "subgraphs": True}


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Run a host and return what came of it.

    Args:
        given: The `host` as `module:function`, the `database`, the `answers` by the ids of the
            questions, unless it begins, and whether it is run in an event `loop`.
    """
    module, _, function = given["host"].partition(":")
    build = getattr(import_module(module), function)
    answers = given["answers"]
    sent: Any = Command(resume=answers) if answers else {"messages": [("user", "Rome")]}
    if given["loop"]:
        return tell(asyncio.run(arun(build, given["database"], sent)))
    with SqliteSaver.from_conn_string(given["database"]) as saver:
        return tell(build(saver).stream(sent, THREAD, **STREAM))


async def arun(build: Any, database: str, sent: Any) -> list[Any]:
    """Return what the host streams."""
    async with AsyncSqliteSaver.from_conn_string(database) as saver:
        return [part async for part in build(saver).astream(sent, THREAD, **STREAM)]


def tell(parts: Iterable[Any]) -> dict[str, Any]:
    """Return the questions, the messages, and the agents of ours whose tokens were streamed."""
    state: dict[str, Any] = {}
    questions: dict[str, Any] = {}
    streamed = []
    for namespace, mode, part in parts:
        if mode == "values" and not namespace:
            state = part
            questions |= {each.id: each.value for each in part.get("__interrupt__", ())}
        elif mode == "messages" and part[0].text and "agent_path" in part[1]:
            streamed.append(part[1]["agent_path"])
    messages = state["messages"]
    return {
        "questions": questions,
        "tools": [[each.name, each.text] for each in messages if each.type == "tool"],
        "said": [each.text for each in messages if each.type == "ai"],
        "streamed": streamed,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
