"""A graph on a LangGraph server as a subordinate is sent what it names, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.pregel.remote import RemoteGraph

from echelons import Agent
from echelons.testing import ScriptedModel, delegate
from tests.scenarios.conftest import World

ANSWER = {"messages": [{"type": "ai", "content": "from afar"}]}


class Handler(BaseHTTPRequestHandler):
    """Keeps the runs that it is asked for, and answers each."""

    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.asked.append({"path": self.path, **json.loads(body)})
        events = f"event: values\ndata: {json.dumps(ANSWER)}\n\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(events)))
        self.end_headers()
        self.wfile.write(events)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Handler.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def _read_answer(state: Any) -> Any:
    return state["messages"][-1]["content"]


@pytest.mark.parametrize("chained", [False, True])
def test_remote_graph_is_sent_only_what_it_names(
    world: World, server: ThreadingHTTPServer, chained: bool
) -> None:
    named: Any = {"configurable": {"tenant": "acme"}}
    url = f"http://127.0.0.1:{server.server_port}"
    remote: Any = RemoteGraph("afar", url=url, api_key="own", config=named)
    if chained:
        answer = RunnableLambda(_read_answer)
        remote = RunnableLambda(lambda task: {"task": task}) | remote | answer
    name = "RunnableSequence" if chained else "afar"
    model = ScriptedModel({"head": [delegate(name, "go"), "done"]})
    head = Agent("head", model=model, subordinates=[remote])
    config: Any = {
        "configurable": {"thread_id": "t", "api_key": "secret", "region": "north"},
        "metadata": {"customer": "secret"},
    }

    messages = world.invoke(head.compile(), {"messages": [("user", "go")]}, config)["messages"]

    assert messages[-2].text == "from afar" or not chained
    asked: Any
    [asked] = Handler.asked
    assert asked["config"]["configurable"] == {"tenant": "acme"}
    assert asked["path"] == "/threads/t/runs/stream"
    text = json.dumps(asked)
    assert not [word for word in ("secret", "north", "echelons", "agent_path") if word in text]
