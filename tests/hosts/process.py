"""A process that runs a host or a tree, or goes on with it, and prints what came of it as JSON.

Given are, as JSON: `host`, somebody else's graph with a tree of ours inside, or `guest`, one that
a tree of ours is built around, both as `module:function`; the `database`; the `answers` by the ids
of the questions, unless it begins; and whether it is run in an event `loop`.
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

from echelons import AsyncRun, Result, Run, RunEvent, Session, SqliteCheckpointer
from tests.hosts.trees import Hotel, build_tree_around

THREAD: RunnableConfig = {"configurable": {"thread_id": "trip"}}
STREAM: dict[str, Any] = {"stream_mode": ["values", "messages"], "subgraphs": True}


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Run what is given, and return what came of it."""
    loop, answers = given["loop"], given["answers"]
    module, _, function = (given.get("host") or given["guest"]).partition(":")
    build = getattr(import_module(module), function)
    if "guest" in given:
        with SqliteCheckpointer(given["database"], allowed_types=[Hotel]) as saver:
            with Session(build_tree_around(build()), saver, thread="trip") as session:
                if loop:
                    return asyncio.run(arun_tree(session, answers))
                return run_tree(session, answers)
    sent: Any = Command(resume=answers) if answers else {"messages": [("user", "Rome")]}
    if loop:
        return tell_host(asyncio.run(arun_host(build, given["database"], sent)))
    with SqliteSaver.from_conn_string(given["database"]) as saver:
        return tell_host(build(saver).stream(sent, THREAD, **STREAM))


async def arun_host(build: Any, database: str, sent: Any) -> list[Any]:
    """Return what the host streams."""
    async with AsyncSqliteSaver.from_conn_string(database) as saver:
        return [part async for part in build(saver).astream(sent, THREAD, **STREAM)]


def tell_host(parts: Iterable[Any]) -> dict[str, Any]:
    """Return the questions, the messages, and the agents of ours whose tokens were streamed."""
    state: dict[str, Any] = {}
    questions: dict[str, Any] = {}
    streamed: set[str] = set()
    for namespace, mode, part in parts:
        if mode == "values" and not namespace:
            state = part
            questions |= {each.id: read_text(each.value) for each in part.get("__interrupt__", ())}
        elif mode == "messages" and part[0].text and "agent_path" in part[1]:
            streamed.add(part[1]["agent_path"])
    messages = state["messages"]
    return {
        "questions": questions,
        "tools": [[each.name, each.text] for each in messages if each.type == "tool"],
        "said": [each.text for each in messages if each.type == "ai"],
        "streamed": sorted(streamed),
    }


def read_text(asked: Any) -> Any:
    """Return the text of a question of ours; any other value as it is."""
    return asked.get("question", asked) if isinstance(asked, dict) else asked


def run_tree(session: Session, answers: dict[str, Any] | None) -> dict[str, Any]:
    """Send a task to the tree, or the answers."""
    run: Run = session.answer(answers) if answers else session.send("Rome")
    events = list(run)
    return tell_tree(events, run.result())


async def arun_tree(session: Session, answers: dict[str, Any] | None) -> dict[str, Any]:
    """Async version of `run_tree`."""
    run: AsyncRun
    if answers:
        run = await session.aanswer(answers)
    else:
        run = await session.asend("Rome")
    events = [each async for each in run]
    return tell_tree(events, await run.result())


def tell_tree(events: Iterable[RunEvent], result: Result) -> dict[str, Any]:
    """Return the questions, the answer, and the kinds and paths of the third level's events."""
    below = [each for each in events if "guest" in each.path]
    return {
        "questions": {each.id: [each.value, [*each.path.parts]] for each in result.questions},
        "said": result.text,
        "streamed": sorted({each.kind for each in below}),
        "paths": sorted({each.path for each in below}),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1])), default=str))
