"""Four ways to run a tree, with one face: what each of them promises is a table in the docs.

A way ``moves`` to another process when it is told to: everything in memory is lost, and what
is on the disk is opened anew.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.langgraph_server import checkpointer
from echelons.identity.lineage import derive_root_thread_id

THREAD = derive_root_thread_id("trip")
CONFIG: Any = {"configurable": {"thread_id": THREAD}}


class Way(ABC):
    """A way to run trees on one thread of a database in a folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "t.sqlite"
        self.saver = self._open()

    def another(self) -> Way:
        """Return the same way as another process would have it."""
        return type(self)(self.file.parent)

    def move(self) -> None:
        """Go on as another process would have to."""
        self._shut()
        self.saver = self._open()

    def close(self) -> None:
        """Give up what is open."""
        self._shut()

    def run_sql(self, query: str) -> list[Any]:
        """Ask the database directly, as another program would."""
        with sqlite3.connect(self.file) as connection:
            rows = connection.execute(query).fetchall()
        connection.close()
        return rows

    @abstractmethod
    def _open(self) -> BaseCheckpointSaver[Any]: ...

    @abstractmethod
    def _shut(self) -> None: ...

    @abstractmethod
    def send(self, agent: Agent, task: str, turn: str | None = None) -> str:
        """Give the root a task, and return its last words; empty while it waits."""

    @abstractmethod
    def answer(self, agent: Agent, answers: Mapping[str, Any]) -> str:
        """Answer questions, and return the root's last words."""

    @abstractmethod
    def resume(self, agent: Agent) -> str:
        """Go on with a turn that was cut short."""

    @abstractmethod
    def begin(self, agent: Agent, task: str) -> Iterator[Any]:
        """Return a run that does a step for each thing that is taken from it."""


class Compiled(Way):
    """``compile()``: an ordinary graph of LangGraph."""

    def send(self, agent: Agent, task: str, turn: str | None = None) -> str:
        return self._invoke(agent, {"messages": [("user", task)]})

    def answer(self, agent: Agent, answers: Mapping[str, Any]) -> str:
        return self._invoke(agent, Command(resume=dict(answers)))

    def resume(self, agent: Agent) -> str:
        return self._invoke(agent, None)

    def begin(self, agent: Agent, task: str) -> Iterator[Any]:
        graph = agent.compile(self.saver)
        return graph.stream({"messages": [("user", task)]}, CONFIG, durability="sync")

    def _invoke(self, agent: Agent, given: Any) -> str:
        done = agent.compile(self.saver).invoke(given, CONFIG, durability="sync")
        return "" if "__interrupt__" in done else str(done["messages"][-1].text)


class AnySaver(Compiled):
    """``compile()`` with LangGraph's own saver."""

    def _open(self) -> BaseCheckpointSaver[Any]:
        return SqliteSaver(sqlite3.connect(self.file, check_same_thread=False))

    def _shut(self) -> None:
        self.saver.conn.close()  # type: ignore[attr-defined]


class OurSaver(Compiled):
    """``compile()`` with ours."""

    def _open(self) -> SqliteCheckpointer:
        return SqliteCheckpointer(self.file)

    def _shut(self) -> None:
        self.saver.close()  # type: ignore[attr-defined]


class InSession(OurSaver):
    """``Session``."""

    def send(self, agent: Agent, task: str, turn: str | None = None) -> str:
        return self.session(agent).send(task, turn_id=turn).result().text

    def answer(self, agent: Agent, answers: Mapping[str, Any]) -> str:
        return self.session(agent).answer(answers).result().text

    def resume(self, agent: Agent) -> str:
        return self.session(agent).resume().result().text

    def begin(self, agent: Agent, task: str) -> Iterator[Any]:
        return iter(self.session(agent).send(task))

    def session(self, agent: Agent) -> Session:
        return Session(agent, self.saver, thread="trip")


class OnServer(OurSaver):
    """A server that is given our factory, as ``langgraph.json`` names it."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.Runner()
        self.run = self._loop.run
        super().__init__(folder)

    def _open(self) -> SqliteCheckpointer:
        self._lent = checkpointer()
        return self.run(self._lent.__aenter__())

    def _shut(self) -> None:
        self.run(self._lent.__aexit__(None, None, None))

    def close(self) -> None:
        self._shut()
        self._loop.close()

    def begin(self, agent: Agent, task: str) -> Iterator[Any]:
        graph = agent.compile().copy({"checkpointer": self.saver})
        given: Any = {"messages": [("user", task)]}
        parts = graph.astream(given, CONFIG, durability="sync")
        while (part := self.run(_next(parts))) is not None:
            yield part

    def _invoke(self, agent: Agent, given: Any) -> str:
        graph = agent.compile().copy({"checkpointer": self.saver})
        done = self.run(graph.ainvoke(given, CONFIG, durability="sync"))
        return "" if "__interrupt__" in done else str(done["messages"][-1].text)


async def _next(parts: Any) -> Any:
    return await anext(parts, None)
