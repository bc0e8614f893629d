"""A request that is too long for its model is shortened, and the agent goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents.middleware import wrap_model_call
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from echelons import Agent, Budget, Limits, Session
from echelons.identity.lineage import SHORTENED_KEY
from echelons.memory import Memory
from echelons.models.fitting import count_cautiously
from echelons.testing import AnthropicServer, Call, OpenAIServer, Reply, ScriptedModel, delegate
from echelons.testing.openai_server import HttpError

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

LONG = "x" * 30_000
Refuse = Callable[[int], Exception]


def fetch(page: str) -> str:
    """Fetch a page."""
    return f"begin {LONG} end"


def build_tree(model: Any, levels: int, **leaf: Any) -> Agent:
    """Return an agent that fetches pages, below as many others as make the levels."""
    agent = Agent("leaf", model=model, tools=[fetch], **leaf)
    for name in ("mid", "head")[: levels - 1]:
        agent = Agent(name, model=model, subordinates=[agent])
    return agent


def script_tree(leaf: Any) -> Any:
    """Return a script in which a task goes down to the leaf, and its answer up."""
    return {
        "head": lambda said: (
            delegate("mid", "Fetch") if said[-1].type == "human" else said[-1].text
        ),
        "mid": lambda said: (
            delegate("leaf", "Fetch") if said[-1].type == "human" else said[-1].text
        ),
        "leaf": leaf,
    }


class Window:
    """A leaf's script that refuses what is longer than its context, and notes both."""

    def __init__(self, tokens: int, refuse: Refuse) -> None:
        self.tokens = tokens
        self.refused: list[int] = []
        self.accepted: list[Sequence[BaseMessage]] = []
        self._refuse = refuse

    def __call__(self, messages: Sequence[BaseMessage]) -> Any:
        tokens = (
            sum(len(f"{each.content}{getattr(each, 'tool_calls', '')}") for each in messages) // 4
        )
        if tokens > self.tokens:
            self.refused.append(tokens)
            raise self._refuse(tokens)
        self.accepted.append(messages)
        return Call("fetch", {"page": "1"}) if messages[-1].type == "human" else "Fetched."


REFUSALS: dict[str, Refuse] = {
    "class": lambda _: ContextOverflowError("no"),
    "text": lambda _: ValueError("400 context_length_exceeded"),
    "limit": lambda _: RuntimeError("This model's maximum context length is 2000 tokens."),
    "both": lambda n: RuntimeError(f"prompt is too long: {n} tokens > 2000 maximum"),
}


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_request_that_is_too_long_is_shortened_once(
    world: World, refusal: str, levels: int
) -> None:
    window = Window(2000, REFUSALS[refusal])
    model = ScriptedModel(script_tree(window))
    with Session(build_tree(model, levels), ":memory:") as session:
        assert world.send(session, "Fetch").text == "Fetched."
        refused = len(window.refused)
        assert 1 <= refused <= 4
        # The next steps and turns know the length.
        assert world.send(session, "Fetch").text == "Fetched."
        assert len(window.refused) == refused
        shown = window.accepted[1]
        assert [each.type for each in shown] == ["system", "human", "ai", "tool"]
        assert shown[-1].text.startswith("begin")
        assert shown[-1].text.endswith("end")
        if levels == 1:
            # In the thread it is whole.
            assert LONG in str(session.thread_store.get(session.thread_id).messages[2].text)


