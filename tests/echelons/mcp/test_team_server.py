"""Teams as tools of an MCP server: a real server over HTTP, asked by the official client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

from echelons import Agent, Session, SqliteCheckpointer
from echelons.mcp.team_server import ServedTeam, TeamServer
from echelons.mcp.team_transport import build_http_app
from tests.echelons.mcp.conftest import Notes
from tests.echelons.mcp.servers import teams
from tests.error_codes import raises_code

TOKEN = "a-token-of-the-tests"


class Served:
    """A server of teams on loopback."""

    def __init__(self, url: str, saver: SqliteCheckpointer) -> None:
        self.url = url
        self.saver = saver

    @asynccontextmanager
    async def connect(self, elicit: Any = None) -> AsyncIterator[ClientSession]:
        """Open a session of the official client."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(headers=headers, timeout=None) as http:
            async with streamable_http_client(self.url, http_client=http) as (read, write, _):
                async with ClientSession(read, write, elicitation_callback=elicit) as client:
                    await client.initialize()
                    yield client

    async def ask(self, tool: str, **more: Any) -> types.CallToolResult:
        """Give one task to a team, as a client of its own."""
        async with self.connect() as client:
            return await client.call_tool(tool, {"task": "Go", **more})


@asynccontextmanager
async def serve(*agents: Agent, path: Path | str = ":memory:") -> AsyncIterator[Served]:
    """Serve teams on a free port, until the end."""
    with SqliteCheckpointer(path) as saver, socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = TeamServer([ServedTeam(each) for each in agents], saver)
        config = uvicorn.Config(
            build_http_app(server, port, TOKEN), log_level="error", timeout_graceful_shutdown=1
        )
        web = uvicorn.Server(config)
        serving = asyncio.create_task(web.serve(sockets=[listening]))
        try:
            yield Served(f"http://127.0.0.1:{port}/mcp", saver)
        finally:
            web.should_exit = True
            await serving


def read_texts(result: types.CallToolResult) -> list[str]:
    return [each.text for each in result.content if isinstance(each, types.TextContent)]


def read_structured(result: types.CallToolResult) -> dict[str, Any]:
    assert result.structuredContent is not None
    return result.structuredContent


async def test_each_team_is_a_tool_beside_that_which_answers() -> None:
    async with serve(teams.echo, teams.asker) as served, served.connect() as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}

    assert list(tools) == ["echo", "asker", "answer"]
    assert tools["echo"].description == "The team echo. Gives a task to this team of agents."
    assert tools["echo"].inputSchema["required"] == ["task"]


def test_two_teams_of_one_name_are_refused() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        with raises_code("duplicate_name"):
            TeamServer([ServedTeam(teams.echo), ServedTeam(teams.echo)], saver)
        with raises_code("duplicate_name"):
            TeamServer([ServedTeam(teams.echo, "answer")], saver)


async def test_a_task_returns_the_text_and_the_thread_to_go_on_with() -> None:
    async with serve(teams.echo) as served:
        first = await served.ask("echo", task="Hello")
        text, thread = read_texts(first)
        assert text == "You said: Hello"
        assert read_structured(first)["status"] == "finished"
        name = thread.removeprefix("thread: ")

        again = await served.ask("echo", task="Hello again", thread=name)
        assert read_texts(again) == ["You said: Hello again", thread]
        with Session(teams.echo, served.saver, thread=name) as session:
            assert session.threads()[0].turns == 2


async def test_the_events_of_a_run_are_progress() -> None:
    told: list[tuple[float, str]] = []

    async def note_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message or ""))

    async with serve(teams.echo) as served, served.connect() as client:
        await client.call_tool("echo", {"task": "Hello"}, progress_callback=note_progress)

    assert [each for each, _ in told] == [*range(1, len(told) + 1)]
    messages = [each for _, each in told]
    assert "echo task: Hello" in messages
    assert "echo/clerk message: You said: Hello" in messages


@pytest.mark.parametrize("arguments", [{}, {"task": 3}, {"task": "x", "more": 1}, {"task": ""}])
async def test_a_wrong_call_is_an_error_of_one_line(arguments: dict[str, Any]) -> None:
    async with serve(teams.echo) as served, served.connect() as client:
        result = await client.call_tool("echo", arguments)

    assert result.isError
    assert "Traceback" not in read_texts(result)[0]


async def test_a_failed_run_says_why_without_a_traceback_or_a_secret() -> None:
    async with serve(teams.breaker, teams.failer) as served:
        broken = await served.ask("breaker")
        failed = await served.ask("failer")

    [text] = read_texts(broken)
    assert broken.isError
    assert text.startswith("the run failed: ConnectionError: no route")
    assert not failed.isError
    assert "ValueError: no such room" in read_texts(failed)[0]
    assert "hunter2" not in text + read_texts(failed)[0]


