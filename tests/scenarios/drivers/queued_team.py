"""The teams whose threads stand in `tests/fixtures/queued.db`, and how that was written.

``PYTHONPATH=$PWD python tests/scenarios/drivers/queued_team.py FILE`` writes it, with the code of
commit 13dc060: the last one that stored all that a queue has left, and has done, at each step of
it. A person has answered the first of three tasks, and is asked the second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from echelons import Agent, Human, Session, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel, delegate, delegate_many
from tests.scenarios.drivers.dismissed_team import shrink

PAPERS = ("lease", "bill", "will")
TASKS = tuple(delegate("anna", f"Sign the {paper}") for paper in PAPERS)
THREADS: dict[str, tuple[Call, ...]] = {"calls": TASKS, "requests": (delegate_many(*TASKS),)}
"""The calls of the message that the head begins with, by the names of the threads."""


def build_team(thread: str) -> Agent:
    """Return the head of a thread, which ends with the answers that it has got."""

    def head(messages: Sequence[BaseMessage]) -> Any:
        answers = [str(message.text) for message in messages if isinstance(message, ToolMessage)]
        return " | ".join(answers) if answers else list(THREADS[thread])

    below = [Human("anna"), Agent("bert")]
    return Agent("head", model=ScriptedModel({"head": head}), subordinates=below)


def build_answer(session: Session) -> dict[str, str]:
    """Return an answer to the only question that is open."""
    [question] = session.inbox()
    paper = str(question.value).splitlines()[0].removeprefix("Sign the ")
    return {question.id: f"the {paper} is signed"}


def write(file: Path) -> None:
    """Write the database."""
    with SqliteCheckpointer(file) as saver:
        for thread in THREADS:
            with Session(build_team(thread), saver, thread=thread) as session:
                session.send("go").result()
                session.answer(build_answer(session)).result()
    shrink(file)


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())
