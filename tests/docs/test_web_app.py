"""The program on the page about web apps, run by a real server with real clients."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import uvicorn
from langgraph.types import interrupt

from echelons import Agent, effect
from echelons.testing import Call, ScriptedModel, delegate

PAGE = Path(__file__).parents[2] / "docs" / "web_app.md"
PATIENCE = 120
"""Seconds after which a test fails instead of waiting on."""


class Team:
    """A tree of three levels; its leaf first waits for a service, then asks a human."""

    def __init__(self) -> None:
        self.is_waiting, self.is_cancelled = threading.Event(), threading.Event()
        self.service_works = False
        self.model = ScriptedModel(
            {
                "head": [delegate("middle", "go"), "done"],
                "middle": [delegate("leaf", "go"), "done"],
                "leaf": [Call("look", {}), Call("ask", {}), "done"],
            }
        )
        leaf = Agent("leaf", tools=[self.look, self.ask])
        middle = Agent("middle", subordinates=[leaf])
        self.head = Agent("head", model=self.model, subordinates=[middle])

    @effect(reads_only=True)
    async def look(self) -> str:
        """Ask the service."""
        if not self.service_works:
            self.is_waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.is_cancelled.set()
        return "free"

    def ask(self) -> str:
        """Ask a human."""
        return str(interrupt("Sure?"))

    @property
    def callers(self) -> list[str | None]:
        return [call.agent for call in self.model.calls]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The program of the page."""
    monkeypatch.chdir(tmp_path)
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    program: dict[str, Any] = {"__name__": "evenings"}
    exec(compile(found[1], str(PAGE), "exec", dont_inherit=True), program)
    yield program
    program["database"].close()


@pytest.fixture
def url(program: dict[str, Any]) -> Iterator[str]:
    """The address of a thread on a server of that program."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(program["app"], log_level="error"))
    serving = threading.Thread(target=server.run, args=([listening],))
    serving.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/threads/friday"
    server.should_exit = True
    serving.join(PATIENCE)
    assert not serving.is_alive()
    listening.close()


def notify_end(
    write_events: Callable[[Any], AsyncIterator[str]], ended: threading.Event
) -> Callable[[Any], AsyncIterator[str]]:
    """Return the program's own writer of events, which says when it has ended its run."""

    async def write(run: Any) -> AsyncIterator[str]:
        try:
            async with aclosing(cast("AsyncGenerator[str, None]", write_events(run))) as events:
                async for event in events:
                    yield event
        finally:
            ended.set()

    return write


def read_events(response: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = ""
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def post(client: httpx.Client, url: str, given: Any = None) -> list[tuple[str, dict[str, Any]]]:
    with client.stream("POST", url, json=given) as response:
        assert response.status_code == 200, response.read()
        return list(read_events(response))


def test_one_client_leaves_in_the_middle_and_another_one_answers(
    program: dict[str, Any], url: str, caplog: pytest.LogCaptureFixture
) -> None:
    program["head"] = (team := Team()).head
    has_ended = threading.Event()
    program["write_events"] = notify_end(program["write_events"], has_ended)
    with httpx.Client(timeout=PATIENCE) as leaving, httpx.Client(timeout=PATIENCE) as answering:
        with leaving.stream("POST", f"{url}/turns", json={"task": "go"}) as response:
            seen = read_events(response)
            assert next(each for kind, each in seen if kind == "tool_call")["path"]
            assert team.is_waiting.wait(PATIENCE)
            busy = answering.post(f"{url}/turns", json={"task": "more"})
            assert (busy.status_code, busy.json()["error"]) == (409, "ThreadBusy")

        # The client has gone: nothing runs on.
        assert team.is_cancelled.wait(PATIENCE)
        assert has_ended.wait(PATIENCE)
        before = team.callers
        assert before == ["head", "middle", "leaf"]
        team.service_works = True
        assert answering.get(f"{url}/inbox").json() == []

        resumed = post(answering, f"{url}/resume")
        assert (resumed[-1][0], resumed[-1][1]["finished"]) == ("result", False)
        [question] = answering.get(f"{url}/inbox").json()
        assert (question["path"], question["value"]) == ("head/middle/leaf", "Sure?")

        ended = post(answering, f"{url}/answers", {question["id"]: "yes"})

    # And nothing is lost, or done twice.
    assert ended[-1] == ("result", {"text": "done", "finished": True, "queued": False})
    assert team.callers == [*before, "leaf", "leaf", "middle", "head"]
    assert team.model.repeated_calls == []
    assert [each for each in caplog.records if each.levelname in ("ERROR", "WARNING")] == []


def test_the_team_of_the_page_asks_one_client_and_is_answered_by_another(url: str) -> None:
    with httpx.Client(timeout=PATIENCE) as asking, httpx.Client(timeout=PATIENCE) as answering:
        task = {"task": "Please reserve a table at Diana", "turn_id": "1"}
        asked = post(asking, f"{url}/turns", task)
        assert asked[-1][1]["finished"] is False
        [question] = answering.get(f"{url}/inbox").json()
        assert question["value"] == "Reserve a table at Diana?"
        refused = asking.post(f"{url}/turns", json={"task": "more"})
        assert (refused.status_code, refused.json()["error"]) == (409, "InterventionPending")

        ended = post(answering, f"{url}/answers", {question["id"]: "yes"})

        assert ended[-1][1]["finished"]
        assert "reserved Diana" in ended[-1][1]["text"]
        # The first client asks again, and nothing runs twice.
        assert post(asking, f"{url}/turns", task) == ended[-1:]