async def test_a_question_is_asked_of_the_human_of_a_client_that_can() -> None:
    asked: list[types.ElicitRequestFormParams] = []
    answers: dict[str, Any] = {"string": "Ann", "integer": 3, "boolean": True}

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        wanted = params.requestedSchema["properties"]["answer"]
        value = "blue" if "enum" in wanted else answers[wanted["type"]]
        return types.ElicitResult(action="accept", content={"answer": value})

    async with serve(teams.asker) as served, served.connect(elicit) as client:
        result = await client.call_tool("asker", {"task": "Go"})

    assert [each.message for each in asked] == [
        "asker/clerk asks: Whose table?",
        "asker/clerk asks: How many seats?",
        "asker/clerk asks: Sure?",
        "asker/clerk asks: Which room?",
    ]
    assert read_texts(result)[0].startswith("name 'Ann'; count 3; sure True; room 'blue'")


async def test_an_answer_of_a_client_that_does_not_fit_leaves_its_question_open() -> None:
    values: Any = iter(["Ann", 0])

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": next(values)})

    async with serve(teams.asker) as served, served.connect(elicit) as client:
        result = await client.call_tool("asker", {"task": "Go"})

    [question] = read_structured(result)["questions"]
    assert question["question"] == "How many seats?"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_question_that_the_human_declines_is_returned(action: Any) -> None:
    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action=action)

    async with serve(teams.asker) as served, served.connect(elicit) as client:
        result = await client.call_tool("asker", {"task": "Go"})

    assert read_structured(result)["status"] == "asking"


async def test_a_question_is_returned_as_text_and_answered_with_a_call() -> None:
    async with serve(teams.asker) as served, served.connect() as client:
        result = await client.call_tool("asker", {"task": "Go"})
        for value in ("Ann", 3, True, "blue"):
            told = read_structured(result)
            [question] = told["questions"]
            assert question["id"] in read_texts(result)[0]
            given = {"thread": told["thread"], "question": question["id"], "value": value}
            result = await client.call_tool("answer", given)

    assert read_texts(result)[0].startswith("name 'Ann'; count 3; sure True; room 'blue'")


async def test_a_decision_on_a_tool_call_is_never_asked_in_a_form() -> None:
    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        raise AssertionError(params)

    async with serve(teams.approver, teams.lister) as served, served.connect(elicit) as client:
        listed = await client.call_tool("lister", {"task": "Go"})
        assert read_structured(listed)["questions"][0]["schema"] == {"type": "array"}

        result = await client.call_tool("approver", {"task": "Go"})
        told = read_structured(result)
        [question] = told["questions"]
        assert question["calls"][0]["tool"] == "reserve"
        given = {"thread": told["thread"], "question": question["id"], "value": "approve"}
        answered = await client.call_tool("answer", given)
        assert read_texts(answered)[0].startswith("reserved red")


async def test_an_answer_to_no_question_or_of_another_thread_is_refused() -> None:
    async with serve(teams.asker) as served, served.connect() as client:
        told = read_structured(await client.call_tool("asker", {"task": "Go"}))
        for wrong in (
            {"thread": told["thread"], "question": "none", "value": "Ann"},
            {"thread": "another", "question": told["questions"][0]["id"], "value": "Ann"},
            {"thread": "", "question": told["questions"][0]["id"], "value": "Ann"},
        ):
            result = await client.call_tool("answer", wrong)
            assert result.isError
            assert "\n" not in read_texts(result)[0]


async def test_a_thread_of_another_team_is_not_there() -> None:
    async with serve(teams.echo) as served:
        with Session(teams.failer, served.saver, thread="secret") as session:
            session.send("Go").result()
        for thread in ("secret", session.thread_id):
            result = await served.ask("echo", thread=thread)
            assert result.isError
            assert "no thread" in read_texts(result)[0]


async def test_a_cancelled_request_stops_its_run(
    notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_NOTES", str(notes.path))
    async with serve(teams.waiter) as served, served.connect() as client:
        call = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name="waiter", arguments={"task": "Go", "thread": "long"}
            )
        )
        calling = asyncio.create_task(
            client.send_request(types.ClientRequest(call), types.CallToolResult)
        )
        assert await asyncio.to_thread(notes.read) == "waiting"
        cancelled = types.CancelledNotificationParams(requestId=1)
        notification = types.CancelledNotification(params=cancelled)
        await client.send_notification(types.ClientNotification(notification))
        assert await asyncio.to_thread(notes.read) == "cancelled"
        with pytest.raises(Exception, match="cancelled"):
            await calling

        # The turn has ended, so the thread takes the next task.
        again = await client.call_tool("waiter", {"task": "Again", "thread": "long"})
        assert read_structured(again)["status"] == "finished"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer another-token-of-them"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "https://example.com"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "null"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "example.com"}, 421),
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
    ],
)
async def test_a_request_without_the_token_or_of_another_origin_is_refused(
    headers: dict[str, str], status: int
) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": types.LATEST_PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    accepted = {"Accept": "application/json, text/event-stream"}
    async with serve(teams.echo) as served, httpx.AsyncClient() as http:
        response = await http.post(served.url, json=hello, headers={**accepted, **headers})

    assert response.status_code == status
