"""The trees whose threads stand in `tests/fixtures/step_*.db`, and how such a database is written.

``PYTHONPATH=CHECKOUT python tests/scenarios/drivers/schema_steps.py FILE`` writes one with the code
of a checkout, of any age: it uses nothing that the first commits with a `Session` had not. The code
from before steering writes no thread that is paused, and that from before `Spawn` no grown tree.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.types import interrupt

import echelons
from echelons import Agent, Session, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import get_last

LEVELS: tuple[str, ...] = ("head", "chief", "clerk")
CUT, ASKING, PAUSED, GROWN = "cut", "asking", "paused", "grown"
"""The threads: three calls cut short, three questions, and a pause, one for each level; and a
question of an agent that was made at run time by one that was made so, too."""


def build_tree(
    thread: str, dig: Callable[[str], object], pause: Callable[[str], object] = str
) -> Agent:
    """Return a tree of three levels, each of which makes a call and delegates beside it.

    Args:
        thread: What they do: all ask a person, or all dig.
        dig: Called by the tool `dig` with the name of the agent.
        pause: Called with a path in the head's first thought.
    """

    def dig_tool(who: str) -> str:
        """Dig: the same twice is a mistake."""
        dig(who)
        return f"{who} dug"

    def ask(who: str) -> str:
        """Ask a person."""
        return f"{who} heard {interrupt(f'{who}?')}"

    def think(who: str) -> Any:
        below = dict(pairwise(LEVELS)).get(who)
        calls: list[Call] = [Call("ask" if thread == ASKING else "dig_tool", {"who": who})]
        if below:
            calls.append(delegate(below, "go"))

        def reply(messages: Sequence[BaseMessage]) -> Any:
            if isinstance(get_last(messages), ToolMessage):
                return f"{who} is done"
            if thread == PAUSED and who == "head":
                pause("head/chief")
            return calls

        return reply

    tools = [dig_tool, ask]
    clerk = Agent("clerk", tools=tools)
    chief = Agent("chief", tools=tools, subordinates=[clerk])
    model = ScriptedModel({who: think(who) for who in LEVELS})
    return Agent("head", model=model, tools=tools, subordinates=[chief])


def build_growing_tree() -> Agent:
    """Return an agent that makes one, which makes one that asks a person."""
    kept = {"keep": True, "contact_user": True}

    def reply(messages: Sequence[BaseMessage]) -> Any:
        last = get_last(messages)
        if isinstance(last, ToolMessage):
            return f"read: {last.text}"
        scout, digger = (
            Call("spawn_subordinate", {"role": role, "message": task, **kept})
            for role, task in (("scout", "look"), ("digger", "dig"))
        )
        calls = {"go": scout, "look": digger, "dig": Call("ask_user", {"question": "how deep?"})}
        return calls.get(str(last.text), "nothing")

    given: Any = echelons
    rules = given.Permissions(contact_user=True, spawn=given.Spawn(levels=2))
    return Agent("head", model=ScriptedModel(reply), permissions=rules)


def begin(file: Path, thread: str) -> None:
    """Send the task of a thread; the process dies where its calls are to be cut short."""
    all_begun = threading.Barrier(len(LEVELS))

    def dig(who: str) -> None:
        if thread == CUT:
            all_begun.wait()
            os.kill(os.getpid(), signal.SIGKILL)

    with SqliteCheckpointer(file) as saver:
        if thread == GROWN:
            Session(build_growing_tree(), saver, thread=thread).send("go").result()
            return
        tree = build_tree(thread, dig, lambda path: session.pause(path))  # noqa: PLW0108
        session = Session(tree, saver, thread=thread)
        session.send("go").result()


def write(file: Path) -> None:
    """Write the database."""
    threads = [CUT, ASKING, *([PAUSED] if hasattr(Session, "pause") else [])]
    for thread in (*threads, *([GROWN] if hasattr(echelons, "Spawn") else [])):
        pid = os.fork()
        if pid == 0:
            begin(file, thread)
            os._exit(0)
        os.waitpid(pid, 0)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("VACUUM")
    for left in file.parent.glob(f"{file.name}-lease-*"):
        left.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())
