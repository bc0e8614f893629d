"""OpenAI's client as we set it up, against a real server on loopback."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from echelons import Agent, RunEvent, Session
from echelons.models import openai_chat, resolve_model
from echelons.testing import Call, Reply, ScriptedModel, delegate
from echelons.testing.openai_server import Drop, Hang, HttpError
from echelons.text.error_lines import describe_error
from echelons.text.json_schema import find_schema_fault
from tests.error_codes import raises_code

Serve = Callable[..., tuple[ChatOpenAI, Any]]

REPLY = Reply("to Rome", [Call("search", {"city": "Rome"})], usage=(30, 4))


@tool
def search(city: str) -> str:
    """Look for places."""
    return city


def streamed(model: Any, question: Any = "hi") -> AIMessageChunk:
    total = AIMessageChunk(content="")
    for chunk in model.stream(question):
        total += chunk
    return total


async def astreamed(model: Any, question: Any = "hi") -> AIMessageChunk:
    total = AIMessageChunk(content="")
    async for chunk in model.astream(question):
        total += chunk
    return total


async def in_all_ways(model: Any) -> list[AIMessage]:
    """The answers to four equal calls: sync, async, and each of them streamed."""
    return [
        model.invoke("hi"),
        await model.ainvoke("hi"),
        streamed(model),
        await astreamed(model),
    ]


async def errors_in_all_ways(model: Any) -> list[type[BaseException]]:
    errors: list[type[BaseException]] = []
    for way in (model.invoke, streamed_by(model)):
        with pytest.raises(openai.OpenAIError) as caught:
            way("hi")
        errors.append(caught.type)
    for away in (model.ainvoke, lambda question: astreamed(model, question)):
        with pytest.raises(openai.OpenAIError) as caught:
            await away("hi")
        errors.append(caught.type)
    return errors


def streamed_by(model: Any) -> Callable[[Any], AIMessage]:
    return lambda question: streamed(model, question)


async def test_text_calls_and_usage_arrive_in_all_ways_of_calling(serve: Serve) -> None:
    model, server = serve(*[REPLY] * 4)
    for answer in await in_all_ways(model.bind_tools([search])):
        assert answer.content == "to Rome"
        assert [(c["name"], c["args"]) for c in answer.tool_calls] == [("search", {"city": "Rome"})]
        assert answer.usage_metadata is not None
        assert answer.usage_metadata["total_tokens"] == 34
    assert [request.streams for request in server.requests] == [False, False, True, True]
    assert all(request.wants_usage for request in server.requests if request.streams)
    sent = server.requests[0].body["tools"][0]["function"]
    assert (sent["name"], sent["description"]) == ("search", "Look for places.")


async def test_a_stream_arrives_in_more_than_one_chunk(serve: Serve) -> None:
    model, _ = serve("one two three", "one two three")
    assert [c.content for c in model.stream("hi") if c.content] == ["one ", "two ", "three"]
    parts = [c.content async for c in model.astream("hi") if c.content]
    assert parts == ["one ", "two ", "three"]


def test_the_answers_to_tool_calls_go_back_as_a_provider_wants_them(serve: Serve) -> None:
    model, server = serve(REPLY, "enjoy")
    asked = [HumanMessage("where?")]
    first = model.invoke(asked)
    call = first.tool_calls[0]
    answer = model.invoke([*asked, first, ToolMessage("Trastevere", tool_call_id=call["id"])])
    assert answer.content == "enjoy"
    assert server.errors == []
    with pytest.raises(openai.BadRequestError, match="before the answers to call_1_0"):
        model.invoke([*asked, first, HumanMessage("well?")])


async def test_the_script_reads_the_same_from_the_model_and_over_the_wire(serve: Serve) -> None:
    broken = Reply("a", [Call("search", {"city": "Rome"}), Call("search", '{"city": Rome}')])
    for reply in (REPLY, broken, Reply(""), Reply("a  b\n c ")):
        served, _ = serve(*[reply] * 4)
        scripted = ScriptedModel([reply])
        pairs = zip(await in_all_ways(served), await in_all_ways(scripted), strict=True)
        for over_the_wire, here in pairs:
            assert here.content == over_the_wire.content
            assert here.tool_calls == over_the_wire.tool_calls
            assert [(c["id"], c["args"]) for c in here.invalid_tool_calls] == [
                (c["id"], c["args"]) for c in over_the_wire.invalid_tool_calls
            ]


async def test_malformed_arguments_become_an_invalid_call(serve: Serve) -> None:
    model, _ = serve(*[Call("search", '{"city": Rome}')] * 4)
    for answer in await in_all_ways(model):
        assert answer.tool_calls == []
        assert [call["args"] for call in answer.invalid_tool_calls] == ['{"city": Rome}']


@pytest.mark.parametrize("status", [429, 500])
async def test_a_passing_failure_is_tried_again(serve: Serve, status: int) -> None:
    failures = [HttpError(status, retry_after=0.001)] * openai_chat.MAX_RETRIES
    model, server = serve(*[*failures, REPLY] * 4)
    assert [answer.content for answer in await in_all_ways(model)] == ["to Rome"] * 4
    assert len(server.requests) == 4 * (openai_chat.MAX_RETRIES + 1)


@pytest.mark.parametrize(
    ("status", "error"), [(429, openai.RateLimitError), (500, openai.InternalServerError)]
)
async def test_a_lasting_failure_surfaces_when_all_attempts_are_spent(
    serve: Serve, status: int, error: type[Exception]
) -> None:
    attempts = openai_chat.MAX_RETRIES + 1
    model, server = serve(*[HttpError(status, retry_after=0.001)] * 4 * attempts)
    assert all(issubclass(kind, error) for kind in await errors_in_all_ways(model))
    assert len(server.requests) == 4 * attempts


def test_what_the_client_did_wrong_is_not_tried_again(serve: Serve) -> None:
    model, server = serve(HttpError(401, message="no such key"))
    with pytest.raises(openai.AuthenticationError, match="no such key"):
        model.invoke("hi")
    assert len(server.requests) == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_chat, "TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(openai_chat, "MAX_RETRIES", 0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("hang", [Hang(), Hang("one two three", after=2)])
async def test_silence_before_or_within_an_answer_is_a_timeout(serve: Serve, hang: Hang) -> None:
    model, server = serve(*[hang] * 4)
    errors = await errors_in_all_ways(model)
    assert all(issubclass(kind, openai.APITimeoutError) for kind in errors)
    # On a busy machine a client may give up before the server has read its request.
    assert len(server.requests) <= 4


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("drop", [Drop(after=0), Drop("one two three", after=2)])
async def test_a_connection_that_breaks_is_a_connection_error(serve: Serve, drop: Drop) -> None:
    model, _ = serve(*[drop] * 4)
    errors = await errors_in_all_ways(model)
    assert all(issubclass(kind, openai.APIConnectionError) for kind in errors)


def test_a_stream_that_broke_after_it_began_is_not_tried_again(serve: Serve) -> None:
    model, server = serve(Drop("one two three", after=2), "never")
    seen = []
    with pytest.raises(openai.APIConnectionError):
        for chunk in model.stream("hi"):
            seen.append(chunk.content)
    assert "one " in seen
    assert len(server.requests) == 1


def test_a_named_model_without_its_key_is_refused_by_name() -> None:
    with raises_code("model_key_missing") as caught:
        resolve_model("openai:gpt-5-mini")
    assert (caught.value.model, caught.value.variable) == ("openai:gpt-5-mini", "OPENAI_API_KEY")


@pytest.mark.parametrize("key", ["", "  \n"])
def test_an_empty_key_is_a_missing_key(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with raises_code("model_key_missing"):
        resolve_model("openai:gpt-5-mini")


def test_a_server_elsewhere_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://models.example.com/v1")
    with raises_code("model_key_missing"):
        resolve_model("openai:gpt-5-mini")


@pytest.mark.parametrize(
    "address", ["http://localhost:8080/v1", "http://127.8.8.8/v1", "http://[::1]:9/v1"]
)
def test_a_server_on_loopback_needs_none(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    model = resolve_model("openai:local")
    assert isinstance(model, ChatOpenAI)
    assert model.openai_api_base == address


def test_langchains_older_name_of_the_address_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:1/v1")
    model = resolve_model("openai:local")
    assert isinstance(model, ChatOpenAI)
    assert model.openai_api_base == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    "address",
    ["localhost:8080", "ftp://127.0.0.1/v1", "http://", "http://[::1", "http://127.0.0.1:x/v1"],
)
def test_an_address_that_is_none_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with raises_code("invalid_model_address") as caught:
        resolve_model("openai:local")
    assert (caught.value.variable, caught.value.value) == ("OPENAI_BASE_URL", address)


def test_without_an_address_the_key_goes_to_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " secret\n")
    model = resolve_model("openai:gpt-5-mini")
    assert isinstance(model, ChatOpenAI)
    assert model.openai_api_base == "https://api.openai.com/v1"
    assert model.root_client.api_key == "secret"
    assert (model.max_retries, model.request_timeout) == (2, 60.0)


def test_a_key_that_exists_is_sent_to_a_local_server(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    model, server = serve("a")
    model.invoke("hi")
    assert server.requests[0].headers["authorization"] == "Bearer secret"
    assert server.requests[0].model == "test-model"


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", "http_proxy", "OPENAI_PROXY"])
async def test_no_proxy_stands_between_us_and_loopback(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")  # nobody listens there
    model, _ = serve(*["a"] * 4)
    assert [answer.content for answer in await in_all_ways(model)] == ["a"] * 4
    assert "proxy" not in caplog.text


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "OPENAI_PROXY"])
async def test_a_server_elsewhere_is_reached_through_the_proxy(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    _, server = serve()  # as a proxy it is asked for a whole address, and knows no such path
    monkeypatch.setenv(variable, server.url.removesuffix("/v1"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://models.invalid/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    model = resolve_model("openai:far")
    with pytest.raises(openai.NotFoundError, match=r"http://models.invalid/v1"):
        model.invoke("hi")
    with pytest.raises(openai.NotFoundError, match=r"http://models.invalid/v1"):
        await model.ainvoke("hi")


async def test_a_connection_that_fails_names_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")  # nobody listens there
    monkeypatch.setattr(openai_chat, "MAX_RETRIES", 0)
    model = resolve_model("openai:gone")
    head = Agent("head", model=model)

    with pytest.raises(openai.APIConnectionError) as refused:
        model.invoke("hi")
    with pytest.raises(openai.APIConnectionError) as refused_async:
        await model.ainvoke("hi")
    for error in (refused.value, refused_async.value):
        assert describe_error(error).endswith(
            "ConnectionError: Connection error. (http://127.0.0.1:9)"
        )
        assert "http://127.0.0.1:9" in "".join(traceback.format_exception(error))
    above = ScriptedModel({"top": [delegate("head", "go"), "over"]})
    with Session(Agent("top", model=above, subordinates=[head]), ":memory:") as session:
        session.send("go").result()
        [request] = session.trace().subordinates[0].requests
    assert "(http://127.0.0.1:9)" in request.reason


async def test_a_root_whose_server_is_not_there_names_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setattr(openai_chat, "MAX_RETRIES", 0)
    errors: list[openai.APIConnectionError] = []
    events: list[RunEvent] = []
    with Session(Agent("head", model="openai:gone"), ":memory:") as session:
        with pytest.raises(openai.APIConnectionError) as refused:
            events.extend(session.send("go"))
        errors.append(refused.value)
    async with Session(Agent("head", model="openai:gone"), ":memory:") as session:
        with pytest.raises(openai.APIConnectionError) as refused:
            async for event in await session.asend("go"):
                events.append(event)
        errors.append(refused.value)

    for error in errors:
        assert error.__notes__[-1] == "the request was for http://127.0.0.1:9"
    failed = [each.content for each in events if each.kind == "error"]
    assert failed == ["Connection error. (http://127.0.0.1:9)"] * 2


def test_a_tree_of_three_levels_asks_is_answered_and_ends(serve: Serve) -> None:
    year = {"question": "Which year?", "schema": {"type": "string", "pattern": "^[0-9]{4}$"}}
    model, server = serve(
        delegate("mid", "find it"),
        delegate("low", "find it"),
        Call("ask_superior", year),
        Call("ask_superior", {**year, "choices": ["1999", "2000"]}),
        [
            Call("ask_superior", {"question": "Which year is it?", "choices": ["1999", "2000"]}),
            Call("ask_later", {"question": "Which month?"}),
        ],
        delegate("mid", "1999"),
        delegate("low", "1999"),
        "found it",
        "low has found it",
        "it is found",
    )
    mid = Agent("mid", subordinates=[Agent("low", tools=[search])])
    with Session(Agent("head", model=model, subordinates=[mid]), ":memory:") as session:
        [question] = session.send("find it").result().questions
        assert question.choices == ("1999", "2000")
        assert session.answer(question.id, "1999").result().text == "it is found"

    assert server.errors == []
    offered = [
        each["function"] for request in server.requests for each in request.body.get("tools", ())
    ]
    assert {each["name"] for each in offered} == {
        "ask",
        "call_subordinate",
        "report",
        "search",
    }
    assert [find_schema_fault(each["parameters"]) for each in offered] == [""] * len(offered)
    # What an agent is told about its superior does not say whether that is an agent or a human.
    told = [each["description"] for each in offered if each["name"] == "ask"]
    assert len(told) == len(server.requests)
    assert told == [told[0]] * len(told)
