"""The strict servers behind the real clients: whole replies and streams, odd replies, pauses."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from echelons import Agent, Session
from echelons.testing import AnthropicServer, Call, OpenAIServer, Reply, ScriptedModel, delegate
from echelons.testing.openai_server import Blocks

KINDS = ["chat", "responses", "anthropic"]
ODD = [
    [Call("look up", {"a": 1}, id="call:1"), Call("look", {"a": 2}, id="call:1")],
    [Call("x" * 65, {}, id="x" * 41)],
    Reply(""),
    [Call("look", "[1]", id="1")],
    Reply("half", finish_reason="length"),
]


def look(a: int = 0) -> str:
    """Look."""
    return "seen"


def serve(kind: str, script: Any) -> OpenAIServer:
    return AnthropicServer(script) if kind == "anthropic" else OpenAIServer(script)


def connect(kind: str, server: OpenAIServer, **more: Any) -> Any:
    key = SecretStr("k")
    if kind == "anthropic":
        made: Any = ChatAnthropic
        return made(model="claude-test", base_url=server.url, api_key=key, max_retries=0, **more)
    return ChatOpenAI(
        model="gpt-test",
        base_url=server.url,
        api_key=key,
        max_retries=0,
        use_responses_api=kind == "responses",
        **more,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("streaming", [False, True])
def test_client_reads_replies_and_calls(kind: str, streaming: bool) -> None:
    steps = [Reply("To Rome.", usage=(3, 4)), Call("look", {"a": [1, 2]}, id="c1")]
    with serve(kind, steps) as server:
        model = connect(kind, server, streaming=streaming).bind_tools([look])

        said, called = model.invoke("x"), model.invoke("y")

    assert said.text == "To Rome."
    assert streaming or said.usage_metadata["total_tokens"] == 7
    [call] = called.tool_calls
    assert (call["name"], call["args"], call["id"]) == ("look", {"a": [1, 2]}, "c1")


@pytest.mark.parametrize("kind", KINDS)
def test_server_refuses_what_the_provider_would(kind: str) -> None:
    odd = AIMessage("", tool_calls=[{"name": "look up", "args": {}, "id": "c1"}])
    with serve(kind, ["x"]) as server, pytest.raises(Exception, match="400"):
        connect(kind, server).invoke([HumanMessage("x"), odd])

    assert len(server.refused) == 1 and server.requests == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("odd", range(len(ODD)))
# Anthropic's client warns about the arguments that its server should never send.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_next_turn_answers_after_odd_reply(
    kind: str, level: int, streaming: bool, odd: int
) -> None:
    step, replies = ODD[odd], []

    def script(request: Any) -> Any:
        replies.append(request)
        return step if len(replies) == 1 else "fine"

    with serve(kind, script) as server:
        agent = Agent("leaf", model=connect(kind, server, streaming=streaming), tools=[look])
        if level == 3:
            lead: Any = lambda said: (  # noqa: E731
                delegate(None, "go") if isinstance(said[-1], HumanMessage) else "fine"
            )
            model = ScriptedModel(lead)
            mid = Agent("mid", model=model, subordinates=[agent])
            agent = Agent("head", model=model, subordinates=[mid])
        with Session(agent, ":memory:") as session:
            for _ in range(3):
                session.send("go").result()
            assert session.send("go").result().text == "fine"

    assert server.refused == [] and server.errors == []


@pytest.mark.parametrize("streaming", [False, True])
def test_paused_reply_is_continued(streaming: bool) -> None:
    searched = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    steps = [Blocks([{"type": "text", "text": "I search."}, searched], "pause_turn"), "It is 42."]
    with AnthropicServer(steps) as server:
        search = {"type": "web_search_20250305", "name": "web_search"}
        leaf = Agent(
            "leaf", model=connect("anthropic", server, streaming=streaming), tools=[search]
        )
        with Session(leaf, ":memory:") as session:
            assert "42" in session.send("go").result().text

    assert server.refused == [] and len(server.requests) == 2
