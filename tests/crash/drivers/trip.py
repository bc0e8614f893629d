"""A trip of two turns through three levels, and a client that brings it to its end.

Every other driver here runs it, and has something happen to it meanwhile. The tools write a
line for each effect that they have on the world, and nothing else tells what really happened.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.types import interrupt

from echelons import Agent, Question, Result, Session, SqliteCheckpointer
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.scripts import Step
from tests.told_lines import without_told

TURNS = {"t1": "day one", "t2": "day two"}
"""Ids of the turns, and their tasks, in order."""
ROUNDS = 20
"""How often a turn is submitted at most; two questions and a few unknown outcomes need less."""
ASKS = "t2"
"""The turn in which the scout asks."""


@dataclass(frozen=True)
class Place:
    """Where a trip is kept.

    Attributes:
        folder: Everything is in here.
    """

    folder: Path

    @property
    def database(self) -> Path:
        return self.folder / "trip.sqlite"

    def add(self, file: str, line: str) -> None:
        """Add a line to a file: once it returns, the world has seen it, whoever dies."""
        opened = os.open(self.folder / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(opened, f"{line}\n".encode())
        os.close(opened)

    def lines(self, file: str) -> list[str]:
        """Return what was added to a file."""
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []


def tree(place: Place, booked: Callable[[str], None] = lambda _: None) -> Agent:
    """Return three levels, each of which has an effect in each turn.

    Args:
        place: Where the effects are seen.
        booked: Called within a tool after each effect.
    """

    def book(token: str) -> str:
        """Book something: the same twice is a mistake."""
        place.add("effects", token)
        booked(token)
        return f"booked {token}"

    def ask(question: str) -> str:
        """Ask the human."""
        return f"the human said {interrupt(question)}"

    scout = Agent("scout", tools=[book, ask])
    north = Agent("north", tools=[book], subordinates=[scout])
    model = ScriptedModel({agent: _script(steps) for agent, steps in SCRIPTS.items()})
    return Agent("head", model=model, tools=[book], subordinates=[north])


def _head(task: str) -> Sequence[Step]:
    both = [delegate("north", task), Call("book", {"token": f"{task}: head"})]
    return [both, f"{task} is over"]


def _north(task: str) -> Sequence[Step]:
    return [Call("book", {"token": f"{task}: north"}), delegate("scout", task), "north is done"]


def _scout(task: str) -> Sequence[Step]:
    booking = Call("book", {"token": f"{task}: scout"})
    asking = [Call("ask", {"question": f"{task}?"})] if task == TURNS[ASKS] else []
    return [[*asking, booking], "the scout knows"]


SCRIPTS: Mapping[str, Callable[[str], Sequence[Step]]] = {
    "head": _head,
    "north": _north,
    "scout": _scout,
}


def _script(steps: Callable[[str], Sequence[Step]]) -> Callable[[Sequence[BaseMessage]], Step]:
    def next_step(messages: Sequence[BaseMessage]) -> Step:
        told = [place for place, each in enumerate(messages) if isinstance(each, HumanMessage)]
        said = sum(isinstance(each, AIMessage) for each in messages[told[-1] :])
        return steps(str(messages[told[-1]].text))[said]

    return next_step


EFFECTS = sorted(f"{task}: {agent}" for task in TURNS.values() for agent in SCRIPTS)
"""Every effect that the trip is to have, once."""


class Client:
    """Who uses the tree: knows its tasks, answers what is asked, and gives up nothing."""

    def __init__(self, session: Session, place: Place, world: str) -> None:
        self._session = session
        self._place = place
        self._world = world

    def finish(self) -> None:
        """Have every turn done, whatever was done before."""
        for turn, task in TURNS.items():
            answer = self.settle(turn, task)
            self._place.add("done", f"{turn}: {answer}")

    def settle(self, turn: str, task: str) -> str:
        """Submit a turn until it is done, and return its answer."""
        if self._world == "async":
            return asyncio.run(self.asettle(turn, task))
        for _ in range(ROUNDS):
            result = self._session.send(task, turn_id=turn).result()
            if result.finished:
                return result.text
            if answers := self._answers(result):
                self._session.answer(answers).result()
        raise AssertionError(f"turn {turn} comes to no end")

    async def asettle(self, turn: str, task: str) -> str:
        """Do what ``settle`` does in an event loop."""
        for _ in range(ROUNDS):
            result = await (await self._session.asend(task, turn_id=turn)).result()
            if result.finished:
                return result.text
            if answers := self._answers(result):
                await (await self._session.aanswer(answers)).result()
        raise AssertionError(f"turn {turn} comes to no end")

    def _answers(self, result: Result) -> dict[str, Any]:
        return {each.id: self._answer(each) for each in result.questions}

    def _answer(self, asked: Question) -> Any:
        if isinstance(asked.value, str):
            return f"yes to {asked.value}"
        # A call that was cut short; the effects tell whether it happened.
        token = asked.value["arguments"].get("token", "")
        self._place.add("unknown", f"{asked.value['tool']} {token}")
        if token in self._place.lines("effects"):
            return {"outcome": "happened", "result": f"booked {token}"}
        return "run_again"


def live(place: Place, world: str = "sync", **options: Any) -> None:
    """Have every turn done in this process; the options are the checkpointer's."""
    with SqliteCheckpointer(place.database, **options) as saver:
        Client(Session(tree(place), saver, thread="trip"), place, world).finish()


def look(place: Place) -> dict[str, Any]:
    """Return all that is there when the trip is over."""
    with closing(sqlite3.connect(place.database)) as connection:
        checked = [each for (each,) in connection.execute("PRAGMA integrity_check")]
    with Session(tree(place), place.database, thread="trip") as session:
        return {"integrity": checked, **told(session), **seen(place)}


def told(session: Session) -> dict[str, Any]:
    """Return what is stored of a trip."""
    links = session.thread_store.verify(session.thread_id)
    threads = [session.thread_id, *(link.sub_agent_thread_id for link in links)]
    return {
        "links": [str(link.state) for link in links],
        "said": {
            thread.path: [f"{each.type}: {without_told(each.text)}" for each in thread.messages]
            for thread in (session.thread_store.get(each, session.thread_id) for each in threads)
        },
    }


def seen(place: Place) -> dict[str, Any]:
    """Return what the world has seen of a trip."""
    return {
        "effects": sorted(place.lines("effects")),
        "unknown": place.lines("unknown"),
        "done": sorted(set(place.lines("done"))),
    }
