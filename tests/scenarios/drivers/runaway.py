"""Trees that get out of hand or are held, run as a process of their own (see ``forks``).

``main(DATABASE, LOG, WORLD, WHAT)``: WHAT is ``bomb``, a tree
that hands work down for ever and whose process kills itself at its eighth model call; or ``crowd``,
thirty agents that work side by side; or ``held``, the same, paused in the middle by one of them,
and killed once it is. Each call of a model or tool writes a line to LOG before it does anything.
A process that finds an unfinished turn goes on with it. At the end it returns the
result and all conversations.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, tool

from echelons import Agent, Limits, Session, effect
from echelons.errors import UnfinishedTurn
from echelons.testing import Call, Reply, ScriptedModel, delegate
from tests.scenarios.drivers.expedition import Log

LIMITS = Limits(steps=300, calls=40)
DEADLY = 8
CROWD = 30

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


def crowd(log: Log, middle: Callable[[], object]) -> Agent:
    """Return a root with thirty agents; one of them does something in the middle."""

    def script(name: str) -> Script:
        def step(messages: Sequence[BaseMessage]) -> Any:
            place = sum(isinstance(each, AIMessage) for each in messages)
            log.write(f"model {name} {place}")
            if name == f"m{CROWD // 2}" and place == 0:
                middle()
            return [Call("dig", {"place": name}), f"{name} is done"][place]

        return step

    names = [f"m{number}" for number in range(CROWD)]
    scripts: dict[str, Any] = {name: script(name) for name in names}
    scripts["head"] = [[delegate(name, "dig") for name in names], "all are done"]
    members = [Agent(name, tools=[digger(log)]) for name in names]
    return Agent("head", model=ScriptedModel(scripts), subordinates=members)


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


def told(session: Session) -> dict[str, list[str]]:
    """Return what every agent's conversation says, by path."""
    return {
        "/".join(session.thread_store.get(each.thread_id).path): [
            f"{message.type}: {message.text}"
            for message in session.thread_store.get(each.thread_id).messages
        ]
        for each in session.trace().walk()
    }


def main(database: str, log: str, world: str, what: str) -> dict[str, Any]:
    """Run a tree, and return the result and all conversations."""
    written = Log(Path(log))
    paused: list[str] = []

    def middle() -> None:
        if what == "held":
            paused.append(session.pause())

    tree = bomb(written) if what == "bomb" else crowd(written, middle)
    with Session(tree, database, thread="t") as session:
        text = run(session, world)
        if paused:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"text": text, "told": told(session)}
