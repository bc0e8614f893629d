"""pydantic-ai: an agent run by its superior's tool, stored by hand or by DBOS.

It has no store on SQLite of its own. ``by hand`` keeps the messages of the root's run when it
has ended, after its documentation; with ``DBOS`` every model turn and tool call is a durable step.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

from benchmarks.peers import work
from benchmarks.peers.work import (
    ANSWER,
    BRIEF,
    CHAIN,
    CROWD,
    REPORT,
    SAID,
    SUBJECT,
    TASK,
    THREAD,
    TYPED,
    Size,
    Works,
    database,
)
from benchmarks.tally import TALLY

PACKAGES = ("pydantic-ai-slim", "dbos")
DBOS_STEPS = "DBOS"
UNLIMITED = UsageLimits(request_limit=None)
"""A crowd makes more requests than the 50 that are allowed as it comes."""
Wanted = Sequence[tuple[str, dict[str, Any]]]
Calling = Callable[..., Awaitable[str]]


def quick(wanted: Wanted = (), answer: str = ANSWER, latency: float = 0.0) -> FunctionModel:
    """Return a model that makes its calls, and answers when they are answered."""

    async def reply(messages: list[Any], info: Any) -> ModelResponse:
        TALLY.turns += 1
        if latency:
            await asyncio.sleep(latency)
        last = messages[-1]
        answered = isinstance(last, ModelRequest) and isinstance(last.parts[-1], ToolReturnPart)
        if (answered or not wanted) and info.output_tools:
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, REPORT)])
        if answered or not wanted:
            return ModelResponse(parts=[TextPart(answer)])
        return ModelResponse(parts=[ToolCallPart(name, arguments) for name, arguments in wanted])

    return FunctionModel(reply)


@asynccontextmanager
async def opened(folder: Path, setting: str, size: Size) -> AsyncIterator[Works]:
    """Build the trees."""
    if setting == DBOS_STEPS:
        async with _durable(folder, size) as works:
            yield works
        return
    agents = _agents(size, work.look_up, list)
    with closing(_connect(database(folder, CHAIN))) as chain:
        with closing(_connect(database(folder, CROWD))) as crowd:
            with (
                closing(_connect(database(folder, THREAD))) as thread,
                closing(_connect(database(folder, TYPED))) as typed,
            ):
                root = _build_typed_chain()
                yield {
                    TYPED: lambda n: _keep(root, typed, TASK, f"thread{n}"),
                    CHAIN: lambda n: _keep(agents[CHAIN], chain, TASK, f"thread{n}"),
                    CROWD: lambda n: _keep(agents[CROWD], crowd, TASK, f"thread{n}"),
                    THREAD: lambda n: _keep(agents[THREAD], thread, SAID, "thread"),
                }


def _agents(
    size: Size, look_up: Callable[..., Any], capabilities: Callable[[], list[Any]]
) -> Mapping[str, Any]:
    def agent(name: str, model: FunctionModel, tools: Sequence[Any] = ()) -> Any:
        return Agent(
            model,
            name=name,
            instructions=f"You are {name}.",
            tools=list(tools),
            capabilities=capabilities(),
        )

    leaf = agent("leaf", quick([("look_up", {"subject": SUBJECT})]), [look_up])
    middle = agent("middle", quick([_to("leaf")]), [_calling({"leaf": leaf})])
    names = [f"member{number}" for number in range(size.crowd)]
    below = {name: agent(name, quick(latency=size.latency)) for name in names}
    model = quick([_to(name) for name in names], latency=size.latency)
    return {
        CHAIN: agent("chain_root", quick([_to("middle")]), [_calling({"middle": middle})]),
        CROWD: agent("crowd_root", model, [_calling(below)]),
        THREAD: agent("thread_root", quick(answer=SAID)),
    }


class Brief(BaseModel):
    """What each level is given."""

    subject: str
    nights: int


class Report(BaseModel):
    """What each level answers."""

    text: str
    price: float


def _build_typed_chain() -> Any:
    """Return three levels, each run by a tool of its superior with typed arguments."""

    def agent(name: str, wanted: Wanted = (), tools: Sequence[Any] = ()) -> Any:
        return Agent(
            quick(wanted),
            name=name,
            instructions=f"You are {name}.",
            tools=list(tools),
            output_type=Report,
        )

    leaf = agent("leaf")
    middle = agent("middle", [("call_leaf", BRIEF)], [_build_typed_tool("leaf", leaf)])
    return agent("root", [("call_middle", BRIEF)], [_build_typed_tool("middle", middle)])


def _build_typed_tool(name: str, below: Any) -> Any:
    async def call(context: RunContext[None], brief: Brief) -> Report:
        """Give a brief to a subordinate and get its report."""
        given = brief.model_dump_json()
        done = await below.run(given, usage=context.usage, usage_limits=UNLIMITED)
        report: Report = done.output
        return report

    return Tool(call, name=f"call_{name}")


def _calling(below: Mapping[str, Any]) -> Calling:
    async def call_subordinate(context: RunContext[None], message: str, subordinate: str) -> str:
        """Give a task to a subordinate and get its answer."""
        done = await below[subordinate].run(message, usage=context.usage, usage_limits=UNLIMITED)
        return str(done.output)

    return call_subordinate


def _to(subordinate: str) -> tuple[str, dict[str, Any]]:
    return "call_subordinate", {"message": "Do your part", "subordinate": subordinate}


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, thread TEXT, messages TEXT)")
    connection.execute("CREATE INDEX by_thread ON kept (thread)")
    return connection


async def _keep(agent: Any, connection: sqlite3.Connection, given: str, thread: str) -> str:
    """Run on what is stored of a thread, and store what is new."""
    query = "SELECT messages FROM kept WHERE thread = ? ORDER BY id"
    known: list[Any] = []
    for (stored,) in connection.execute(query, (thread,)):
        known.extend(ModelMessagesTypeAdapter.validate_json(stored))
    done = await agent.run(given, message_history=known, usage_limits=UNLIMITED)
    with connection:
        connection.execute(
            "INSERT INTO kept (thread, messages) VALUES (?, ?)",
            (thread, done.new_messages_json().decode()),
        )
    return str(getattr(done.output, "text", done.output))


@asynccontextmanager
async def _durable(folder: Path, size: Size) -> AsyncIterator[Works]:
    """Run all in workflows of DBOS, which has one database for a process."""
    from dbos import DBOS, DBOSConfig
    from pydantic_ai.durable_exec.dbos import DBOSDurability

    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{database(folder, CHAIN)}",
        "run_admin_server": False,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    agents = _agents(size, DBOS.step()(work.look_up), lambda: [DBOSDurability()])

    @DBOS.workflow()
    async def run(name: str, given: str) -> str:
        done = await agents[name].run(given, usage_limits=UNLIMITED)
        return str(done.output)

    DBOS.launch()
    try:
        yield {CHAIN: lambda n: run(CHAIN, TASK), CROWD: lambda n: run(CROWD, TASK)}
    finally:
        DBOS.destroy()
