"""Teams that a server runs for a step of a tree: what holds around the call holds within."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from echelons import Agent, Limits, Result, Session
from echelons.mcp import HttpServer, open_mcp_tools
from echelons.testing import Call, Reply, ScriptedModel
from tests.echelons.mcp.test_team_server import TOKEN, serve


def look() -> str:
    """Look."""
    return "nothing"


def working(name: str, calls: int, tools: list[Any], **more: Any) -> Agent:
    """Return an agent that calls its tool so many times, then answers with what it returned."""

    def step(messages: Any) -> Any:
        answered = [message for message in messages if message.type == "tool"]
        if len(answered) < calls:
            arguments = {"task": "go"} if tools[0] is not look else {}
            return Reply(
                calls=[Call(tools[0].__dict__.get("name", "look"), arguments)], usage=(40, 10)
            )
        return Reply(str(answered[-1].text), usage=(40, 10))

    return Agent(name, model=ScriptedModel(step), tools=tools, **more)


async def run(world: str, session: Session) -> Result:
    if world == "sync":
        return await asyncio.to_thread(lambda: session.send("go").result())
    return await (await session.asend("go")).result()


HEADERS = {"Authorization": f"Bearer {TOKEN}"}
worlds = pytest.mark.parametrize("world", ["sync", "async"])


@worlds
async def test_usage_of_the_client_has_the_calls_of_the_server(world: str) -> None:
    async with serve(working("team", 2, [look])) as served:
        async with open_mcp_tools(HttpServer(served.url, headers=HEADERS)) as tools:
            head = working("head", 1, [next(tool for tool in tools if tool.name == "team")])
            with Session(head, ":memory:") as session:
                result = await run(world, session)
                sums = session.usage().group("agent")

    assert {path: total.model_calls for path, total in sums.items()} == {"head": 2, "head/team": 3}
    assert sums["head/team"].tokens == 150
    assert result.usage.model_calls == 5


@worlds
async def test_limits_of_the_client_end_the_turn_of_the_server(world: str) -> None:
    async with serve(working("team", 9, [look])) as served:
        async with open_mcp_tools(HttpServer(served.url, headers=HEADERS)) as tools:
            team = next(tool for tool in tools if tool.name == "team")
            head = working("head", 1, [team], limits=Limits(calls=3))
            with Session(head, ":memory:") as session:
                result = await run(world, session)
                [call] = [
                    message
                    for message in session.thread_store.get(session.thread_id).messages
                    if message.type == "tool"
                ]

    assert "limit: 2 of 2 model calls" in str(call.text)
    assert (result.status, result.reason) == ("limited", "limit: 3 of 3 model calls")


@worlds
async def test_team_of_a_server_is_within_the_depth_of_the_client(world: str) -> None:
    team = Agent("team", model=ScriptedModel(["never"]), subordinates=[Agent("below")])
    async with serve(team) as served:
        async with open_mcp_tools(HttpServer(served.url, headers=HEADERS)) as tools:
            tool = next(tool for tool in tools if tool.name == "team")
            head = working("head", 1, [tool], limits=Limits(depth=2))
            with Session(head, ":memory:") as session:
                result = await run(world, session)
        with Session(team, served.saver) as session:
            assert session.threads() == []

    assert "'team' would go down to level 3" in result.text
