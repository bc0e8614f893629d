"""The OpenAI-compatible server, over plain HTTP; the real client has its tests in models/."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse, IncompleteRead, RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit

import pytest

from echelons.errors import ScriptError
from echelons.testing import Call, OpenAIServer, Reply
from echelons.testing.openai_server import ChatRequest, Drop, Hang, HttpError
from echelons.testing.openai_server.protocols import check_history
from tests.error_codes import raises_code

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAMED = HELLO | {"stream": True, "stream_options": {"include_usage": True}}


class Client:
    """A server with a script, and plain connections to it that close with the test."""

    def __init__(self, server: OpenAIServer) -> None:
        self.server = server
        self._stack = ExitStack()

    def __enter__(self) -> Client:
        self._stack.enter_context(self.server)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def open(self) -> HTTPConnection:
        connection = HTTPConnection(urlsplit(self.server.url).netloc, timeout=120)
        self._stack.callback(connection.close)
        return connection

    def post(self, body: Any, path: str = "/v1/chat/completions") -> HTTPResponse:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.open()
        connection.request("POST", path, raw, {"Authorization": "Bearer k"})
        return connection.getresponse()

    def get(self, path: str) -> HTTPResponse:
        connection = self.open()
        connection.request("GET", path)
        return connection.getresponse()


def playing(*script: object, **options: Any) -> Client:
    return Client(OpenAIServer(script, **options))


def events(response: HTTPResponse) -> list[Any]:
    lines = response.read().decode().split("\n\n")
    data = [line.removeprefix("data: ") for line in lines if line]
    assert data[-1] == "[DONE]"
    return [json.loads(line) for line in data[:-1]]


def test_an_answer_has_the_shape_of_a_completion() -> None:
    reply = Reply("Rome", [Call("find", {"city": "Rome"})], reasoning="hm", usage=(3, 4))
    with playing(reply) as client:
        body = json.load(client.post(HELLO))
    assert body["object"] == "chat.completion"
    assert body["model"] == "m"
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": "Rome",
        "reasoning_content": "hm",
        "tool_calls": [
            {
                "id": "call_1_0",
                "type": "function",
                "function": {"name": "find", "arguments": '{"city": "Rome"}'},
            }
        ],
    }
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_a_stream_sends_words_then_fragments_of_calls_then_the_usage() -> None:
    with playing(Reply("to Rome", [Call("find", {"a": 1})], usage=(3, 4))) as client:
        stream = events(client.post(STREAMED))
    deltas = [event["choices"][0]["delta"] for event in stream if event["choices"]]
    assert [delta["content"] for delta in deltas if "content" in delta] == ["", "to ", "Rome"]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["id"] == "call_1_0"
    assert "".join(call["function"]["arguments"] for call in calls) == '{"a": 1}'
    assert stream[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert stream[-1]["choices"] == []
    assert stream[-1]["usage"]["total_tokens"] == 7


def test_stream_has_usage_only_on_request() -> None:
    with playing(Reply("a", usage=(3, 4))) as client:
        assert all("usage" not in event for event in events(client.post(HELLO | {"stream": True})))


def test_arguments_that_are_no_json_go_out_as_they_are() -> None:
    with playing(Call("find", '{"city": Rome}'), Call("find", '{"city": Rome}')) as client:
        whole = json.load(client.post(HELLO))["choices"][0]["message"]["tool_calls"][0]
        stream = events(client.post(STREAMED))
    assert whole["function"]["arguments"] == '{"city": Rome}'
    parts = [e["choices"][0]["delta"].get("tool_calls") for e in stream if e["choices"]]
    assert "".join(p[0]["function"]["arguments"] for p in parts if p) == '{"city": Rome}'


def test_the_models_are_listed() -> None:
    with playing(models=["a", "b"]) as client:
        body = json.load(client.get("/v1/models"))
    assert [model["id"] for model in body["data"]] == ["a", "b"]


def test_requests_are_kept_with_their_bodies_and_headers() -> None:
    with playing("a", "b") as client:
        client.post(HELLO)
        client.post(STREAMED)
        first, second = client.server.requests
    assert (first.number, first.model, first.streams) == (0, "m", False)
    assert first.headers["authorization"] == "Bearer k"
    assert first.messages == HELLO["messages"]
    assert (second.streams, second.wants_usage) == (True, True)


def test_a_failure_says_when_to_come_again_in_both_of_the_ways_in_use() -> None:
    with playing(HttpError(429, retry_after=1.5)) as client:
        response = client.post(HELLO)
        assert response.status == 429
        assert response.headers["Retry-After"] == "2"
        assert response.headers["Retry-After-Ms"] == "1500"
        assert json.load(response)["error"]["type"] == "rate_limit_error"


def test_a_failure_may_happen_some_times_before_a_success() -> None:
    with playing(*[HttpError(500)] * 2, "at last") as client:
        assert [client.post(HELLO).status for _ in range(3)] == [500, 500, 200]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        ({}, "'messages' must be a list"),
        ({"messages": []}, "at least one message"),
        ({"messages": ["hi"]}, "must have a 'role'"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "must have a 'role'"),
    ],
)
def test_a_request_that_no_provider_accepts_is_refused(body: Any, fault: str) -> None:
    with playing("unused") as client:
        response = client.post(body)
        assert response.status == 400
        assert fault in json.load(response)["error"]["message"]
        assert client.server.requests == []


def test_a_body_without_a_length_is_refused() -> None:
    with playing("unused") as client:
        connection = client.open()
        connection.putrequest("POST", "/v1/chat/completions")
        connection.endheaders()
        assert connection.getresponse().status == 411


def test_other_paths_are_not_found() -> None:
    with playing("unused") as client:
        assert client.post(HELLO, "/v1/embeddings").status == 404
        assert client.get("/").status == 404


def call(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": id_} for id_ in ids]}


def answer(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": "r"}


USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([USER, call("a", "b"), answer("b"), answer("a"), USER], None),
        ([USER, call("a"), answer("a"), call("a"), answer("a")], None),
        ([USER, {"role": "assistant", "content": "x", "tool_calls": None}, USER], None),
        ([USER, call("a", "b"), answer("a"), USER], "before the answers to b"),
        ([USER, call("a")], "no answer follows the calls a"),
        ([USER, answer("a")], "answers no call: 'a'"),
        ([USER, call("a"), answer("a"), answer("a")], "answers no call: 'a'"),
    ],
)
def test_every_call_of_a_conversation_needs_its_one_answer(
    messages: list[dict[str, Any]], fault: str | None
) -> None:
    faults = [*check_history({"messages": messages})]
    assert (fault in faults[0]) if fault else not faults


def test_more_requests_than_steps_are_an_error_that_no_client_retries() -> None:
    with playing("one") as client:
        assert client.post(HELLO).status == 200
        response = client.post(HELLO)
        assert response.status == 400
        assert "ScriptExhausted" in json.load(response)["error"]["message"]
        assert isinstance(client.server.errors[0], ScriptError)


def test_a_function_answers_by_the_request() -> None:
    def echo(request: ChatRequest) -> object:
        return request.messages[-1]["content"].upper()

    with Client(OpenAIServer(echo)) as client:
        body = json.load(client.post(HELLO))
    assert body["choices"][0]["message"]["content"] == "HI"


def test_what_a_scripts_function_raises_reaches_the_client_and_the_test() -> None:
    def broken(request: ChatRequest) -> object:
        raise KeyError("city")

    with Client(OpenAIServer(broken)) as client:
        assert client.post(HELLO).status == 400
        assert isinstance(client.server.errors[0], KeyError)


@pytest.mark.parametrize("script", ["hello", 3, None, [3], [ValueError("no")], [[]]])
def test_a_script_that_cannot_be_played_is_refused_where_it_is_written(script: Any) -> None:
    with raises_code("invalid_script", match="a script cannot hold"):
        OpenAIServer(script)


def test_a_faulty_step_inside_a_hang_is_refused_as_well() -> None:
    with raises_code("invalid_script", match="the step 3"):
        Hang(3)
    with raises_code("invalid_script", match="the step 3"):
        Drop(3)


def test_a_hang_answers_when_it_is_released() -> None:
    hang = Hang("late")
    with playing(hang) as client:
        connection = client.open()
        connection.request("POST", "/v1/chat/completions", json.dumps(HELLO))
        assert hang.reached.wait(120)
        hang.release()
        body = json.load(connection.getresponse())
    assert body["choices"][0]["message"]["content"] == "late"


def test_a_hang_in_a_stream_lets_the_first_events_through() -> None:
    hang = Hang("one two three", after=2)
    with playing(hang) as client:
        response = client.post(STREAMED)
        assert b'"role"' in response.readline()
        response.readline()
        assert b"one" in response.readline()
        assert hang.reached.wait(120)
        hang.release()
        assert response.read().endswith(b"data: [DONE]\n\n")


def test_closing_ends_requests_that_hang() -> None:
    hang = Hang()
    server = OpenAIServer([hang])
    with Client(server) as client:
        connection = client.open()
        connection.request("POST", "/v1/chat/completions", json.dumps(HELLO))
        assert hang.reached.wait(120)
        server.close()
        with pytest.raises((RemoteDisconnected, ConnectionError)):
            connection.getresponse()


@pytest.mark.parametrize("body", [HELLO, STREAMED])
def test_dropped_answer_differs_from_whole_one(body: Any) -> None:
    with playing(Drop("one two three")) as client:
        response = client.post(body)
        with pytest.raises(IncompleteRead):
            response.read()


@pytest.mark.parametrize("body", [HELLO, STREAMED])
def test_a_connection_may_drop_before_the_first_byte(body: Any) -> None:
    with playing(Drop(after=0)) as client, pytest.raises(RemoteDisconnected):
        client.post(body)


def test_a_client_that_hangs_up_is_no_error_of_the_server() -> None:
    hang = Hang(Reply("word " * 20_000), after=1)
    with playing(hang, "next") as client:
        connection = client.open()
        connection.request("POST", "/v1/chat/completions", json.dumps(STREAMED))
        assert hang.reached.wait(120)
        connection.close()
        hang.release()
        assert client.post(HELLO).status == 200
    assert client.server.errors == []


def test_closing_leaves_no_thread_even_with_a_silent_connection() -> None:
    before = threading.active_count()
    with playing() as client:
        silent = client.open()
        silent.connect()
        client.get("/v1/models").read()  # accepted after the silent one, so that one has a thread
        client.server.close()
        assert threading.active_count() == before


def test_closing_twice_is_harmless() -> None:
    with OpenAIServer([]) as server:
        server.close()


def test_a_server_outside_its_block_has_no_address() -> None:
    with pytest.raises(RuntimeError, match="inside its with block"):
        _ = OpenAIServer([]).url


def test_connections_stay_open_where_that_is_asked_for() -> None:
    with playing("a", "b", keep_alive=True) as client:
        connection = client.open()
        for expected in ("a", "b"):
            connection.request("POST", "/v1/chat/completions", json.dumps(HELLO))
            body = json.load(connection.getresponse())
            assert body["choices"][0]["message"]["content"] == expected


def test_many_clients_are_answered_side_by_side() -> None:
    everyone = threading.Barrier(8)

    def together(request: ChatRequest) -> object:
        everyone.wait(timeout=120)
        return "met"

    with Client(OpenAIServer(together)) as client:
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda: statuses.append(client.post(HELLO).status))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 8
