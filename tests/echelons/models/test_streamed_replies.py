"""Streams that a client misreads: that were cut off, count twice, or hold odd calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from echelons import Agent, Session
from echelons.models.replies import read_reply_end, read_streams
from echelons.testing import AnthropicServer, OpenAIServer

KEY = SecretStr("k")


@dataclass
class Stream:
    """A stream of events as they are, with its proper end as HTTP."""

    events: Sequence[Any]

    def respond(self, request: Any, writer: Any) -> None:
        writer.open_stream()
        writer.send_events(self.events)
        writer.close_stream()


def chunk(finish_reason: str | None = None, usage: Any = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "1", "model": "m", "created": 1, "choices": [choice], "usage": usage}


def call(arguments: Any, name: str = "pay") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return chunk(tool_calls=[{"index": 0, "id": "1", "type": "function", "function": function}])


def count(read: Any, written: Any) -> dict[str, Any]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": 0}


def read(*events: Any) -> AIMessage:
    with OpenAIServer([Stream(events)]) as server:
        model = ChatOpenAI(model="m", base_url=server.url, api_key=KEY, streaming=True)
        return read_streams(model, "openai").invoke("go")


@pytest.mark.parametrize("end", [(), (chunk("tool_calls"),)])
def test_call_whose_arguments_were_cut_off_is_not_run(end: Sequence[Any]) -> None:
    paid: list[int] = []

    def pay(amount: int, to: str = "x") -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    steps = [
        Stream([call('{"amount": 100, "to": "Al'), *end]),
        Stream([chunk(content="Not paid."), chunk("stop")]),
    ]
    with OpenAIServer(steps) as server:
        model = ChatOpenAI(model="m", base_url=server.url, api_key=KEY, max_retries=0)
        with Session(Agent("head", model=model, tools=[pay]), ":memory:") as session:
            assert session.send("go").result().text == "Not paid."

    assert paid == []


def test_text_whose_stream_was_cut_off_is_no_whole_answer() -> None:
    assert read_reply_end(read(chunk(content="half"))).kind == "length"
    assert read_reply_end(read(chunk(content="whole"), chunk("stop"))).kind == "complete"


def test_server_that_never_says_why_a_reply_ended_is_believed() -> None:
    steps = [call("{}", "look"), chunk(content="It is "), chunk(content="done.")]

    def look() -> str:
        """Look."""
        return "seen"

    with OpenAIServer([Stream([step]) for step in steps]) as server:
        model = ChatOpenAI(model="m", base_url=server.url, api_key=KEY, streaming=True)
        with Session(Agent("head", model=model, tools=[look]), ":memory:") as session:
            result = session.send("go").result()
        assert (result.text, len(server.requests)) == ("It is ", 2)
    with OpenAIServer([Stream([step]) for step in steps[1:]]) as server:
        model = ChatOpenAI(model="m", base_url=server.url, api_key=KEY, streaming=True)
        with Session(Agent("head", model=model), ":memory:") as session:
            assert session.send("go").result().text == "It is done."


def test_message_of_anthropic_whose_stream_was_cut_off_is_no_whole_answer() -> None:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": []}
    begun = {"type": "text", "text": ""}
    events = [
        {"type": "message_start", "message": {**head, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "half"},
        },
    ]
    with AnthropicServer([Stream(events)]) as server:
        given: dict[str, Any] = {"model": "m", "base_url": server.url, "api_key": KEY}
        model = ChatAnthropic(**given, streaming=True)
        reply = read_streams(model, "anthropic").invoke("go")

    assert (reply.text, read_reply_end(reply).kind) == ("half", "length")


def test_usage_that_each_chunk_repeats_is_counted_once() -> None:
    events = [
        chunk(content="a", usage=count(10, 1)),
        chunk(content="b", usage=count(10, 2)),
        chunk("stop", usage=count(10, 2)),
    ]
    usage = read(*events).usage_metadata

    assert usage and (usage["input_tokens"], usage["output_tokens"]) == (10, 2)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("usage", [count(None, None), count("ten", 2), count(10, -3)])
def test_usage_that_is_no_number_is_unknown(usage: Any) -> None:
    assert read(chunk(content="a"), chunk("stop", usage=usage)).usage_metadata is None


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_arguments_that_are_no_text_are_read() -> None:
    reply = read(call({"amount": 1}), chunk("tool_calls"))

    assert [(one["name"], one["args"]) for one in reply.tool_calls] == [("pay", {"amount": 1})]


def test_call_without_a_function_is_a_call_of_no_name() -> None:
    broken = chunk(tool_calls=[{"index": 0, "id": "1", "type": "function", "function": None}])

    assert [one["name"] for one in read(broken, chunk("tool_calls")).tool_calls] == [""]
