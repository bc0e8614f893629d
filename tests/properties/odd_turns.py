"""Turns of real trees with odd replies and results: the clients, the strict servers, the trials."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Self

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.types import Command
from pydantic import SecretStr

from echelons import Agent, Session, SqliteCheckpointer, ThreadStore
from echelons.identity.lineage import is_from_model
from echelons.plans import Plan, PlanStep, arun_plan_steps, run_plan_steps
from echelons.testing import AnthropicServer, OpenAIServer, ScriptedModel, delegate
from tests.properties.odd_replies import HALF, MAKERS, SentCall, SentReply, make_result, roll

KEY = SecretStr("k")
FINE = "fine"
"""What the model says at the end of an ordinary turn, with the number of the turn."""
MOST_QUESTIONS = 5
PER_DATABASE = 100
"""Trials that share a database, each with a thread of its own."""


@dataclass(frozen=True)
class Trial:
    """What one thread goes through: its kind, and what its model and its tools give it.

    Attributes:
        seed: All of it is drawn with this.
        api: The protocol of the model: `chat`, `responses`, `anthropic` or `any`.
        level: 1 if the odd agent is the root, or 3.
        is_graph: Whether it is the compiled graph, without a session.
        streams: Whether the client streams.
        has_tools: Whether the odd agent has tools; its model calls some in any case.
        turns: The replies of each odd turn, until it has ended.
        results: What the tools give.
    """

    seed: int
    api: str
    level: int
    is_graph: bool
    streams: bool
    has_tools: bool
    turns: Sequence[Sequence[SentReply]] = field(repr=False)
    results: Sequence[Any] = field(repr=False)

    @classmethod
    def draw(cls, seed: int) -> Self:
        """Return the trial of a seed."""
        dice = random.Random(seed)
        api = dice.choice([*MAKERS])
        level, is_graph, streams = dice.choice([1, 3]), roll(dice, 0.5), roll(dice, 0.5)
        has_tools = roll(dice, 0.85)
        turns = [
            [MAKERS[api](dice) for _ in range(dice.choice([1, 1, 2, 3]))]
            for _ in range(dice.choice([1, 1, 2]))
        ]
        results = [make_result(dice) for _ in range(9)]
        return cls(seed, api, level, is_graph, streams, has_tools, turns, results)


class World:
    """The running servers, with an agent for each kind of trial, one trial at a time.

    Attributes:
        sent: The replies of the present trial that were sent, in order.
        played: The number of trials so far.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self.openai = OpenAIServer(self.answer)
        self.anthropic = AnthropicServer(self.answer)
        self.sent: list[SentReply] = []
        self._odd: list[SentReply] = []
        self._results: list[Any] = []
        self._turn = 0
        self._database: SqliteCheckpointer | None = None
        self.played = 0

    def __enter__(self) -> Self:
        self._open.enter_context(self.openai)
        self._open.enter_context(self.anthropic)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._database:
            self._database.close()
        self._open.close()

    def answer(self, request: object) -> Any:
        """Return the next step of the trial's model."""
        if self._odd:
            self.sent.append(self._odd.pop(0))
            return self.sent[-1].step
        self.sent.append(SentReply(None, f"{FINE} {self._turn}"))
        return self.sent[-1].text

    def run_tool(self) -> Any:
        """Return the next result of the trial's tools, or raise it."""
        result = self._results.pop(0) if self._results else "seen"
        if isinstance(result, BaseException):
            raise result.with_traceback(None)
        return result

    @cache  # noqa: B019  a world ends with its test
    def make_agent(self, api: str, level: int, streams: bool, has_tools: bool) -> Agent:
        """Return the tree of a kind of trial."""
        model = self._connect(api, streams)
        agent = Agent("leaf", model=model, tools=self._make_tools() if has_tools else ())
        if level == 1:
            return agent
        lead = ScriptedModel(_lead)
        mid = Agent("mid", model=lead, subordinates=[agent])
        return Agent("head", model=lead, subordinates=[mid])

    def _connect(self, api: str, streams: bool) -> Any:
        more: Any = {"api_key": KEY, "max_retries": 0, "streaming": streams}
        if api == "any":
            return ScriptedModel(self.answer)
        if api == "anthropic":
            made: Any = ChatAnthropic
            return made(model="claude-test", base_url=self.anthropic.url, **more)
        more["use_responses_api"] = api == "responses"
        return ChatOpenAI(model="gpt-test", base_url=self.openai.url, **more)

    def _make_tools(self) -> list[Any]:
        def look(what: str = "x") -> Any:
            """Look."""
            return self.run_tool()

        def save(data: dict[str, Any]) -> Any:
            """Save."""
            return self.run_tool()

        def boom() -> Any:
            """As the tools of an MCP server: content, and an artifact."""
            return self.run_tool(), {"structured": HALF}

        more: Any = {"response_format": "content_and_artifact"}
        return [look, save, StructuredTool.from_function(boom, **more)]

    def open_database(self) -> SqliteCheckpointer:
        """Return the database of the present trial."""
        if self._database is None or self.played % PER_DATABASE == 0:
            if self._database:
                self._database.close()
            self._database = SqliteCheckpointer(":memory:")
        return self._database

    def begin(self, trial: Trial) -> None:
        """Prepare for a trial."""
        self.sent, self._odd, self._results = [], [], [*trial.results]
        self._turn = 0
        self.openai.refused.clear()
        self.anthropic.refused.clear()
        self.played += 1

    def begin_turn(self, odd: Sequence[SentReply]) -> str:
        """Prepare for a turn, and return its task."""
        self._turn += 1
        self._odd = [*odd]
        return f"task {self._turn}"

    @property
    def faults(self) -> list[str]:
        """What the servers have refused, and their own errors."""
        servers = (self.openai, self.anthropic)
        return [str(each) for server in servers for each in (*server.refused, *server.errors)]

    @property
    def end(self) -> str:
        """The last word of the present turn."""
        return f"{FINE} {self._turn}"


