"""Kills a process at each point of a tool's life, and lets a person say what became of it.

``python -m tests.scenarios.drivers.effects FOLDER WORLD STEP`` prints, as JSON, a report for
every STEPth case of the world's half of them: how many questions the tool asks, after how
many answers or after its effect it dies, what the human says to that, and the way in which the
answers are given. Each process is a fork of this one, killed with SIGKILL.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any, NamedTuple

from langchain_core.tools import BaseTool, tool
from langgraph.types import Command, interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.delegation.user_answers import USER_ANSWER_PREFIX
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.crash import die, fork

AFTER_EFFECT = 9
"""The point behind the tool's effect; those before it are counted in answers."""
POINTS = [(asked, point) for asked in range(3) for point in [*range(asked + 1), AFTER_EFFECT]]
"""How many questions the tool asks, and where it dies."""
WAYS = ("session", "by id", "loose")
OUTCOMES: Mapping[str, Any] = {
    "happened": {"outcome": "happened", "result": "booked by hand"},
    "not_happened": {"outcome": "not_happened"},
    "run_again": "run_again",
}


class Case(NamedTuple):
    """One death, and what a human says to it."""

    questions: int
    dies_at: int
    says: str
    way: str
    deaths: int = 1

    @property
    def name(self) -> str:
        return "-".join(str(each) for each in self)


def cases() -> list[Case]:
    """Return every case: the tool with 0, 1 and 2 questions, killed wherever that is possible."""
    found = [
        Case(questions, point, says, way)
        for questions, point in POINTS
        for says in OUTCOMES
        for way in WAYS
    ]
    again = [
        Case(questions, point, "run_again", way, deaths=2)
        for questions, point in POINTS
        for way in WAYS
    ]
    return found + again


def booking(folder: Path, case: Case) -> BaseTool:
    """Return a tool that asks, has an effect, and lets its process die on the way."""

    def perhaps_die(point: int) -> None:
        marks = len(list(folder.glob("death-*")))
        if point == case.dies_at and marks < case.deaths:
            (folder / f"death-{marks}").touch()
            die()

    @tool
    def book(city: str) -> str:
        """Book a room."""
        answers = []
        perhaps_die(0)
        for number in range(case.questions):
            answers.append(interrupt(f"question {number + 1}?"))
            perhaps_die(number + 1)
        with (folder / "effects.txt").open("a", encoding="utf-8") as file:
            file.write(f"booked {city}: {answers}\n")
        perhaps_die(AFTER_EFFECT)
        return f"booked {answers}"

    return book


def tree(folder: Path, case: Case) -> Agent:
    """Return a tree of three levels, the last of which books."""
    model = ScriptedModel(
        {
            "head": [delegate("north", "go"), "head is done"],
            "north": [delegate("scout", "go"), "north is done"],
            "scout": [Call("book", {"city": "Rome"}), "scout is done"],
        }
    )
    scout = Agent("scout", tools=[booking(folder, case)])
    return Agent("head", model=model, subordinates=[Agent("north", subordinates=[scout])])


