"""Trees with people in them, and a program that does one thing to one of them.

`main` is run in a process of its own, to show that nothing of a question is in a process's memory.
"""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import BaseMessage

from echelons import Agent, Human, Session, SqliteCheckpointer
from echelons.testing import ScriptedModel, delegate
from tests.told_lines import get_last


def ask_and_end(*calls: Any) -> Any:
    """Return the script of an agent that makes calls for each task, and ends with their results."""

    def reply(messages: list[BaseMessage]) -> Any:
        if get_last(messages).type == "human":
            return [*calls]
        results: list[str] = []
        for message in reversed(messages):
            if message.type != "tool":
                break
            results.insert(0, str(message.text))
        return " | ".join(results)

    return reply


def build_ladder(**human: Any) -> Agent:
    """Return a tree of three levels with a person on the third."""
    model = ScriptedModel(
        {
            "head": ask_and_end(delegate("lead", "Have it signed")),
            "lead": ask_and_end(delegate("anna", "Sign it", context={"sum": 700})),
        }
    )
    lead = Agent("lead", subordinates=[Human("anna", "Signs", **human)])
    return Agent("head", model=model, subordinates=[lead])


def main(database: str, action: str, argument: str = "null") -> dict[str, Any]:
    """Send a task to the ladder, answer it or resume it, and tell what came of it."""
    with SqliteCheckpointer(database) as saver:
        session, given = Session(build_ladder(), saver), json.loads(argument)
        runs: dict[str, Any] = {"send": session.send, "answer": session.answer}
        result = runs[action](given).result()
        asked = {each.id: each.value for each in result.questions}
        return {"status": str(result.status), "text": result.text, "asked": asked}
