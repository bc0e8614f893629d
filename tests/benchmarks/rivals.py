"""Who is measured: our tree, the hand-written one at three settings, and the floor.

``rivals`` opens them for ``invoke``, ``arivals`` for ``ainvoke``, each on a database of its
own in a folder that is gone afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Durability

from echelons import SqliteCheckpointer
from tests.benchmarks import floor, handwritten
from tests.benchmarks.handwritten import Synchronous
from tests.benchmarks.trees import Role, ours

OURS = "ours"
OURS_FULL = "ours, FULL"
AS_IT_COMES = "hand-written, as it comes"
NORMAL = "hand-written, NORMAL, sync"
FULL = "hand-written, FULL, sync"
FLOOR = "the floor"
ALL = (OURS, AS_IT_COMES, NORMAL, OURS_FULL, FULL, FLOOR)

OWN: Mapping[str, Synchronous] = {OURS: "NORMAL", OURS_FULL: "FULL"}
HANDWRITTEN: Mapping[str, tuple[Synchronous, Durability | None]] = {
    AS_IT_COMES: ("FULL", None),
    NORMAL: ("NORMAL", "sync"),
    FULL: ("FULL", "sync"),
}


class Rival(Protocol):
    """One that does the work."""

    @property
    def database(self) -> Path:
        """Where it keeps the work."""
        ...

    def invoke(self, given: Any, thread: str) -> str:
        """Do a task, or go on with a command; return the answer."""
        ...

    async def ainvoke(self, given: Any, thread: str) -> str:
        """Do the same in an event loop."""
        ...


Field = dict[str, Rival]
"""Rivals by name."""


def works(field: Field, given: Any) -> dict[str, Callable[[int], object]]:
    """Return what each rival is to do: one thing, on a thread of its own each round."""
    return {name: partial(_invoke, rival, given) for name, rival in field.items()}


def aworks(field: Field, given: Any) -> dict[str, Callable[[int], Awaitable[object]]]:
    """Do what ``works`` does for an event loop."""
    return {name: partial(_ainvoke, rival, given) for name, rival in field.items()}


def _invoke(rival: Rival, given: Any, number: int) -> str:
    return rival.invoke(given, f"thread{number}")


def _ainvoke(rival: Rival, given: Any, number: int) -> Awaitable[str]:
    return rival.ainvoke(given, f"thread{number}")


@dataclass(frozen=True, slots=True)
class GraphRival:
    """A compiled graph, ours or hand-written.

    Attributes:
        graph: The root.
        database: Where it keeps the work.
        durability: LangGraph's; ``None`` as it comes.
        at_once: Most tasks that run at once; ``None`` as it comes.
    """

    graph: CompiledStateGraph[Any, Any, Any, Any]
    database: Path
    durability: Durability | None = None
    at_once: int | None = None

    def invoke(self, given: Any, thread: str) -> str:
        """Do a task, or go on with a command; return the answer."""
        done = self.graph.invoke(_input(given), self._config(thread), durability=self.durability)
        return str(done["messages"][-1].text)

    async def ainvoke(self, given: Any, thread: str) -> str:
        """Do the same in an event loop."""
        config = self._config(thread)
        done = await self.graph.ainvoke(_input(given), config, durability=self.durability)
        return str(done["messages"][-1].text)

    def _config(self, thread: str) -> RunnableConfig:
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        return config if self.at_once is None else {**config, "max_concurrency": self.at_once}


@contextmanager
def rivals(role: Role, names: Sequence[str] = ALL, at_once: int | None = None) -> Iterator[Field]:
    """Open rivals that do the work of a tree in this thread.

    Args:
        role: The tree's root.
        names: Which of them.
        at_once: Most tasks that a graph runs at once.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        field = _common(role, names, at_once, folder, stack)
        for name in _handwritten(names):
            synchronous, durability = HANDWRITTEN[name]
            database = _database(folder, name)
            saver = stack.enter_context(handwritten.saver(database, synchronous))
            graph = handwritten.handwritten(role).compile(checkpointer=saver)
            field[name] = GraphRival(graph, database, durability, at_once)
        yield field


@asynccontextmanager
async def arivals(
    role: Role,
    names: Sequence[str] = ALL,
    remembers: Literal[True] | None = None,
    folder: Path | None = None,
) -> AsyncIterator[Field]:
    """Open rivals that do the work of a tree in an event loop.

    Args:
        role: The tree's root.
        names: Which of them.
        remembers: Whether hand-written subordinates know their earlier calls; ours do.
        folder: Where they keep the work; a new one if left out, gone afterwards.
    """
    async with AsyncExitStack() as stack:
        folder = folder or Path(stack.enter_context(TemporaryDirectory()))
        field = _common(role, names, None, folder, stack)
        for name in _handwritten(names):
            synchronous, durability = HANDWRITTEN[name]
            database = _database(folder, name)
            saver = await stack.enter_async_context(handwritten.asaver(database, synchronous))
            graph = handwritten.ahandwritten(role, remembers).compile(checkpointer=saver)
            field[name] = GraphRival(graph, database, durability)
        yield field


def _common(
    role: Role,
    names: Sequence[str],
    at_once: int | None,
    folder: Path,
    stack: ExitStack | AsyncExitStack,
) -> Field:
    """Open those that are the same in both worlds."""
    field: Field = {}
    for name, synchronous in OWN.items():
        if name in names:
            database = _database(folder, name)
            saver = stack.enter_context(SqliteCheckpointer(database, synchronous=synchronous))
            field[name] = GraphRival(ours(role).compile(saver), database, at_once=at_once)
    if FLOOR in names:
        database = _database(folder, FLOOR)
        connection = stack.enter_context(closing(floor.connect(database)))
        field[FLOOR] = floor.Floor(role, connection, database)
    return field


def _handwritten(names: Sequence[str]) -> list[str]:
    return [name for name in names if name in HANDWRITTEN]


def _database(folder: Path, name: str) -> Path:
    return folder / f"{name.replace(', ', '-').replace(' ', '-')}.sqlite"


def _input(given: Any) -> Any:
    return {"messages": [("user", given)]} if isinstance(given, str) else given
