"""A head that may be given a guide, and a process that gives it one.

``python -m tests.scenarios.drivers.giving DATABASE`` gives a guide to the head of the thread `t`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from echelons import Agent, Permissions, Session, Spawn
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import get_last, list_spawned


def open_session(database: Any, work: Callable[[], object] = lambda: None) -> Session:
    """Return a session whose head works, and then asks those that it was given.

    Args:
        database: A path, or a saver.
        work: Called by the head's tool.
    """

    def dig() -> str:
        """Dig."""
        work()
        return "dug"

    def lead(messages: Sequence[BaseMessage]) -> Any:
        if str(messages[-1].text) == "go":
            return Call("dig")
        made = list_spawned(messages)
        answered = [str(each.text) for each in messages if each.type == "tool"]
        if made and get_last(messages).type == "human":
            return delegate(made[-1], "lead")
        return f"read: {answered[-1]}" if answered else "nothing"

    model = ScriptedModel({"head": lead, "guide": lambda said: f"{len(said)} messages"})
    rules = Permissions(spawn=Spawn(profiles=("guide",), levels=1))
    head = Agent(
        "head",
        model=model,
        tools=[dig],
        permissions=rules,
        subordinates=[Agent("clerk", model=ScriptedModel(["done"]))],
    )
    return Session(head, database, thread="t", spawnable={"guide": Agent("guide")})


if __name__ == "__main__":
    with open_session(Path(sys.argv[1])) as session:
        print(session.spawn("head", "guide"))