def _lead(said: Sequence[BaseMessage]) -> Any:
    if isinstance(said[-1], HumanMessage):
        return delegate(None, said[-1].text)
    return f"heard {said[-1].text}"


def play(world: World, trial: Trial) -> list[str]:
    """Play a trial, and return what is wrong."""
    return run_plan_steps(_play(world, trial))


async def aplay(world: World, trial: Trial) -> list[str]:
    """Play a trial in the event loop, and return what is wrong."""
    return await arun_plan_steps(_play(world, trial))


def _play(world: World, trial: Trial) -> Plan[list[str]]:
    world.begin(trial)
    agent = world.make_agent(trial.api, trial.level, trial.streams, trial.has_tools)
    database, thread = world.open_database(), f"trial-{trial.seed}-{world.played}"
    driver: Any = GraphTurns if trial.is_graph else SessionTurns
    turns = driver(agent, database, thread)
    faults: list[str] = []
    try:
        for odd in trial.turns:
            task, before = world.begin_turn(odd), len(world.sent)
            yield from turns.take(task)
            if world.sent[before : before + 1] != [odd[0]]:
                faults.append("the odd reply was not sent")
        text, status = yield from turns.take(world.begin_turn(()))
        if world.end not in text or status != "fulfilled":
            faults.append(f"the next turn is {status}: {text[:300]!r}")
    except Exception as error:
        faults.append(f"{type(error).__name__}: {error}")
    yield from turns.close()
    faults += world.faults
    return faults or find_changes(world.sent, read_replies(database, turns.thread_id))


class SessionTurns:
    """The turns of a session."""

    def __init__(self, agent: Agent, database: SqliteCheckpointer, thread: str) -> None:
        self._session = Session(agent, database, thread=thread)
        self.thread_id = self._session.thread_id

    def take(self, task: str) -> Plan[tuple[str, str]]:
        """Take a turn, answer its questions, and return its text and status."""
        session = self._session

        async def asend() -> Any:
            async with await session.asend(task) as run:
                return await run.result()

        async def aanswer(question: str) -> Any:
            async with await session.aanswer(question, "yes") as run:
                return await run.result()

        def answer(question: str) -> Any:
            return session.answer(question, "yes").result()

        result = yield PlanStep(lambda: session.send(task).result(), asend)
        for _ in range(MOST_QUESTIONS):
            asked = session.inbox()
            if not asked:
                break
            result = yield PlanStep(partial(answer, asked[0].id), partial(aanswer, asked[0].id))
        return result.text, str(result.response and result.response.status)

    def close(self) -> Plan[None]:
        """Close the session."""
        yield PlanStep(self._session.close, self._session.aclose)


