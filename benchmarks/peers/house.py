"""Ours, hand-written LangGraph, and the floor, as peers: in processes of their own, too."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from pydantic import BaseModel

from benchmarks.model import QuickModel
from benchmarks.peers.work import (
    BRIEF,
    CHAIN,
    CROWD,
    REPORT,
    SAID,
    TASK,
    THREAD,
    TYPED,
    Size,
    Work,
    Works,
    place,
)
from benchmarks.rivals import OURS, OURS_FULL, OWN, GraphRival, Rival, arivals
from benchmarks.trees import Role, chain, crowd
from echelons import Agent, Contract, SqliteCheckpointer

PACKAGES = ("echelons", "langgraph", "langgraph-checkpoint-sqlite", "langchain-core")


@asynccontextmanager
async def opened(folder: Path, setting: str, size: Size) -> AsyncIterator[Works]:
    """Open the rival of that name for each of the works."""
    roles = {
        CHAIN: chain(),
        CROWD: crowd(size.crowd, size.latency),
        THREAD: Role("root", QuickModel(answer=SAID)),
    }
    async with AsyncExitStack() as stack:
        works: Works = {}
        for name, role in roles.items():
            kept = place(folder, name)
            field = await stack.enter_async_context(arivals(role, [setting], folder=kept))
            works[name] = _work(field[setting], name == THREAD)
        if setting in (OURS, OURS_FULL):
            database = place(folder, TYPED) / "kept.sqlite"
            opened = SqliteCheckpointer(database, synchronous=OWN[setting])
            graph = _build_typed_chain().compile(stack.enter_context(opened))
            works[TYPED] = _typed_work(GraphRival(graph, database))
        yield works


class Brief(BaseModel):
    """What each level is given."""

    subject: str
    nights: int


class Report(BaseModel):
    """What each level answers."""

    text: str
    price: float


def _build_typed_chain() -> Agent:
    """Return three levels, each a tool of its superior with a contract."""
    contract, answer = Contract(input=Brief, output=Report), json.dumps(REPORT)
    below: list[Agent] = []
    for name, wanted in (("leaf", []), ("middle", [("leaf", BRIEF)])):
        model = QuickModel(wanted=wanted, answer=answer)
        purpose = f"Does what {name} does"
        below = [Agent(name, purpose, model=model, subordinates=below, contract=contract)]
    model = QuickModel(wanted=[("middle", BRIEF)], answer=answer)
    return Agent("root", model=model, subordinates=below, response_format=Report)


def _typed_work(rival: Rival) -> Work:
    async def done(number: int) -> str:
        answer = await rival.ainvoke(TASK, f"thread{number}")
        return Report.model_validate_json(answer).text

    return done


def _work(rival: Rival, grows: bool) -> Work:
    async def done(number: int) -> str:
        if grows:
            return await rival.ainvoke(SAID, "thread")
        return await rival.ainvoke(TASK, f"thread{number}")

    return done
