"""The team whose thread stands in `tests/fixtures/dismissed.db`, and how that was written.

``PYTHONPATH=$PWD python tests/scenarios/drivers/dismissed_team.py FILE`` writes it. The turn waits:
an agent that was made at run time has asked the user, and was dismissed since, and so was, with
grace, a declared one that has answered.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from echelons import Agent, Permissions, Session, Spawn, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import is_said

THREAD = "dismissed"
BY = "anna"


def build_team() -> Agent:
    """Return a head that gives north a task and makes two agents, of whom the scout asks."""

    def head(messages: Sequence[BaseMessage]) -> Any:
        [*_, task] = [place for place, each in enumerate(messages) if is_said(each)]
        if any(isinstance(each, AIMessage) for each in messages[task:]):
            return f"{messages[task].text} is over"
        if str(messages[task].text) != "go":
            return delegate("north", str(messages[task].text))
        return [delegate("north", "look"), make("scout"), make("digger")]

    def make(role: str) -> Call:
        kept = {"keep": True, "contact_user": role == "scout"}
        return Call("spawn_subordinate", {"role": role, "message": "look", **kept})

    scout = [Call("ask_user", {"question": "How far?"}), "never said"]
    scripts: dict[str, Any] = {"head": head, "scout": scout}
    scripts |= {"north": ["north is done"] * 2, "digger": ["digger is done"]}
    permissions = Permissions(contact_user=True, spawn=Spawn(levels=1))
    model = ScriptedModel(scripts)
    return Agent("head", model=model, subordinates=[Agent("north")], permissions=permissions)


def write(file: Path) -> None:
    """Write the database."""
    with (
        SqliteCheckpointer(file) as saver,
        Session(build_team(), saver, thread=THREAD) as session,
    ):
        [question] = session.send("go").result().questions
        session.dismiss(question.path, by=BY)
        session.dismiss("head/north", graceful=True, by=BY)
    shrink(file)


def shrink(file: Path) -> None:
    """Make a database as small as it can be, of one file."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("VACUUM")
    for left in file.parent.glob(f"{file.name}-lease-*"):
        left.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())