class Human:
    """Answers whatever is asked, in a process of its own each time one has died."""

    def __init__(self, folder: Path, case: Case, world: str) -> None:
        self._folder = folder
        self._case = case
        self._world = world

    def reply(self, value: Any) -> Any:
        """Return what is said to a question, and note that it was asked."""
        asked = value if isinstance(value, str) else value["kind"]
        with (self._folder / "asked.txt").open("a", encoding="utf-8") as file:
            file.write(f"{asked}\n")
        if isinstance(value, str):
            return f"answer to {value}"
        return OUTCOMES[self._case.says]

    def live(self) -> None:
        """Go on with the run until it ends, or this process does."""
        if self._case.way == "session":
            asyncio.run(self._asession()) if self._world == "async" else self._session()
        else:
            asyncio.run(self._agraph()) if self._world == "async" else self._graph()

    def _session(self) -> None:
        with Session(tree(self._folder, self._case), self._database, thread="trip") as session:
            while True:
                if inbox := session.inbox():
                    result = session.answer(inbox[0].id, self.reply(inbox[0].value)).result()
                elif session.graph.get_state(session.config).values:
                    result = session.resume().result()
                else:
                    result = session.send("go").result()
                if result.finished:
                    return self._finish(result.text)

    async def _asession(self) -> None:
        tree_ = tree(self._folder, self._case)
        async with Session(tree_, self._database, thread="trip") as session:
            while True:
                if inbox := await session.ainbox():
                    answer = {inbox[0].id: self.reply(inbox[0].value)}
                    result = await (await session.aanswer(answer)).result()
                elif (await session.graph.aget_state(session.config)).values:
                    result = await (await session.aresume()).result()
                else:
                    result = await (await session.asend("go")).result()
                if result.finished:
                    return self._finish(result.text)

    def _graph(self) -> None:
        with SqliteCheckpointer(self._database) as saver:
            graph = tree(self._folder, self._case).compile(saver)
            given = self._first(graph.get_state(CONFIG))
            while True:
                result = graph.invoke(given, CONFIG)
                if "__interrupt__" not in result:
                    return self._finish(result["messages"][-1].text)
                given = self._resumption(result["__interrupt__"])

    async def _agraph(self) -> None:
        async with SqliteCheckpointer(self._database) as saver:
            graph = tree(self._folder, self._case).compile(saver)
            given = self._first(await graph.aget_state(CONFIG))
            while True:
                result = await graph.ainvoke(given, CONFIG)
                if "__interrupt__" not in result:
                    return self._finish(result["messages"][-1].text)
                given = self._resumption(result["__interrupt__"])

    def _first(self, state: Any) -> Any:
        # Who goes on with a graph after a crash gives it nothing: it is LangGraph's own way.
        return None if state.values else {"messages": [("user", "go")]}

    def _resumption(self, interrupts: Any) -> Any:
        [asked] = interrupts
        said = self.reply(asked.value)
        return Command(resume={asked.id: said} if self._case.way == "by id" else said)

    def _finish(self, text: str) -> None:
        (self._folder / "end.txt").write_text(text)

    @property
    def _database(self) -> Path:
        return self._folder / "trip.sqlite"


CONFIG: Any = {"configurable": {"thread_id": "trip"}}


def report(folder: Path, case: Case) -> dict[str, Any]:
    """Return what a case came to."""
    with SqliteCheckpointer(folder / "trip.sqlite") as saver:
        rows = saver.conn.execute("SELECT data FROM events WHERE kind = 'message'").fetchall()
        left = [each for each in saver.ledger.list_keys() if "/effect/" in each]
    results = [json.loads(data) for (data,) in rows]
    told = [each for each in results if each["role"] == "tool"]
    texts, lines_told = zip(*(_split_told(each) for each in told), strict=True)
    return {
        **case._asdict(),
        "effects": lines(folder / "effects.txt"),
        "asked": lines(folder / "asked.txt"),
        "told": [each for each in texts if each not in ("scout is done", "north is done")],
        "superior": [line for each in lines_told for line in each],
        "end": (folder / "end.txt").read_text(),
        "left": left,
    }


def _split_told(message: dict[str, Any]) -> tuple[str, list[str]]:
    """Return a result, and the lines that tell a superior what the user was asked."""
    # An earlier version put them beneath the result.
    result, *told = message["content"].split(f"\n{USER_ANSWER_PREFIX}")
    return result, [*told, *message.get("notices", ())]


def lines(path: Path) -> list[str]:
    """Return the lines of a file, none if it is not there."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def main(place: str, world: str, step: str) -> None:
    """Report on each case."""
    reports = []
    with SqliteCheckpointer(":memory:") as saver:
        # What is imported and compiled here need not be in each process.
        none = tree(Path(place), Case(0, -1, "run_again", "loose")).compile(saver)
        none.invoke({"messages": [("user", "go")]}, CONFIG)
    for case in cases()[world == "async" :: 2][:: int(step)]:
        folder = Path(place) / case.name
        folder.mkdir()
        human = Human(folder, case, world)
        assert [fork(human.live).wait() for _ in range(case.deaths)] == [-SIGKILL] * case.deaths
        fork(human.live).result()
        reports.append(fork(partial(report, folder, case)).result())
    print(json.dumps(reports))


if __name__ == "__main__":
    main(*sys.argv[1:])
