"""`echelons serve-mcp`, as a real process, asked by the official client over both transports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from typer.testing import CliRunner

from echelons import Session, SqliteCheckpointer
from echelons.checkpoints.threads.store import ThreadStore
from echelons.cli.app import app
from echelons.cli.command import ExitCode
from echelons.errors import NothingToResume
from tests.echelons.mcp.conftest import SERVERS, Notes
from tests.echelons.mcp.servers import teams
from tests.fork_server import ForkedProcess, ForkServer

ROOT = Path(__file__).parents[3]
TOKEN = "a-token-of-the-tests"


@asynccontextmanager
async def connect(
    server: ForkServer, db: Path, *names: str, **more: Any
) -> AsyncIterator[ClientSession]:
    """Start the command with some teams on the standard streams, and connect to it."""
    env = {"PYTHONPATH": str(ROOT), **more.pop("env", {})}
    command, *words = server.build_command("-m", "echelons", "serve-mcp", *names, "--db", str(db))
    parameters = StdioServerParameters(command=command, args=words, env=env, cwd=SERVERS)
    async with (
        stdio_client(parameters) as (read, write),
        ClientSession(read, write, **more) as client,
    ):
        await client.initialize()
        yield client


@contextmanager
def start_http(
    server: ForkServer, db: Path, *options: str, env: Any = None, team: str = "teams:echo"
) -> Iterator[ForkedProcess]:
    """Start the command over HTTP."""
    command = ("-m", "echelons", "serve-mcp", team, "--http", "--db", str(db), *options)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    process = server.start(*command, cwd=SERVERS, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_text(result: types.CallToolResult) -> str:
    [first, *_] = result.content
    assert isinstance(first, types.TextContent)
    return first.text


async def test_teams_are_served_on_the_standard_streams(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        wanted = params.requestedSchema["properties"]["answer"]
        values: dict[str, Any] = {"string": "red", "integer": 2, "boolean": True}
        return types.ElicitResult(action="accept", content={"answer": values[wanted["type"]]})

    db = tmp_path / "threads.sqlite"
    names = ("travel", "teams:asker", "teams:shouter")
    async with connect(fork_server, db, *names, elicitation_callback=elicit) as client:
        tools = await client.list_tools()
        asked = await client.call_tool("asker", {"task": "Go", "thread": "asks"})
        shouted = await client.call_tool("shouter", {"task": "Go"})

    assert [each.name for each in tools.tools] == ["travel", "asker", "shouter", "answer"]
    assert read_text(asked).startswith("name 'red'; count 2; sure True; room 'red'")
    # What a tool prints does not get between the messages.
    assert read_text(shouted) == "shouted"

    # The thread is one of the command line's, too.
    with SqliteCheckpointer(db) as saver:
        stored = {each.name: each.metadata for each in ThreadStore(saver).roots()}
    assert stored["asks"]["team"] == "teams:asker"


async def test_a_team_reads_the_files_of_the_workspace(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    folder, db = tmp_path / "files", tmp_path / "threads.sqlite"
    folder.mkdir()
    (folder / "notes.txt").write_text("Buy milk.", encoding="utf-8")

    async with connect(fork_server, db, "teams:reader", "--workspace", str(folder)) as client:
        found = await client.call_tool("reader", {"task": "Go", "thread": "notes"})

    assert "Buy milk." in read_text(found)
    # As for `run`, the thread knows its workspace.
    with SqliteCheckpointer(db) as saver:
        [stored] = [each.metadata for each in ThreadStore(saver).roots()]
    assert stored["team_workspace"] == str(folder)


def test_a_workspace_that_is_not_there_is_refused_before_anything_is_served(
    tmp_path: Path,
) -> None:
    missing = str(tmp_path / "missing")
    db = str(tmp_path / "threads.sqlite")

    ended = CliRunner().invoke(app, ["serve-mcp", "travel", "--workspace", missing, "--db", db])

    assert ended.exit_code == ExitCode.REFUSED
    assert "missing' is no workspace: no such file or directory" in ended.stderr


async def test_a_client_that_goes_stops_its_run(
    tmp_path: Path, notes: Notes, fork_server: ForkServer
) -> None:
    env = {"TEAM_NOTES": str(notes.path)}
    async with connect(fork_server, tmp_path / "threads.sqlite", "teams:waiter", env=env) as client:
        calling = asyncio.create_task(client.call_tool("waiter", {"task": "Go", "thread": "long"}))
        assert await asyncio.to_thread(notes.read) == "waiting"
        calling.cancel()

    assert await asyncio.to_thread(notes.read) == "cancelled"
    db = tmp_path / "threads.sqlite"
    async with Session(teams.waiter, db, thread="long") as session:
        with pytest.raises(NothingToResume):
            await session.aresume()


async def test_teams_are_served_over_http_with_a_new_token(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with start_http(fork_server, tmp_path / "threads.sqlite") as process:
        assert process.stdout
        assert process.stderr
        url = process.stdout.readline().strip()
        token = process.stderr.readline().removeprefix("token: ").strip()
        assert url.startswith("http://127.0.0.1:")
        assert len(token) > 40

        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
            async with streamable_http_client(url, http_client=http) as (read, write, _):
                async with ClientSession(read, write) as client:
                    await client.initialize()
                    result = await client.call_tool("echo", {"task": "Hello"})
        assert read_text(result) == "You said: Hello"

        process.send_signal(signal.SIGINT)
        assert process.wait() == ExitCode.INTERRUPTED


async def test_an_interrupted_server_stops_its_runs(
    tmp_path: Path, notes: Notes, fork_server: ForkServer
) -> None:
    env = {"TEAM_NOTES": str(notes.path), "ECHELONS_MCP_TOKEN": TOKEN}
    db = tmp_path / "threads.sqlite"
    with start_http(fork_server, db, env=env, team="teams:waiter") as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            async with streamable_http_client(url, http_client=http) as (read, write, _):
                async with ClientSession(read, write) as client:
                    await client.initialize()
                    calling = asyncio.create_task(
                        client.call_tool("waiter", {"task": "Go", "thread": "long"})
                    )
                    assert await asyncio.to_thread(notes.read) == "waiting"
                    process.send_signal(signal.SIGINT)
                    assert await asyncio.to_thread(notes.read) == "cancelled"
                    assert await asyncio.to_thread(process.wait) == ExitCode.INTERRUPTED
                    calling.cancel()

    async with Session(teams.waiter, db, thread="long") as session:
        with pytest.raises(NothingToResume):
            await session.aresume()


@pytest.mark.parametrize("source", ["file", "environment"])
def test_a_token_comes_from_a_file_or_the_environment(
    source: str, tmp_path: Path, fork_server: ForkServer
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    options = ["--token-file", str(tmp_path / "token")] if source == "file" else []
    env = {"ECHELONS_MCP_TOKEN": TOKEN} if source == "environment" else {}
    with start_http(
        fork_server, tmp_path / "threads.sqlite", "--json", *options, env=env
    ) as process:
        assert process.stdout
        told = json.loads(process.stdout.readline())
        assert told["tools"] == ["echo"]
        with httpx.Client() as http:
            refused = http.get(told["url"])
            let_through = http.get(told["url"], headers={"Authorization": f"Bearer {TOKEN}"})
        assert (refused.status_code, let_through.status_code) == (401, 406)
        process.send_signal(signal.SIGINT)
        assert TOKEN not in process.communicate()[1]


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["no-such-team"], ExitCode.REFUSED, "no-such-team"),
        (["travel", "travel"], ExitCode.REFUSED, "more than once"),
        (["travel", "--port", "8000"], ExitCode.USAGE, "are for --http"),
        (["travel", "--docs", "."], ExitCode.USAGE, "answers from documents"),
        (["travel", "--http", "--token-file", "short"], ExitCode.USAGE, "16 characters"),
        (["travel", "--http", "--token-file", "none"], ExitCode.USAGE, "cannot be read"),
        (["office", "--db", "x.sqlite"], ExitCode.REFUSED, "--trust"),
    ],
)
def test_a_command_that_cannot_work_says_why(
    options: list[str], code: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_text("secret")
    (tmp_path / "office" / "tools").mkdir(parents=True)
    (tmp_path / "office" / "prompt.md").write_text("You add.")
    (tmp_path / "office" / "tools" / "add.py").write_text(
        'raise SystemExit\n__all__ = ["add"]\n\n\ndef add(one: int) -> int:\n    """Add."""\n'
    )

    result = CliRunner().invoke(app, ["serve-mcp", *options])
    assert result.exit_code == code
    assert why in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize("package", ["mcp", "langchain_mcp_adapters"])
def test_without_its_extra_the_command_says_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("echelons.mcp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed

    result = CliRunner().invoke(app, ["serve-mcp", "travel", "--db", ":memory:"])
    assert result.exit_code == ExitCode.REFUSED
    assert f"the package {package!r} is not installed; pip install 'echelons[mcp]'" in result.stderr
