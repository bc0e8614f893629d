"""Kills a turn whose task is for an agent far below, and has another process finish it.

``python -m tests.scenarios.drivers.addressed FOLDER WORLD STEP`` prints, as JSON, how the turn ends
that nothing happens to, and for each STEP-th write how one ends whose process died after it. Each
process is a fork of this one.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.types import interrupt

from echelons import Agent, Result, Session, SqliteCheckpointer, effect
from echelons.testing import Call, ScriptedModel
from echelons.testing.crash import fork
from tests.scenarios.drivers.killed import Mortal
from tests.told_lines import get_last, without_told

SCOUT = "head/north/scout"


@effect(reads_only=True)
def ask() -> str:
    """Ask a human."""
    return str(interrupt("Which pass?"))


def tree(note: Callable[[str], object] = lambda agent: None) -> Agent:
    """Return a tree of three levels, whose scout asks a human; each model call is noted."""

    def reply(agent: str, messages: Sequence[BaseMessage]) -> Any:
        note(agent)
        if agent == "scout" and get_last(messages).type == "human":
            return Call("ask")
        return f"{agent} has heard: {without_told(get_last(messages).text)}"

    model = ScriptedModel({name: partial(reply, name) for name in ("head", "north", "scout")})
    north = Agent("north", subordinates=[Agent("scout", tools=[ask])])
    return Agent("head", model=model, subordinates=[north])


def run(folder: Path, world: str, saver: SqliteCheckpointer) -> dict[str, Any]:
    """Bring the turn to its end, whatever was done of it, and return what is stored."""

    def note(agent: str) -> None:
        with (folder / "log.txt").open("a") as log:
            log.write(f"{agent}\n")

    with Session(tree(note), saver) as session:
        result = step(session, world, "send", "Look", to=SCOUT, turn_id="1")
        for question in result.questions:
            result = step(session, world, "answer", question.id, "the high one")
        threads = {
            each.agent: [
                [message.type, str(message.text), len(getattr(message, "tool_calls", ()))]
                for message in session.thread_store.get(each.thread_id).messages
            ]
            for each in session.trace().walk()
        }
        links = [str(each.state) for each in session.thread_store.verify(session.thread_id)]
    asked = (folder / "log.txt").read_text().split()
    return {"text": result.text, "threads": threads, "links": links, "asked": asked}


def step(session: Session, world: str, method: str, *args: Any, **options: Any) -> Result:
    """Take a step in a world."""
    if world == "sync":
        return getattr(session, method)(*args, **options).result()  # type: ignore[no-any-return]

    async def result() -> Result:
        started = await getattr(session, f"a{method}")(*args, **options)
        return await started.result()  # type: ignore[no-any-return]

    return asyncio.run(result())


def live(folder: Path, world: str, at: int) -> dict[str, Any]:
    """Run the turn to its end, or to death after a write; 0 for none."""
    with Mortal(folder / "t.sqlite", at, "after") as saver:
        return run(folder, world, saver)


def main(place: str, world: str, every: str) -> None:
    """Print how each turn ends."""
    reports = []
    for at in itertools.count(0, int(every)):
        folder = Path(place) / str(at)
        folder.mkdir()
        living = fork(partial(live, folder, world, at))
        if living.wait() == -signal.SIGKILL:
            reports.append(fork(partial(live, folder, world, 0)).result())
            continue
        reports.append(living.result())
        if at:
            break
    print(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
