"""Who is measured: our tree, the hand-written one and that of `create_agent`, and the floor.

``rivals`` opens them for ``invoke``, ``arivals`` for ``ainvoke``, each on a database of its
own in a folder that is gone afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Durability

from benchmarks import floor, handwritten, wrapped
from benchmarks.handwritten import Synchronous
from benchmarks.trees import Role, budgeted, ours
from echelons import Agent, Session, SqliteCheckpointer

OURS = "ours, compile()"
NEW = "ours, a new Session each"
KEPT = "ours, a kept Session"
OURS_FULL = "ours, FULL"
AS_IT_COMES = "hand-written, as it comes"
NORMAL = "hand-written, NORMAL, sync"
FULL = "hand-written, FULL, sync"
FLOOR = "the floor"
WRAPPED = "ours, with middleware"
BUDGETED = "ours, with a budget"
CREATE_AGENT = "create_agent, as it comes"
CREATE_AGENT_WRAPPED = "create_agent, with middleware"
ALL = (OURS, NEW, KEPT, AS_IT_COMES, NORMAL, OURS_FULL, FULL, FLOOR)
NOTHING = " with a saver that does nothing"
"""Ends the name of one that stores nothing: what is left is not the database's."""

OWN: Mapping[str, Synchronous] = {
    OURS: "NORMAL",
    NEW: "NORMAL",
    KEPT: "NORMAL",
    WRAPPED: "NORMAL",
    BUDGETED: "NORMAL",
    OURS_FULL: "FULL",
}
HANDWRITTEN: Mapping[str, tuple[Synchronous, Durability | None]] = {
    AS_IT_COMES: ("FULL", None),
    NORMAL: ("NORMAL", "sync"),
    FULL: ("FULL", "sync"),
    CREATE_AGENT: ("FULL", None),
    CREATE_AGENT_WRAPPED: ("FULL", None),
}
"""The settings of LangGraph's own saver."""


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


class NoSaver(BaseCheckpointSaver[Any]):
    """A saver that stores nothing and knows nothing."""

    def get_tuple(self, config: RunnableConfig) -> None:
        """Return nothing."""

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store nothing."""
        return {"configurable": {**config["configurable"], "checkpoint_id": checkpoint["id"]}}

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store nothing."""

    async def aget_tuple(self, config: RunnableConfig) -> None:
        """Async version of `get_tuple`."""

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Async version of `put_writes`."""


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


@dataclass(frozen=True, slots=True)
class SessionRival:
    """Our tree through `Session`.

    Attributes:
        agent: The root.
        saver: Where each session keeps the work, opened before.
        database: Its path.
        kept: The session that takes every task, on its own thread; a new one for each if left out.
    """

    agent: Agent
    saver: SqliteCheckpointer
    database: Path
    kept: Session | None = None

    def invoke(self, given: Any, thread: str) -> str:
        """Do a task; return the answer."""
        if self.kept:
            return str(self.kept.send(given).result())
        with Session(self.agent, self.saver, thread=thread) as session:
            return str(session.send(given).result())

    async def ainvoke(self, given: Any, thread: str) -> str:
        """Do the same in an event loop."""
        if self.kept:
            return str(await (await self.kept.asend(given)).result())
        async with Session(self.agent, self.saver, thread=thread) as session:
            return str(await (await session.asend(given)).result())


@contextmanager
def rivals(
    role: Role,
    names: Sequence[str] = ALL,
    remembers: Literal[True] | None = None,
    at_once: int | None = None,
) -> Iterator[Field]:
    """Open rivals that do the work of a tree in this thread.

    Args:
        role: The tree's root.
        names: Which of them.
        remembers: Whether hand-written subordinates know their earlier calls; ours do.
        at_once: Most tasks that a graph runs at once.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        field = _common(role, names, at_once, folder, stack)
        for name, synchronous, durability in _handwritten(names):
            database = _database(folder, name)
            opened = handwritten.saver(database, synchronous)
            saver = NoSaver() if name.endswith(NOTHING) else stack.enter_context(opened)
            if name in (CREATE_AGENT, CREATE_AGENT_WRAPPED):
                has_middleware = name == CREATE_AGENT_WRAPPED
                graph = wrapped.build_create_agent(
                    role, saver, is_async=False, has_middleware=has_middleware
                )
            else:
                graph = handwritten.handwritten(role, remembers).compile(checkpointer=saver)
            field[name] = GraphRival(graph, database, durability, at_once)
        yield {name: field[name] for name in names}


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
        for name, synchronous, durability in _handwritten(names):
            database = _database(folder, name)
            saver: BaseCheckpointSaver[Any] = NoSaver()
            if not name.endswith(NOTHING):
                opened = handwritten.asaver(database, synchronous)
                saver = await stack.enter_async_context(opened)
            if name in (CREATE_AGENT, CREATE_AGENT_WRAPPED):
                has_middleware = name == CREATE_AGENT_WRAPPED
                graph = wrapped.build_create_agent(
                    role, saver, is_async=True, has_middleware=has_middleware
                )
            else:
                graph = handwritten.ahandwritten(role, remembers).compile(checkpointer=saver)
            field[name] = GraphRival(graph, database, durability)
        yield {name: field[name] for name in names}


def _common(
    role: Role,
    names: Sequence[str],
    at_once: int | None,
    folder: Path,
    stack: ExitStack | AsyncExitStack,
) -> Field:
    """Open those that are the same in both worlds."""
    field: Field = {}
    agent = ours(role)
    for name in names:
        database = _database(folder, name)
        if name == OURS + NOTHING:
            field[name] = GraphRival(agent.compile(NoSaver()), database, at_once=at_once)
        elif name in OWN:
            opened = SqliteCheckpointer(database, synchronous=OWN[name])
            saver = stack.enter_context(opened)
            if name in (NEW, KEPT):
                kept = Session(agent, saver) if name == KEPT else None
                field[name] = SessionRival(agent, saver, database, kept)
            else:
                made: dict[str, Callable[[Role], Agent]] = {
                    WRAPPED: wrapped.wrap,
                    BUDGETED: budgeted,
                }
                own = made[name](role) if name in made else agent
                field[name] = GraphRival(own.compile(saver), database, at_once=at_once)
        elif name == FLOOR:
            connection = stack.enter_context(closing(floor.connect(database)))
            field[name] = floor.Floor(role, connection, database)
    return field


def _handwritten(names: Sequence[str]) -> Iterator[tuple[str, Synchronous, Durability | None]]:
    for name in names:
        setting = HANDWRITTEN.get(name.removesuffix(NOTHING))
        if setting:
            yield name, *setting


def _database(folder: Path, name: str) -> Path:
    return folder / f"{name.replace(', ', '-').replace(' ', '-')}.sqlite"


def _input(given: Any) -> Any:
    return {"messages": [("user", given)]} if isinstance(given, str) else given