@pytest.mark.parametrize("levels", [1, 3])
def test_a_graph_without_a_session_shortens_too(world: World, levels: int) -> None:
    window = Window(2000, REFUSALS["text"])
    graph = build_tree(ScriptedModel(script_tree(window)), levels).compile(InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    given = {"messages": [HumanMessage("Fetch")]}
    assert world.invoke(graph, given, config)["messages"][-1].text == "Fetched."
    refused = len(window.refused)
    assert refused
    assert world.stream(graph, given, config)
    assert len(window.refused) == refused


def test_the_length_is_known_in_a_later_process(world: World, tmp_path: Path) -> None:
    window = Window(2000, REFUSALS["text"])
    agent = build_tree(ScriptedModel(script_tree(window)), 1)
    refused, limit = 0, 0
    reply: Any = None
    for turn in range(3):
        with Session(agent, tmp_path / "long.sqlite") as session:
            world.send(session, "Fetch")
            reply = session.thread_store.get(session.thread_id).messages[-1]
        if turn == 0:
            refused = len(window.refused)
            limit = reply.response_metadata[SHORTENED_KEY]["tokens"]
            accepted = count_cautiously(window.accepted[-1])
            assert limit == int(accepted * 0.75)
    assert len(window.refused) == refused
    assert reply.response_metadata[SHORTENED_KEY]["tokens"] == limit


def test_refused_calls_cost_nothing(world: World) -> None:
    window = Window(2000, REFUSALS["text"])
    model = ScriptedModel(script_tree(window))
    agent = build_tree(model, 1, limits=Limits(calls=2))
    with Session(agent, ":memory:") as session:
        result = world.send(session, "Fetch", budget=Budget(calls=2))
        assert (result.text, result.status) == ("Fetched.", "finished")
        assert len(window.refused) > 1
        assert session.usage().total.model_calls == len(window.accepted) == 2


def test_a_middleware_sees_one_call(world: World) -> None:
    seen: list[int] = []

    @wrap_model_call
    def count(request: Any, handler: Any) -> Any:
        seen.append(len(request.messages))
        return handler(request)

    @wrap_model_call
    async def acount(request: Any, handler: Any) -> Any:
        seen.append(len(request.messages))
        return await handler(request)

    is_async = type(world).__name__ == "Async"
    window = Window(2000, REFUSALS["text"])
    model = ScriptedModel(script_tree(window))
    agent = build_tree(model, 1, middleware=[acount if is_async else count])
    with Session(agent, ":memory:") as session:
        assert world.send(session, "Fetch").text == "Fetched."
    assert seen == [1, 3]
    assert window.refused


def test_instructions_that_are_too_long_fail_with_the_words_of_the_provider(world: World) -> None:
    window = Window(500, REFUSALS["text"])
    agent = build_tree(ScriptedModel(script_tree(window)), 1, prompt="Be brief. " * 900)
    with Session(agent, ":memory:") as session:
        with pytest.raises(ValueError, match="context_length_exceeded"):
            world.send(session, "Fetch")
    assert len(window.refused) <= 2


def test_another_error_is_raised_at_once(world: World) -> None:
    window = Window(100, lambda _: ValueError("429 rate limit: too many tokens per minute"))
    with Session(build_tree(ScriptedModel(script_tree(window)), 1), ":memory:") as session:
        with pytest.raises(ValueError, match="429"):
            world.send(session, "Fetch " * 100)
    assert len(window.refused) == 1


def test_a_summary_that_is_too_long_for_its_model_is_written_of_less(world: World) -> None:
    lengths: list[int] = []

    def answer(messages: Sequence[BaseMessage]) -> Any:
        text = str(messages[-1].text)
        if "most" in str(messages[0].text) and "words" in str(messages[0].text):
            lengths.append(len(text))
            if len(text) > 1000:
                raise ValueError("400 context_length_exceeded")
            return "A summary."
        return "Fine. " * 30

    model = ScriptedModel({"*": answer})
    agent = Agent("head", model=model, memory=Memory(budget=8000, recent=1, summarizer="model"))
    with Session(agent, ":memory:") as session:
        for turn in range(14):
            world.send(session, " ".join(f"Hotel {turn}-{n} has a bath." for n in range(40)))
    assert max(lengths) > 1000
    assert min(lengths) <= 1000
    assert any("A summary." in str(each.messages[0].text) for each in model.calls)


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("levels", [1, 3])
def test_the_client_of_openai_is_understood(world: World, levels: int, streams: bool) -> None:
    refused: list[int] = []

    def play(request: Any) -> Any:
        said = request.body["messages"]
        name = next(each for each in ("head", "mid", "leaf") if f"You are {each}" in str(said[0]))
        if (size := len(json.dumps(said)) // 4) > 4096:
            refused.append(size)
            message = (
                f"This model's maximum context length is 4096 tokens. You requested {size} tokens."
            )
            return HttpError(400, message=f"context_length_exceeded: {message}")
        if said[-1]["role"] != "user":
            return said[-1]["content"] if name != "leaf" else "Fetched."
        below = {"head": "mid", "mid": "leaf"}
        return Call("fetch", {"page": "1"}) if name == "leaf" else delegate(below[name], "Fetch")

    with OpenAIServer(play) as server:
        model = ChatOpenAI(
            model="gpt-test",
            base_url=server.url,
            api_key="k",  # type: ignore[arg-type]  # as users write it
            max_retries=0,
            disable_streaming=not streams,
        )
        with Session(build_tree(model, levels), ":memory:") as session:
            for _ in range(2):
                events = world.events(session, "Fetch") if streams else []
                text = events[-1].content if streams else world.send(session, "Fetch").text
                assert text == "Fetched."
    assert len(refused) == 1


def say(limit: int, size: int) -> dict[str, str]:
    """Return what servers write that have a context of so many tokens."""
    return {
        "openai": f"This model's maximum context length is {limit} tokens. However, your messages "
        f"resulted in {size} tokens.",
        "anthropic": f"prompt is too long: {size} tokens > {limit} maximum",
        "vllm": f"This model's maximum context length is {limit} tokens. However, you requested "
        f"{size + 256} tokens ({size} in the messages, 256 in the completion).",
        "vllm without room": f"max_tokens must be at least 1, got {limit - size}.",
        "llama.cpp": f"request ({size} tokens) exceeds the available context size ({limit} "
        "tokens), try increasing it",
        "ollama": f"prompt too long; exceeded max context length by {size - limit} tokens",
        "gemini": f"The input token count ({size}) exceeds the maximum number of tokens allowed "
        f"({limit}).",
        "bedrock": "ValidationException: Input is too long for requested model.",
        "mistral": f"Prompt contains {size} tokens and 0 draft tokens, too large for model with "
        f"{limit} maximum context length",
    }


CLIENTS = [
    f"{kind}{more}" for kind in ("chat", "responses", "anthropic") for more in ("", " streamed")
]
WINDOW = 4_000
"""Tokens, of four characters each, that the servers take."""


@contextmanager
def serve(client: str, refused: list[int], text: str = "") -> Iterator[tuple[Any, OpenAIServer]]:
    """Serve a leaf that fetches, to a real client, and refuse what is longer than the window."""
    kind, _, streams = client.partition(" ")

    def play(request: Any) -> Any:
        said = request.body["input" if kind == "responses" else "messages"]
        if (size := len(json.dumps(said)) // 4) > WINDOW:
            refused.append(size)
            known = say(WINDOW, size)
            return HttpError(
                400, message=known[text or ("anthropic" if kind == "anthropic" else "openai")]
            )
        is_task = said[-1].get("role") == "user" and "tool_result" not in str(said[-1])
        calls = [Call("fetch", {"page": "1"})] if is_task else []
        return Reply("" if is_task else "Fetched.", calls, usage=(7, 3))

    options: dict[str, Any] = {"api_key": "k", "max_retries": 0, "disable_streaming": not streams}
    server = AnthropicServer(play) if kind == "anthropic" else OpenAIServer(play)
    with server:
        if kind == "anthropic":
            yield ChatAnthropic(model_name="claude-test", base_url=server.url, **options), server
            return
        is_responses = kind == "responses"
        yield (
            ChatOpenAI(
                model="gpt-test", base_url=server.url, use_responses_api=is_responses, **options
            ),
            server,
        )


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("client", CLIENTS)
def test_real_clients_of_strict_servers_are_understood(
    world: World, client: str, remembers: bool
) -> None:
    refused: list[int] = []
    # Its budget holds what the server does not take.
    memory = Memory(budget=60_000, summarizer="extractive") if remembers else None
    with serve(client, refused) as (model, server):
        agent = build_tree(model, 1, memory=memory)
        with Session(agent, ":memory:") as session:
            for turn in range(3):
                budget = Budget(calls=2, tokens=100_000)
                result = world.send(session, "Fetch", budget=budget)
                assert (result.text, result.status) == ("Fetched.", "finished")
                # Only the first long request was refused: the next ones know the length.
                assert 1 <= len(refused) <= 2, turn
            calls = session.usage().total.model_calls
            spent = sum(each.spent for each in session.usage().grants if each.unit == "calls")
            messages = session.thread_store.get(session.thread_id).messages
    assert (server.refused, server.errors) == ([], [])
    assert calls == spent == len(server.requests) - len(refused) == 6
    assert [str(each.text).count(LONG) for each in messages if each.type == "tool"] == [1, 1, 1]


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("server", say(1, 2))
def test_texts_of_other_servers_are_understood_of_a_client_that_is_not_known(
    world: World, server: str, remembers: bool
) -> None:
    window = Window(2000, lambda size: RuntimeError(say(2000, size)[server]))
    memory = Memory(budget=60_000, summarizer="extractive") if remembers else None
    model = ScriptedModel(script_tree(window))
    with Session(build_tree(model, 3, memory=memory), ":memory:") as session:
        assert world.send(session, "Fetch").text == "Fetched."
        refused = len(window.refused)
        assert 1 <= refused <= 4
        assert world.send(session, "Fetch").text == "Fetched."
        assert len(window.refused) == refused


@pytest.mark.parametrize("server", ["vllm", "llama.cpp", "gemini", "mistral", "ollama", "bedrock"])
def test_texts_of_servers_that_speak_as_openai_are_understood(world: World, server: str) -> None:
    refused: list[int] = []
    with serve("chat streamed", refused, server) as (model, strict):
        with Session(build_tree(model, 1), ":memory:") as session:
            for _ in range(2):
                assert world.send(session, "Fetch").text == "Fetched."
                assert 1 <= len(refused) <= 3
            assert session.usage().total.model_calls == len(strict.requests) - len(refused)


def test_a_profile_says_how_much_a_model_reads(world: World) -> None:
    window = Window(2000, REFUSALS["text"])
    model = ScriptedModel(script_tree(window))
    model.profile = {"max_input_tokens": 2000}
    with Session(build_tree(model, 1), ":memory:") as session:
        assert world.send(session, "Fetch").text == "Fetched."
    assert len(window.refused) == 1
    assert isinstance(window.accepted[-1][-2], AIMessage)
