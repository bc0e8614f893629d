"""A tree that gets out of hand, run as a process of its own (see ``forks``).

``main(DATABASE, LOG, WORLD)``: it hands work down for ever, and its process kills itself at its
eighth model call. Each call of a model or tool writes a line to LOG before it does anything. A
process that finds an unfinished turn goes on with it. At the end it returns the result.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool, tool

from echelons import Agent, Limits, Session, effect
from echelons.errors import UnfinishedTurn
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.scenarios.drivers.expedition import Log

LIMITS = Limits(steps=300, calls=40)
DEADLY = 8

Script = Callable[[Sequence[BaseMessage]], Any]


def digger(log: Log) -> BaseTool:
    """Return a tool that says that it was called."""

    @tool
    @effect(reads_only=True)
    def dig(place: str) -> str:
        """Dig."""
        log.write("tool")
        return f"dug {place}"

    return dig


def bomb(log: Log) -> Agent:
    """Return a tree in which everybody hands work to everybody below, for ever."""
    alive = [0]

    def calling(*calls: Call) -> Script:
        def step(messages: Sequence[BaseMessage]) -> Any:
            alive[0] += 1
            log.write("model")
            if alive[0] >= DEADLY:  # several threads count
                os.kill(os.getpid(), signal.SIGKILL)
            return Reply(calls=calls)

        return step

    leaves = [Agent(f"leaf{n}x{m}", tools=[digger(log)]) for n in range(3) for m in range(3)]
    groups = [Agent(f"group{n}", subordinates=leaves[3 * n : 3 * n + 3]) for n in range(3)]
    scripts: dict[str, Any] = {"head": calling(*(delegate(each.name, "go") for each in groups))}
    for group in groups:
        below = [delegate(each.name, "go", reset=True) for each in group.subordinates]
        scripts[group.name] = calling(*below)
    scripts["*"] = calling(Call("dig", {"place": "here"}), Call("dig", {"place": "there"}))
    return Agent("head", model=ScriptedModel(scripts), subordinates=groups, limits=LIMITS)


def run(session: Session, world: str) -> str:
    """Begin the turn, or go on with it."""
    if world == "sync":
        try:
            return session.send("go").result().text
        except UnfinishedTurn:
            return session.resume().result().text
    return asyncio.run(_arun(session))


async def _arun(session: Session) -> str:
    try:
        return (await (await session.asend("go")).result()).text
    except UnfinishedTurn:
        return (await (await session.aresume()).result()).text


def main(database: str, log: str, world: str) -> dict[str, Any]:
    """Run the tree, and return the result."""
    with Session(bomb(Log(Path(log))), database, thread="t") as session:
        return {"text": run(session, world)}
