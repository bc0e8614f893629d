"""Two worlds: every scenario is run with the synchronous and the asynchronous methods.

Of a table of cases, `make test` runs each row in one of them, `make proof` in both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

import pytest
from langchain_core.runnables import RunnableConfig

from echelons import Result, RunEvent, Session, SqliteCheckpointer
from tests.fork_server import ForkServer
from tests.proof import WHOLE
from tests.scenarios.drivers.forks import Forks


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out every other cell of tables whose columns are the two worlds."""
    tables: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        if {"world", "sync"} & {*getattr(item, "fixturenames", ())}:
            name, _, cell = item.nodeid.partition("[")
            row = cell.replace("async", "sync", 1)
            tables.setdefault(name, {}).setdefault(row, []).append(item)
    rows = [
        (number, row)
        for table in tables.values()
        if len(table) > 1 and not WHOLE
        for number, row in enumerate(table.values())
    ]
    # Not the number's own parity, in step with which other columns would change.
    left = {row[number.bit_count() % 2] for number, row in rows if len(row) == 2}
    if left:
        config.hook.pytest_deselected(items=[*left])
        items[:] = [each for each in items if each not in left]


class World(Protocol):
    """How a test runs a tree; the same calls in either world."""

    def invoke(
        self, graph: Any, given: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]: ...

    def stream(
        self, graph: Any, given: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Any]: ...

    def do(self, thing: Any, method: str, *args: Any, **kwargs: Any) -> Any: ...

    def send(self, session: Session, task: str, **kwargs: Any) -> Result: ...

    def events(self, session: Session, task: str) -> list[RunEvent]: ...

    def answer(self, session: Session, answers: dict[str, Any]) -> Result: ...

    def resume(self, session: Session) -> Result: ...


class Sync:
    """``invoke``, ``send`` and their like."""

    def invoke(
        self, graph: Any, given: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        return dict(graph.invoke(given, config, **kwargs))

    def stream(
        self, graph: Any, given: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Any]:
        return list(graph.stream(given, config, **kwargs))

    def do(self, thing: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call any method; what it yields comes as a list."""
        result = getattr(thing, method)(*args, **kwargs)
        return list(result) if isinstance(result, Iterator) else result

    def send(self, session: Session, task: str, **kwargs: Any) -> Result:
        return session.send(task, **kwargs).result()

    def events(self, session: Session, task: str) -> list[RunEvent]:
        return list(session.send(task))

    def answer(self, session: Session, answers: dict[str, Any]) -> Result:
        return session.answer(answers).result()

    def resume(self, session: Session) -> Result:
        return session.resume().result()


class Async:
    """``ainvoke``, ``asend`` and their like, in one event loop."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.wait_for = runner.run

    def invoke(
        self, graph: Any, given: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        return dict(self.wait_for(graph.ainvoke(given, config, **kwargs)))

    def stream(
        self, graph: Any, given: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> list[Any]:
        async def parts() -> list[Any]:
            return [part async for part in graph.astream(given, config, **kwargs)]

        return self.wait_for(parts())

    def do(self, thing: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call the asynchronous twin of any method; what it yields comes as a list."""

        async def result() -> Any:
            found = getattr(thing, f"a{method}")(*args, **kwargs)
            if isinstance(found, AsyncIterator):
                return [each async for each in found]
            return await found

        return self.wait_for(result())

    def send(self, session: Session, task: str, **kwargs: Any) -> Result:
        async def result() -> Result:
            return await (await session.asend(task, **kwargs)).result()

        return self.wait_for(result())

    def events(self, session: Session, task: str) -> list[RunEvent]:
        async def events() -> list[RunEvent]:
            return [each async for each in await session.asend(task)]

        return self.wait_for(events())

    def answer(self, session: Session, answers: dict[str, Any]) -> Result:
        async def result() -> Result:
            return await (await session.aanswer(answers)).result()

        return self.wait_for(result())

    def resume(self, session: Session) -> Result:
        async def result() -> Result:
            return await (await session.aresume()).result()

        return self.wait_for(result())


@pytest.fixture(params=["sync", "async"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """The world that a test runs its trees in."""
    if request.param == "sync":
        yield Sync()
    else:
        with asyncio.Runner() as runner:
            yield Async(runner)


@pytest.fixture(scope="session")
def runaway(fork_server: ForkServer) -> Iterator[Forks]:
    """Runs a tree that gets out of hand, each time in a process of its own."""
    forks = Forks(fork_server, "tests.scenarios.drivers.runaway")
    yield forks
    forks.end()


@pytest.fixture
def saver() -> Iterator[SqliteCheckpointer]:
    """A real database, in memory."""
    with SqliteCheckpointer(":memory:") as saver:
        yield saver
