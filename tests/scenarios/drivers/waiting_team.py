"""The teams whose threads stand in `tests/fixtures/waiting.db`, and how that was written.

``PYTHONPATH=$PWD python tests/scenarios/drivers/waiting_team.py FILE`` writes it, with the code of
commit 833afe7: the last one in which several tasks for one subordinate always ran in a queue, a
report beside other calls was taken at once, and questions had three tools. Each turn waits for the
user.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.testing import Call, Reply, ScriptedModel, delegate, report
from tests.scenarios.drivers.dismissed_team import shrink
from tests.told_lines import get_last, is_said

TASK = "go"


def book(place: str) -> str:
    """Book a table."""
    return f"{place}: {interrupt(f'Book {place}?')}"


def build_tasks_team() -> Agent:
    """Return a head that gives its clerk three tasks in one message, of which the second asks."""

    def clerk(messages: Sequence[BaseMessage]) -> Any:
        if isinstance(get_last(messages), ToolMessage):
            return f"booked {get_last(messages).text}"
        task = str(get_last(messages).text)
        tasks = sum(is_said(message) for message in messages)
        return Call("book", {"place": task}) if task == "Diana" else f"{task} is task {tasks}"

    tasks = [delegate("clerk", place) for place in ("Roma", "Diana", "Sole")]
    model = ScriptedModel({"head": _begin_with(tasks), "clerk": clerk})
    return Agent("head", model=model, subordinates=[Agent("clerk", tools=[book])])


def build_report_team() -> Agent:
    """Return a head whose clerk reports beside a call that asks."""
    calls = Reply("", [Call("book", {"place": "Diana"}), report("fulfilled", "All is booked.")])
    model = ScriptedModel({"head": _begin_with([delegate("clerk", "book")]), "clerk": [calls]})
    return Agent("head", model=model, subordinates=[Agent("clerk", tools=[book])])


def build_later_team() -> Agent:
    """Return a head that asks a question for later, beside a call that asks."""
    calls = [Call("ask_later", {"question": "Which city?"}), Call("book", {"place": "Diana"})]

    def head(messages: Sequence[BaseMessage]) -> Any:
        if not any(isinstance(message, AIMessage) for message in messages):
            return calls
        heard = [str(message.text) for message in messages if is_said(message)]
        return f"booked; heard {heard[1:]}"

    return Agent("head", model=ScriptedModel({"head": head}), tools=[book])


TEAMS: dict[str, Callable[[], Agent]] = {
    "tasks": build_tasks_team,
    "report": build_report_team,
    "later": build_later_team,
}
"""The teams by the names of their threads."""


def _begin_with(calls: Sequence[Call]) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return a script that makes some calls, and then repeats the texts of their answers."""

    def play(messages: Sequence[BaseMessage]) -> Any:
        answers = [str(message.text) for message in messages if isinstance(message, ToolMessage)]
        return " | ".join(answers) if answers else list(calls)

    return play


def write(file: Path) -> None:
    """Write the database."""
    with SqliteCheckpointer(file) as saver:
        for thread, build in TEAMS.items():
            with Session(build(), saver, thread=thread) as session:
                assert session.send(TASK).result().questions
    shrink(file)


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())
