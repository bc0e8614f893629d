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

from echelons import Agent, Result, Session, Usage
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.scripts import Step

TURNS = {"t1": "day one", "t2": "day two"}
"""Ids of the turns, and their tasks, in order."""
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


def tree(place: Place) -> Agent:
    """Return three levels, each of which has an effect in each turn."""

    def book(token: str) -> str:
        """Book something: the same twice is a mistake."""
        place.add("effects", token)
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
            if turn not in self._place.lines("done"):
                self.settle(turn, task)
                self._place.add("done", turn)

    def settle(self, turn: str, task: str) -> None:
        """Have a turn done."""
        while not self._step(turn, task).finished:
            pass

    def _step(self, turn: str, task: str) -> Result:
        if asked := self._session.inbox():
            return self._do("answer", {each.id: self._answer(each.value) for each in asked})
        if self._session.graph.get_state(self._session.config).tasks:
            return self._do("resume")
        if self._is_known(task):
            return Result("", (), True, Usage())
        return self._do("send", task)

    def _is_known(self, task: str) -> bool:
        messages = self._session.graph.get_state(self._session.config).values.get("messages", ())
        return any(str(each.text) == task for each in messages)

    def _answer(self, question: Any) -> Any:
        return f"yes to {question}"

    def _do(self, method: str, *arguments: Any) -> Result:
        if self._world == "sync":
            result: Result = getattr(self._session, method)(*arguments).result()
            return result
        return asyncio.run(_awaited(getattr(self._session, f"a{method}"), *arguments))


async def _awaited(method: Callable[..., Any], *arguments: Any) -> Result:
    result: Result = await (await method(*arguments)).result()
    return result


def live(place: Place, world: str = "sync") -> None:
    """Have every turn done in this process."""
    with Session(tree(place), place.database, thread="trip") as session:
        Client(session, place, world).finish()


def look(place: Place) -> dict[str, Any]:
    """Return all that is there when the trip is over."""
    with closing(sqlite3.connect(place.database)) as connection:
        checked = [each for (each,) in connection.execute("PRAGMA integrity_check")]
    with Session(tree(place), place.database, thread="trip") as session:
        links = session.store.verify(session.thread_id)
        threads = [session.thread_id, *(link.sub_agent_thread_id for link in links)]
        said = {
            "/".join(thread.path): [f"{each.type}: {each.text}" for each in thread.messages]
            for thread in (session.store.get(each, session.thread_id) for each in threads)
        }
        return {
            "integrity": checked,
            "links": [str(link.state) for link in links],
            "said": said,
            "effects": place.lines("effects"),
            "done": place.lines("done"),
        }
