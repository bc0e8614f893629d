"""Every call that a server of models sees stands in usage once, and counts for limits and budgets.

The server counts; the clients are real. Each test compares what it saw with the rows of `usage`, on
our checkpointer and on one that knows nothing of usage, and with what the run has told.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from langchain.agents.middleware.types import AgentMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from echelons import Agent, Contract, DelegationPolicy, Limits, Session, SqliteCheckpointer, effect
from echelons.capabilities import ModelDeriver
from echelons.delegation import Usage
from echelons.guards.budget import Budget
from echelons.memory import Memory
from echelons.middleware import PlanMiddleware, VerificationMiddleware
from echelons.monitors import Monitor
from echelons.routing import ModelMatcher
from echelons.testing import AnthropicServer, Call, OpenAIServer, Reply, ScriptedModel, delegate
from echelons.testing.crash import die, fork
from echelons.testing.openai_server import Blocks, HttpError

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

READ, WRITTEN = 7, 3
"""Tokens of each call."""


class Lake(BaseModel):
    name: str


class Provider:
    """A server whose models are told apart by their names, and say what a test lets them say."""

    def __init__(self) -> None:
        self.says: dict[str, Any] = {}
        self.refused = list[str]()
        self.server = OpenAIServer(self._play)

    def _play(self, request: Any) -> Any:
        name, body = request.body["model"], request.body
        said = self.says.get(name, f"{name} says so.")
        if callable(said):
            said = said(body)
        elif isinstance(said, list):
            said = said.pop(0)
        if isinstance(said, HttpError):
            self.refused.append(name)
            return said
        if isinstance(said, Reply):
            return said
        if isinstance(said, str):
            return Reply(said, usage=(READ, WRITTEN))
        return Reply("", [cast("Call", said)], usage=(READ, WRITTEN))

    def chat(self, name: str, **more: Any) -> BaseChatModel:
        """Return the client of a model."""
        options = {"stream_usage": True, "max_retries": 0, **more}
        return ChatOpenAI(model=name, base_url=self.server.url, api_key="k", **options)  # type: ignore[arg-type]

    def count(self, name: str = "") -> int:
        """Return how many calls of a model the server has answered, of all by default."""
        names = [each.body["model"] for each in self.server.requests]
        refused = self.refused
        return names.count(name) - refused.count(name) if name else len(names) - len(refused)


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    with made.server:
        yield made


@pytest.fixture(params=["sqlite", "memory"])
def any_saver(request: pytest.FixtureRequest, saver: SqliteCheckpointer) -> Any:
    """Return our checkpointer, or one that knows nothing of usage."""
    warnings.simplefilter("ignore")
    return saver if request.param == "sqlite" else InMemorySaver()


def check_usage(provider: Provider, saver: Any, session: Session, told: Usage) -> None:
    """Check that all calls that the server saw are in usage, once."""
    seen = provider.count()
    rows = session.usage().total
    assert (rows.model_calls, rows.input_tokens) == (seen, READ * seen)
    assert (told.model_calls, told.input_tokens) == (seen, READ * seen)
    if isinstance(saver, SqliteCheckpointer):
        query = "SELECT count(*), sum(input_tokens) FROM usage WHERE kind = 'model'"
        counts = saver.conn.execute(query).fetchone()
        assert tuple(counts) == (seen, READ * seen)


def test_summaries_of_a_memory_are_in_usage(
    world: World, any_saver: Any, provider: Provider
) -> None:
    model = provider.chat("head")
    head = Agent("head", model=model, memory=Memory(budget=600, recent=1, summarizer="model"))
    session = Session(head, any_saver)

    told = Usage()
    for turn in range(12):
        told += world.send(session, f"turn {turn} {'about something long ' * 20}").usage

    assert provider.count() > 12
    check_usage(provider, any_saver, session, told)


@pytest.mark.parametrize("budget", [None, Budget(tokens=10_000), Budget(seconds=1000)])
def test_a_model_that_verifies_is_in_usage(
    world: World, any_saver: Any, provider: Provider, budget: Budget | None
) -> None:
    provider.says = {
        "head": lambda body: (
            delegate("leaf", "go") if body["messages"][-1]["role"] == "user" else "End."
        ),
        "judge": ["Too short.", "OK"],
    }
    head = Agent(
        "head",
        model=provider.chat("head"),
        subordinates=[Agent("leaf", model=provider.chat("leaf"))],
        middleware=[VerificationMiddleware(provider.chat("judge"))],
    )
    session = Session(head, any_saver)

    result = world.send(session, "go", budget=budget)

    assert (result.status, provider.count("judge"), provider.count("leaf")) == ("finished", 2, 2)
    check_usage(provider, any_saver, session, result.usage)
    if budget and budget.tokens:
        [grant] = [each for each in session.usage().grants if each.unit == "tokens"]
        assert grant.spent == (READ + WRITTEN) * provider.count()


def test_a_limit_of_calls_lets_no_model_verify(
    world: World, any_saver: Any, provider: Provider
) -> None:
    provider.says = {"head": [delegate("leaf", "go"), "End."]}
    head = Agent(
        "head",
        model=provider.chat("head"),
        subordinates=[Agent("leaf", model=provider.chat("leaf"))],
        middleware=[VerificationMiddleware(provider.chat("judge"))],
        limits=Limits(calls=2),
    )
    session = Session(head, any_saver)

    result = world.send(session, "go")

    assert (result.status, provider.count(), provider.count("judge")) == ("limited", 2, 0)
    assert result.response is not None
    [leaf] = result.response.subordinate_responses
    assert (leaf.status, leaf.reason) == ("partial", "not verified: limit: 2 of 2 model calls")
    check_usage(provider, any_saver, session, result.usage)


@pytest.mark.parametrize("budget", [None, Budget(tokens=10_000)])
def test_monitors_are_in_usage(
    world: World, any_saver: Any, provider: Provider, budget: Budget | None
) -> None:
    provider.says = {"head": [*([Call("look")] * 5), "Done."], "watch": "Nothing."}

    def look() -> str:
        """Look."""
        return "seen"

    monitor = Monitor(
        "watch",
        watches="head",
        model=provider.chat("watch"),
        every_events=2,
        budget=Budget(calls=1),
    )
    head = Agent("head", model=provider.chat("head"), tools=[look], monitors=[monitor])
    session = Session(head, any_saver)

    def end(body: Any) -> str:
        deadline = monotonic() + 60
        while monotonic() < deadline and "head/watch" not in session.usage().group("agent"):
            Event().wait(0.01)
        return "Done."

    steps = provider.says["head"][:-1]
    provider.says["head"] = lambda body: steps.pop() if steps else end(body)

    result = world.send(session, "go", budget=budget)

    assert (provider.count("watch"), provider.count("head")) == (1, 6)
    check_usage(provider, any_saver, session, result.usage)


def test_replies_that_a_contract_has_rejected_are_in_usage(
    world: World, any_saver: Any, provider: Provider
) -> None:
    right = '{"name": "Como"}'
    provider.says = {
        "head": ["no lake", delegate("leaf", "go"), right],
        "leaf": ["none", Call("report", {"status": "fulfilled", "result": "none"}), right],
    }
    leaf = Agent("leaf", model=provider.chat("leaf"), contract=Contract(output=Lake))
    head = Agent(
        "head", model=provider.chat("head"), subordinates=[leaf], contract=Contract(output=Lake)
    )
    session = Session(head, any_saver)

    result = world.send(session, "go")

    assert (result.status, provider.count()) == ("finished", 6)
    check_usage(provider, any_saver, session, result.usage)


@pytest.mark.parametrize("limits", [Limits(), Limits(tokens=10_000)])
def test_models_that_route_a_task_are_in_usage(
    world: World, any_saver: Any, provider: Provider, limits: Limits
) -> None:
    provider.says = {
        "head": [Call("call_subordinate", {"message": "Find a lake"}), "End."],
        "deriver": lambda body: '{"capabilities": [{"name": "lakes", "confidence": 0.9}]}',
        "matcher": lambda body: Call("rate_agents", {"ratings": [{"agent": "ann", "match": 0.9}]}),
    }
    policy = DelegationPolicy(
        deriver=ModelDeriver(provider.chat("deriver")),
        matcher=ModelMatcher(provider.chat("matcher")),
    )
    below = [Agent(name, model=provider.chat(name)) for name in ("ann", "bob")]
    head = Agent(
        "head",
        model=provider.chat("head"),
        subordinates=below,
        delegation=policy,
        limits=limits,
        capabilities={"plans": 0.9},
    )
    session = Session(head, any_saver)

    result = world.send(session, "go")

    assert provider.count("ann") == 1
    assert (provider.count("deriver"), provider.count("matcher") > 0) == (2, True)
    check_usage(provider, any_saver, session, result.usage)


def run_graph(inner: BaseChatModel) -> str:
    """Return what a graph of LangGraph answers that asks a model."""

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [inner.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    compiled = cast("Any", graph.compile())
    return str(compiled.invoke({"messages": [("user", "think")]})["messages"][-1].text)


WAYS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda inner: inner.invoke("think").text,
    "stream": lambda inner: "".join(each.text for each in inner.stream("think")),
    "batch": lambda inner: len(inner.batch(["think", "think"])),
    "bound": lambda inner: inner.bind_tools([{"name": "x", "description": "X."}]).invoke("think"),
    "own callbacks": lambda inner: inner.invoke("think", {"callbacks": [], "metadata": {"a": 1}}),
    "chain": lambda inner: (inner | (lambda reply: reply.text)).invoke("think"),
    "structured": lambda inner: inner.with_structured_output(Lake).invoke("think"),
    "graph": run_graph,
}


def build_tool(kind: str, inner: BaseChatModel) -> Callable[..., Any]:
    """Return a tool that asks a model, in one of several ways."""

    def think() -> str:
        """Think."""
        return str(WAYS[kind](inner))

    async def athink() -> str:
        """Think."""
        if kind == "ainvoke":
            return str((await inner.ainvoke("think")).text)
        if kind == "abatch":
            return str(len(await inner.abatch(["think", "think"])))
        return "".join([str(each.text) async for each in inner.astream("think")])

    athink.__name__ = "think"
    return think if kind in WAYS else athink


ASYNC_WAYS = ("ainvoke", "astream", "abatch")


@pytest.mark.parametrize("kind", [*WAYS, *ASYNC_WAYS])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_model_in_a_tool_is_in_usage_of_its_agent(
    world: World, any_saver: Any, provider: Provider, kind: str, depth: int
) -> None:
    provider.says = {"leaf": [Call("think"), Call("think"), "Done."]}
    if kind == "structured":
        provider.says["inner"] = lambda body: '{"name": "Como"}'
    tool = build_tool(kind, provider.chat("inner"))
    tree = Agent("leaf", model=provider.chat("leaf"), tools=[tool])
    for name in ("mid", "head")[: depth - 1]:
        provider.says[name] = [delegate(tree.name, "go"), "End."]
        tree = Agent(name, model=provider.chat(name), subordinates=[tree])
    # Its clients' open connections would keep a loop that is not closed.
    with Session(tree, any_saver) as session:
        result = world.send(session, "go")

        assert result.status == "finished"
        assert provider.count("inner") == (4 if "batch" in kind else 2)
        check_usage(provider, any_saver, session, result.usage)
        [sums] = [
            sums for path, sums in session.usage().group("agent").items() if path.endswith("leaf")
        ]
        assert sums.model_calls == provider.count("leaf") + provider.count("inner")
        assert result.response is not None
        assert result.response.usage == result.usage


def test_a_limit_counts_a_model_in_a_tool(world: World, any_saver: Any, provider: Provider) -> None:
    provider.says = {"head": lambda body: Call("think")}
    tool = build_tool("invoke", provider.chat("inner"))
    for limits, reason in (
        (Limits(calls=5), "limit: 5 of 5 model calls"),
        (Limits(steps=7), "limit: 7 of 7 steps"),
        (Limits(tokens=(READ + WRITTEN) * 4), "limit: 40 of 40 tokens"),
    ):
        head = Agent("head", model=provider.chat("head"), tools=[tool], limits=limits)
        session = Session(head, any_saver, thread=reason)
        before = provider.count()

        result = world.send(session, "go")

        assert (result.status, result.reason) == ("limited", reason)
        assert provider.count() - before in (4, 5, 6)


def test_a_budget_is_charged_with_a_model_in_a_tool(
    world: World, any_saver: Any, provider: Provider
) -> None:
    provider.says = {"head": lambda body: Call("think")}
    tool = build_tool("invoke", provider.chat("inner"))
    session = Session(Agent("head", model=provider.chat("head"), tools=[tool]), any_saver)

    result = world.send(session, "go", budget=Budget(tokens=(READ + WRITTEN) * 4, calls=100))

    assert result.status == "limited"
    assert result.reason.startswith("budget: 40 of 40 tokens")
    check_usage(provider, any_saver, session, result.usage)
    spent = {each.unit: each.spent for each in session.usage().grants}
    assert spent == {"tokens": (READ + WRITTEN) * 4, "calls": 4}


def test_a_model_in_a_tool_that_fails_counts_for_limits_alone(
    world: World, any_saver: Any, provider: Provider
) -> None:
    provider.says = {
        "head": lambda body: Call("think"),
        "inner": lambda body: HttpError(500),
    }
    tool = build_tool("invoke", provider.chat("inner"))
    limits = Limits(calls=4)
    session = Session(
        Agent("head", model=provider.chat("head"), tools=[tool], limits=limits), any_saver
    )

    result = world.send(session, "go")

    assert (result.status, provider.count(), len(provider.refused)) == ("limited", 2, 2)
    assert session.usage().total.model_calls == result.usage.model_calls == 2


@pytest.mark.parametrize("shape", ["as_tool", "compile", "session", "function"])
def test_agents_of_a_tree_within_are_counted_once(
    world: World, any_saver: Any, provider: Provider, shape: str
) -> None:
    provider.says = {
        "head": [
            delegate("think", "go") if shape == "function" else Call("think", {"task": "go"}),
            "End.",
        ],
        "inner": [Call("look"), "Seen."],
    }
    eye = provider.chat("eye")

    def look() -> str:
        """Look."""
        return str(eye.invoke("look").text)

    inner = Agent("inner", "Looks.", model=provider.chat("inner"), tools=[look])
    within: list[int] = []

    def think(task: str) -> str:
        """Think.

        Args:
            task: About what.
        """
        if shape == "session":
            with Session(inner, ":memory:") as session:
                session.send("go").result()
                within.append(session.usage().total.model_calls)
            return "thought"
        compiled = cast("Any", inner.compile())
        return str(compiled.invoke({"messages": [("user", task)]})["messages"][-1].text)

    own = provider.chat("head")
    if shape == "function":
        head = Agent("head", model=own, subordinates=[think])
    else:
        tool = inner.as_tool(name="think") if shape == "as_tool" else think
        head = Agent("head", model=own, tools=[tool])
    session = Session(head, any_saver)

    result = world.send(session, "go")

    assert (provider.count("inner"), provider.count("eye"), provider.count("head")) == (2, 1, 2)
    calls = {path: sums.model_calls for path, sums in session.usage().group("agent").items()}
    if shape == "session":
        assert (calls, within) == ({"head": 2, "head/inner": 3}, [3])
        return
    above = "head/think" if shape == "function" else "head"
    assert (calls["head"], calls[f"{above}/inner"]) == (2, 3)
    check_usage(provider, any_saver, session, result.usage)


@pytest.mark.parametrize("kind", ["function", "async function", "chain", "model", "graph"])
def test_models_of_subordinates_that_are_no_agents_count_once(
    world: World, any_saver: Any, provider: Provider, kind: str
) -> None:
    provider.says = {"head": [delegate("below", "go"), delegate("below", "go on"), "End."]}
    inner = provider.chat("inner")
    below: Any

    def function(task: str) -> Any:
        return [inner.invoke(task), inner.invoke(task)][-1]

    async def afunction(task: str) -> Any:
        await inner.ainvoke(task)
        return await inner.ainvoke(task)

    if kind in ("function", "async function"):
        below = function if kind == "function" else afunction
        below.__name__ = "below"
    elif kind == "chain":
        below = (inner | (lambda reply: str(reply.text)) | inner).with_config(run_name="below")
        below.name = "below"
    elif kind == "model":
        below = inner.with_config(run_name="below")
        below.name = "below"
    else:

        def one(state: MessagesState) -> dict[str, Any]:
            return {"messages": [inner.invoke(state["messages"])]}

        def two(state: MessagesState) -> dict[str, Any]:
            return {"messages": [("user", inner.invoke("x").text)]}

        graph = StateGraph(MessagesState)
        graph.add_node("one", one)
        graph.add_node("two", two)
        graph.add_edge(START, "one")
        graph.add_edge("one", "two")
        below = graph.compile(name="below")
    head = Agent("head", model=provider.chat("head"), subordinates=[below], limits=Limits(calls=9))
    with Session(head, any_saver) as session:
        result = world.send(session, "go")

        assert provider.count("inner") == (2 if kind == "model" else 4)
        assert result.status == "finished"
        check_usage(provider, any_saver, session, result.usage)
        assert result.response is not None
        assert result.response.usage == result.usage


def build_thinker(*, dies: bool) -> Agent:
    """Return an agent with a tool that asks a model, and may die before it returns."""
    inner = ScriptedModel(lambda messages: Reply("deep", usage=(READ, WRITTEN)))

    @effect(idempotent=True)
    def think() -> str:
        """Think."""
        text = str(inner.invoke("think").text)
        if dies:
            die()
        return text

    def say(messages: Any) -> Reply:
        calls = [] if messages[-1].type == "tool" else [Call("think")]
        return Reply("", calls, usage=(READ, WRITTEN)) if calls else Reply("End.", usage=(READ, 3))

    return Agent("head", model=ScriptedModel(say), tools=[think])


def test_a_call_in_a_tool_is_kept_when_its_process_dies(tmp_path: Path) -> None:
    path = tmp_path / "thinker.sqlite"

    def run() -> None:
        Session(build_thinker(dies=True), path, thread="t").send("go").result()

    assert fork(run).wait() < 0
    with Session(build_thinker(dies=False), path, thread="t") as session:
        result = session.resume().result()

        assert (result.status, result.usage.model_calls) == ("finished", 2)
        # Both calls of the tool were made, and both of the agent.
        assert session.usage().total.model_calls == 4


def test_what_a_thread_of_a_tool_s_own_asks_is_not_seen(
    saver: SqliteCheckpointer, provider: Provider
) -> None:
    provider.says = {"head": [Call("think"), "End."]}
    inner = provider.chat("inner")

    def think() -> str:
        """Think."""
        thread = Thread(target=inner.invoke, args=("think",))
        thread.start()
        thread.join()
        return "thought"

    session = Session(Agent("head", model=provider.chat("head"), tools=[think]), saver)

    assert session.send("go").result().usage.model_calls == 2
    assert provider.count() == 3


def build_silent_server(provider: Provider, *, refuses: bool) -> list[bool]:
    """Let a server report usage in no stream, or only if asked; return which calls have asked."""
    asked = list[bool]()

    def say(body: Any) -> Any:
        asked.append("stream_options" in body)
        if refuses and asked[-1]:
            return HttpError(400, message="Unrecognized request argument: stream_options")
        return "Said."

    provider.says = {"head": say}
    return asked


class Twice(AgentMiddleware[Any, Any]):
    """Asks a model twice, and keeps one reply as it is, changed, or as a message of its own."""

    def __init__(self, keeps: str) -> None:
        self._keeps = keeps

    def _choose(self, one: Any, two: Any) -> Any:
        [reply] = two.result
        match self._keeps:
            case "first":
                return one
            case "changed":
                return reply.model_copy(update={"content": "Changed."})
            case "own":
                return AIMessage("Own.", usage_metadata=reply.usage_metadata)
        return two

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return self._choose(handler(request), handler(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return self._choose(await handler(request), await handler(request))


@pytest.mark.parametrize("keeps", ["first", "second", "changed", "own"])
@pytest.mark.parametrize("budget", [None, Budget(tokens=10_000)])
def test_replies_that_a_middleware_drops_are_in_usage(
    world: World, any_saver: Any, provider: Provider, keeps: str, budget: Budget | None
) -> None:
    head = Agent("head", model=provider.chat("head"), middleware=[Twice(keeps)])
    session = Session(head, any_saver)

    result = world.send(session, "go", budget=budget)

    assert provider.count() == 2
    check_usage(provider, any_saver, session, result.usage)


def test_a_reply_before_a_limit_is_in_usage(
    world: World, any_saver: Any, provider: Provider
) -> None:
    head = Agent(
        "head", model=provider.chat("head"), middleware=[Twice("first")], limits=Limits(calls=1)
    )
    session = Session(head, any_saver)

    result = world.send(session, "go")

    assert (result.status, provider.count()) == ("limited", 1)
    check_usage(provider, any_saver, session, result.usage)


def test_usage_in_a_stream_is_asked_for_by_the_call(
    world: World, any_saver: Any, provider: Provider
) -> None:
    asked = build_silent_server(provider, refuses=False)
    model = provider.chat("head", stream_usage=None)
    before = model.model_dump()
    session = Session(Agent("head", model=model), any_saver)

    result = world.send(session, "go")

    assert asked == [True]
    assert model.model_dump() == before
    check_usage(provider, any_saver, session, result.usage)


@pytest.mark.parametrize("options", [{"stream_usage": False}, {"disable_streaming": True}])
def test_usage_is_not_asked_for_where_that_was_decided_or_nothing_is_streamed(
    world: World, any_saver: Any, provider: Provider, options: dict[str, Any]
) -> None:
    asked = build_silent_server(provider, refuses=False)
    model = provider.chat("head", **{"stream_usage": None, **options})

    world.send(Session(Agent("head", model=model), any_saver), "go")

    assert asked == [False]


def test_a_server_that_refuses_to_report_usage_is_not_asked_again(
    world: World, any_saver: Any, provider: Provider
) -> None:
    asked = build_silent_server(provider, refuses=True)
    model = provider.chat("head", stream_usage=None)

    for thread in ("one", "two"):
        session = Session(Agent("head", model=model), any_saver, thread=thread)
        result = world.send(session, "go")
        assert (result.text, result.usage.unknown_calls) == ("Said.", 1)

    assert asked == [True, False, False]


def test_a_limit_of_tokens_counts_an_estimate_where_nothing_is_reported(
    world: World, any_saver: Any, provider: Provider
) -> None:
    texts = ["x" * 400]

    def look() -> str:
        """Look."""
        return texts[0]

    provider.says = {"head": lambda body: Call("look")}
    model = provider.chat("head", stream_usage=False)
    head = Agent("head", model=model, tools=[look], limits=Limits(tokens=1000))
    session = Session(head, any_saver)

    result = world.send(session, "go")

    assert result.status == "limited"
    assert result.reason.startswith("limit: 1")
    assert 2 <= provider.count() < 8
    rows = session.usage().total
    assert rows.estimated_calls == rows.model_calls == provider.count()
    assert 1000 <= rows.charged_tokens < 2500
    assert result.usage.unknown_calls == provider.count()


class Case(NamedTuple):
    """A tree, how many calls of each model must be answered, and refused, and what it is sent."""

    agent: Agent
    counts: Mapping[str, int]
    refusals: int = 0
    tasks: Sequence[str] = ("go",)


def build_summaries(provider: Provider) -> Case:
    memory = Memory(budget=600, recent=1, summarizer="model")
    tasks = [f"turn {turn} {'about something long ' * 20}" for turn in range(8)]
    agent = Agent("head", model=provider.chat("head"), memory=memory)
    return Case(agent, {}, tasks=tasks)


def build_verification(provider: Provider) -> Case:
    provider.says = {"head": [delegate("leaf", "go"), "End."], "judge": ["Too short.", "OK"]}
    leaf = Agent("leaf", model=provider.chat("leaf"))
    checks = [VerificationMiddleware(provider.chat("judge"))]
    head = Agent("head", model=provider.chat("head"), subordinates=[leaf], middleware=checks)
    return Case(head, {"head": 2, "leaf": 2, "judge": 2})


def build_rejections(provider: Provider) -> Case:
    right = '{"name": "Como"}'
    provider.says = {"head": ["no", delegate("leaf", "go"), right], "leaf": ["none", right]}
    contract = Contract(output=Lake)
    leaf = Agent("leaf", model=provider.chat("leaf"), contract=contract)
    head = Agent("head", model=provider.chat("head"), subordinates=[leaf], contract=contract)
    return Case(head, {"head": 3, "leaf": 2})


def build_thinking(kind: str) -> Callable[[Provider], Case]:
    def build(provider: Provider) -> Case:
        provider.says = {"head": [Call("think"), "End."]}
        tool = build_tool(kind, provider.chat("inner"))
        return Case(Agent("head", model=provider.chat("head"), tools=[tool]), {"inner": 1})

    return build


def build_plan(provider: Provider) -> Case:
    provider.says = {"head": ["First I look.", "Done."]}
    return Case(
        Agent("head", model=provider.chat("head"), middleware=[PlanMiddleware()]), {"head": 2}
    )


def build_routing(provider: Provider) -> Case:
    rates = Call("rate_agents", {"ratings": [{"agent": "ann", "match": 0.9}]})
    provider.says = {
        "head": [Call("call_subordinate", {"message": "Find a lake"}), "End."],
        "deriver": lambda body: '{"capabilities": [{"name": "lakes", "confidence": 0.9}]}',
        "matcher": lambda body: rates,
    }
    policy = DelegationPolicy(
        deriver=ModelDeriver(provider.chat("deriver")),
        matcher=ModelMatcher(provider.chat("matcher")),
    )
    below = [Agent(name, model=provider.chat(name)) for name in ("ann", "bob")]
    plans: Any = {"plans": 0.9}
    head = Agent(
        "head",
        model=provider.chat("head"),
        subordinates=below,
        delegation=policy,
        capabilities=plans,
    )
    return Case(head, {"head": 2, "deriver": 2, "ann": 1, "bob": 0})


def build_fallback(provider: Provider) -> Case:
    rates = Call("rate_agents", {"ratings": [{"agent": n, "match": m} for n, m in RATED.items()]})
    unable = Call("report", {"status": "unable", "result": "I cannot."})
    provider.says = {
        "head": [Call("call_subordinate", {"message": "Find a lake"}), "End."],
        "matcher": lambda body: rates,
        "ann": [unable],
    }
    below = [
        Agent(name, f"Finds lakes, {name}.", model=provider.chat(name), capabilities={"lakes": 0.9})
        for name in RATED
    ]
    policy = DelegationPolicy(matcher=ModelMatcher(provider.chat("matcher")))
    head = Agent("head", model=provider.chat("head"), subordinates=below, delegation=policy)
    return Case(head, {"head": 2, "ann": 1, "bob": 1})


RATED = {"ann": 0.9, "bob": 0.8}


def build_half_answer(provider: Provider) -> Case:
    cut = Reply("Half of", usage=(READ, WRITTEN), finish_reason="length")
    provider.says = {"head": [cut, "it."]}
    return Case(Agent("head", model=provider.chat("head")), {"head": 2})


def build_overflow(provider: Provider) -> Case:
    def say(body: Any) -> Any:
        if len(str(body["messages"])) > 9000:
            return HttpError(400, message="context_length_exceeded")
        return Call("look") if body["messages"][-1]["role"] == "user" else "Seen."

    def look() -> str:
        """Look."""
        return "far " * 5000

    provider.says = {"head": say}
    return Case(Agent("head", model=provider.chat("head"), tools=[look]), {"head": 2}, refusals=2)


def build_watch(provider: Provider) -> Case:
    seen = Event()

    def watch(body: Any) -> str:
        seen.set()
        return "Nothing."

    def look() -> str:
        """Look."""
        return "seen"

    def end(body: Any) -> Any:
        if body["messages"][-1]["role"] == "user":
            return Call("look")
        assert seen.wait(60)
        return "Done."

    provider.says = {"head": end, "watch": watch}
    budget = Budget(calls=1)
    model = provider.chat("watch")
    monitor = Monitor("watch", watches="head", model=model, every_events=2, budget=budget)
    head = Agent("head", model=provider.chat("head"), tools=[look], monitors=[monitor])
    return Case(head, {"watch": 1})


CASES: dict[str, Callable[[Provider], Case]] = {
    "summaries": build_summaries,
    "verification": build_verification,
    "rejected replies": build_rejections,
    "model in a tool": build_thinking("invoke"),
    "stream in a tool": build_thinking("stream"),
    "asynchronous tool": build_thinking("ainvoke"),
    "asynchronous stream": build_thinking("astream"),
    "plan": build_plan,
    "derivation and matching": build_routing,
    "candidates": build_fallback,
    "half an answer": build_half_answer,
    "refused for length": build_overflow,
    "monitor": build_watch,
}


@pytest.mark.parametrize("kind", CASES)
def test_calls_rows_and_charges_are_the_same(
    world: World, any_saver: Any, provider: Provider, kind: str
) -> None:
    agent, counts, refusals, tasks = CASES[kind](provider)
    with Session(agent, any_saver) as session:
        told = Usage()
        for task in tasks:
            budget = Budget(tokens=100_000, calls=100)
            result = world.send(session, task, budget=budget)
            assert result.status == "finished", result.reason
            told += result.usage

        assert {name: provider.count(name) for name in counts} == counts
        assert (len(provider.refused), provider.count() > 1) == (refusals, True)
        check_usage(provider, any_saver, session, told)
        rows = session.usage()
        assert {each.state for each in rows.calls if each.kind == "model"} == {"charged"}
        roots = [each for each in rows.grants if each.path == agent.name]
        spent = {
            unit: sum(each.spent for each in roots if each.unit == unit)
            for unit in ("tokens", "calls")
        }
        calls = provider.count()
        assert spent == {"tokens": (READ + WRITTEN) * calls, "calls": calls}


def test_each_part_of_a_reply_that_paused_is_in_usage_and_charged(
    world: World, any_saver: Any
) -> None:
    searches = [
        {"type": "server_tool_use", "id": f"srvtoolu_{n}", "name": "web_search", "input": {}}
        for n in range(2)
    ]
    pauses = [Blocks([each], "pause_turn", usage=(READ, WRITTEN)) for each in searches]
    steps = [*pauses, Reply("It is 42.", usage=(READ, WRITTEN))]
    with AnthropicServer(steps) as server:
        options: Any = {"base_url": server.url, "api_key": "k", "max_retries": 0}
        model = ChatAnthropic(model_name="claude-test", **options)
        search: Any = {"type": "web_search_20250305", "name": "web_search"}
        head = Agent("head", model=model, tools=[search])
        with Session(head, any_saver) as session:
            result = world.send(session, "go", budget=Budget(tokens=1000, calls=10))

            rows = session.usage()
        assert (result.text, len(server.requests)) == ("It is 42.", 3)
    assert (rows.total.model_calls, rows.total.input_tokens) == (3, READ * 3)
    assert (result.usage.model_calls, result.usage.input_tokens) == (3, READ * 3)
    spent = {each.unit: each.spent for each in rows.grants}
    assert spent == {"tokens": (READ + WRITTEN) * 3, "calls": 3}
