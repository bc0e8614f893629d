"""agno: a team whose member is a team, on its own SQLite database.

``as it comes`` stores a team's run when it has ended; ``tool-batch, members too`` after each model
turn as well, and the runs of its members with it.
Telemetry is off, for it sends over the network.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.sqlite import AsyncSqliteDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.team import Team

from benchmarks.peers.work import (
    ANSWER,
    CHAIN,
    CROWD,
    SAID,
    SUBJECT,
    TASK,
    THREAD,
    Size,
    Work,
    Works,
    database,
    look_up,
)
from benchmarks.tally import TALLY

PACKAGES = ("agno", "SQLAlchemy")
OFTEN = "tool-batch, members too"
NUMBERS = count()
Wanted = Sequence[tuple[str, dict[str, Any]]]


@dataclass
class QuickModel(Model):
    """Makes its calls when it is given a task, and answers when they are answered."""

    id: str = "quick"
    wanted: Wanted = field(default=())
    answer: str = ANSWER
    latency: float = 0.0

    async def ainvoke(self, messages: list[Any], *args: Any, **kwargs: Any) -> ModelResponse:
        TALLY.turns += 1
        if self.latency:
            await asyncio.sleep(self.latency)
        if messages[-1].role == "tool" or not self.wanted:
            return ModelResponse(role="assistant", content=self.answer)
        calls = [
            {
                "id": f"call_{next(NUMBERS)}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in self.wanted
        ]
        return ModelResponse(role="assistant", tool_calls=calls)

    def invoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def ainvoke_stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> ModelResponse:
        raise NotImplementedError

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the agents and teams of one tree, on one database."""

    db: AsyncSqliteDb
    often: bool

    def agent(self, name: str, model: QuickModel, tools: Sequence[Any] = ()) -> Any:
        return Agent(id=name, name=name, model=model, tools=list(tools), **self._common(name))

    def team(self, name: str, model: QuickModel, members: Sequence[Any]) -> Any:
        return Team(
            id=name,
            name=name,
            model=model,
            members=list(members),
            store_member_responses=self.often,
            **self._common(name),
        )

    def _common(self, name: str) -> dict[str, Any]:
        common = {"instructions": f"You are {name}.", "db": self.db, "telemetry": False}
        return {**common, "checkpoint": "tool-batch"} if self.often else common


@asynccontextmanager
async def opened(folder: Path, setting: str, size: Size) -> AsyncIterator[Works]:
    """Build the trees."""
    names = (CHAIN, CROWD, THREAD)
    kept = {name: AsyncSqliteDb(db_file=str(database(folder, name))) for name in names}
    make = {name: Maker(db, setting == OFTEN) for name, db in kept.items()}
    try:
        yield {
            CHAIN: _work(_chain(make[CHAIN])),
            CROWD: _work(_crowd(make[CROWD], size)),
            THREAD: _grow(_thread(make[THREAD])),
        }
    finally:
        for db in kept.values():
            await db.db_engine.dispose()


def _chain(make: Maker) -> Any:
    leaf = make.agent("leaf", QuickModel(wanted=[("look_up", {"subject": SUBJECT})]), [look_up])
    middle = make.team("middle", QuickModel(wanted=[_to("leaf")]), [leaf])
    return make.team("root", QuickModel(wanted=[_to("middle")]), [middle])


def _crowd(make: Maker, size: Size) -> Any:
    names = [f"member{number}" for number in range(size.crowd)]
    members = [make.agent(name, QuickModel(latency=size.latency)) for name in names]
    model = QuickModel(wanted=[_to(name) for name in names], latency=size.latency)
    return make.team("root", model, members)


def _thread(make: Maker) -> Any:
    agent = make.agent("root", QuickModel(answer=SAID))
    # As it comes, an agent does not know what was said before; every other peer does.
    agent.add_history_to_context = True
    return agent


def _to(subordinate: str) -> tuple[str, dict[str, Any]]:
    return "delegate_task_to_member", {"member_id": subordinate, "task": "Do your part"}


def _work(agent: Any) -> Work:
    async def done(number: int) -> str:
        return str((await agent.arun(TASK, session_id=f"thread{number}")).content)

    return done


def _grow(agent: Any) -> Work:
    async def done(number: int) -> str:
        return str((await agent.arun(SAID, session_id="thread")).content)

    return done