class GraphTurns:
    """The turns of a compiled graph."""

    def __init__(self, agent: Agent, database: SqliteCheckpointer, thread: str) -> None:
        self._graph = agent.compile(database)
        self.thread_id = thread
        self._config: Any = {"configurable": {"thread_id": thread}}

    def take(self, task: str) -> Plan[tuple[str, str]]:
        """Take a turn, answer its questions, and return its text and status."""
        graph, config = self._graph, self._config
        value: Any = {"messages": [HumanMessage(task)]}
        state: dict[str, Any] = {}
        for _ in range(1 + MOST_QUESTIONS):
            state = yield PlanStep(
                partial(graph.invoke, value, config), partial(graph.ainvoke, value, config)
            )
            if not (asked := state.get("__interrupt__")):
                break
            value = Command(resume={each.id: "yes" for each in asked})
        return state["messages"][-1].text, "fulfilled"

    def close(self) -> Plan[None]:
        """There is nothing to close."""
        yield from ()


def read_replies(database: SqliteCheckpointer, root: str) -> list[AIMessage]:
    """Return the stored replies of the odd agent."""
    store = ThreadStore(database)
    messages: list[BaseMessage] = []
    for each in store.trace(root).walk():
        if each.agent == "leaf":
            messages += store.get(each.thread_id, root).messages
    return [
        each
        for each in messages
        if isinstance(each, AIMessage) and is_from_model(each.response_metadata)
    ]


def find_changes(sent: Sequence[SentReply], stored: Sequence[AIMessage]) -> list[str]:
    """Return what is stored otherwise than it was received, but for what docs/models.md names."""
    if len(sent) != len(stored):
        return [f"{len(sent)} replies were sent, and {len(stored)} are stored"]
    return [
        f"{fault}: sent {one}, stored {other!r}"
        for one, other in zip(sent, stored, strict=True)
        if (fault := _find_change(one, other))
    ]


def _find_change(sent: SentReply, stored: AIMessage) -> str:
    if stored.text != whole(sent.text):
        return "the text"
    if sent.refusal not in ("", stored.additional_kwargs.get("refusal")):
        return "the refusal"
    calls: list[Any] = [*stored.tool_calls, *stored.invalid_tool_calls]
    if len(calls) != len(sent.calls):
        return "the number of calls"
    ids = [each["id"] for each in calls]
    if not all(ids) or len({*ids}) < len(ids):
        return "the ids are not unique"
    if not has_text_keys(calls):
        return "a key is no text"
    for call in sent.calls:
        # Of calls that share their id, one keeps it.
        is_kept = not call.id or whole(call.id) in ids
        if not is_kept or not any(_is_same(call, each) for each in calls):
            return f"the call {call}"
    return ""


def _is_same(sent: SentCall, stored: Mapping[str, Any]) -> bool:
    if (stored["name"] or "") != whole(sent.name):
        return False
    kept, args = stored["args"], read_json(sent.args)
    if args is UNREADABLE:
        # The clients read nothing as no arguments, and complete what a stream breaks off.
        return isinstance(kept, dict) or kept == whole(sent.args)
    if isinstance(args, str) and isinstance(kept, dict):
        # An object that was written into a text once more.
        args = read_json(args)
    if isinstance(kept, str):
        kept = kept if kept == whole(sent.args) else read_json(kept)
        return kept == whole(sent.args) or normal(args) == normal(kept)
    return normal(args or {}) == normal(kept)


UNREADABLE = object()


def read_json(text: str) -> Any:
    """Return the value that a text is as JSON, or `UNREADABLE`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return UNREADABLE


def has_text_keys(value: Any) -> bool:
    """Return whether all keys in a value are texts."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and has_text_keys(each) for key, each in value.items())
    return not isinstance(value, list) or all(map(has_text_keys, value))


def normal(value: Any) -> str:
    """Return a value as it is stored, as text."""
    large = str(2**70)
    plain = json.loads(json.dumps(value, default=id))
    text = json.dumps(plain, ensure_ascii=False, sort_keys=True)
    return whole(text).replace(f'"{large}"', large)


def whole(value: str) -> str:
    """Return a text as it is stored: a half of a character is replaced."""
    return value.replace(HALF, "\ufffd")
