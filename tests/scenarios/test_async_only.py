"""Tools, functions, Runnables and graphs that are only async, in synchronous and other runs."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from echelons import Agent, DelegationPolicy, Session, SqliteCheckpointer
from echelons.errors import EventLoopMissing
from echelons.testing import Call, FakeClock, ScriptedModel, delegate
from tests.failure_ids import without_ids

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

FIND = Call("call_subordinate", {"message": "cook dinner"})
READER: ContextVar[str] = ContextVar("READER", default="nobody")


class Echo(StreamRequestHandler):
    """Answers each line in capitals, as long as the connection is open."""

    def handle(self) -> None:
        for line in self.rfile:
            self.wfile.write(line.upper())


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """A server on loopback whose connections stay open."""
    ThreadingTCPServer.daemon_threads = True
    with ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address  # type: ignore[misc]
        server.shutdown()


class Client:
    """A client with one connection, which belongs to the event loop that has opened it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.loops: list[asyncio.AbstractEventLoop] = []
        self._address = address
        self._streams: Any = None
        # A level runs its tools and subordinates at once, and a connection takes one at a time.
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, text: str) -> str:
        self.loops.append(asyncio.get_running_loop())
        async with self._one_at_a_time:
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._address)
            reader, writer = self._streams
            writer.write(f"{text}\n".encode())
            return str((await reader.readline()).decode().strip())

    async def close(self) -> str:
        self._streams[1].close()
        await self._streams[1].wait_closed()
        return "closed"


def loop_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "echelons-loop"]


def answers_of(session: Session, agent: str = "head") -> list[str]:
    """Return what an agent has heard of its tools and subordinates."""
    thread = next(each for each in session.trace().walk() if each.agent == agent)
    messages = session.thread_store.get(thread.thread_id).messages
    return [str(each.text) for each in messages if isinstance(each, ToolMessage)]


def three_levels(client: Client) -> tuple[Agent, ScriptedModel]:
    """Return a tree with an async tool at the head and the leaf, a function and a Runnable."""

    async def ask(text: str) -> str:
        """Ask the server."""
        return await client.ask(text)

    async def shout(task: str) -> str:
        """Shouts."""
        return await client.ask(task)

    async def close() -> str:
        """Close the connection."""
        return await client.close()

    def plan(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type == "tool":
            return "done"
        if messages[-1].text == "close":
            return Call("close")
        return [Call("ask", {"text": "a"}), delegate("middle", "go")]

    call = RunnableLambda(client.ask, name="call")
    model = ScriptedModel(
        {
            "head": plan,
            "middle": [[delegate("leaf", "go"), delegate("call", "c")], "Middle is done."],
            "leaf": [[Call("ask", {"text": "b"}), delegate("shout", "d")], "Leaf is done."],
        }
    )
    leaf = Agent("leaf", tools=[ask], subordinates=[shout])
    middle = Agent("middle", subordinates=[leaf, call])
    return Agent("head", model=model, tools=[ask, close], subordinates=[middle]), model


def test_in_a_synchronous_session_they_run_in_one_loop_of_its_own(
    saver: SqliteCheckpointer, address: tuple[str, int]
) -> None:
    client = Client(address)
    head, _ = three_levels(client)
    with Session(head, saver) as session:
        assert loop_threads() == [], "it starts at the first use"
        assert session.send("go").result().text == "done"
        assert set(answers_of(session)) == {"A", "Middle is done."}
        assert set(answers_of(session, "middle")) == {"Leaf is done.", "C"}
        assert set(answers_of(session, "leaf")) == {"B", "D"}
        assert loop_threads() == ["echelons-loop"]
        session.send("again").result()
        session.send("close").result()
        assert sorted(answers_of(session)[2:]) == ["A", "Middle is done.", "closed"]
        assert all(link.holds for link in session.thread_store.verify(session.thread_id))
    assert len(client.loops) == 8
    assert len(set(client.loops)) == 1
    assert client.loops[0].is_closed()
    assert loop_threads() == []


async def test_in_an_event_loop_they_run_there(
    saver: SqliteCheckpointer, address: tuple[str, int]
) -> None:
    client = Client(address)
    head, _ = three_levels(client)
    async with Session(head, saver) as session:
        assert (await (await session.asend("go")).result()).text == "done"
        await client.close()
    assert set(client.loops) == {asyncio.get_running_loop()}


def test_a_compiled_tree_is_refused_by_name_before_anything_is_spent(
    saver: SqliteCheckpointer, address: tuple[str, int]
) -> None:
    head, model = three_levels(Client(address))
    graph = head.compile(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    given: Any = {"messages": [("user", "go")]}

    for run in (graph.invoke, lambda *args: list(graph.stream(*args))):
        with pytest.raises(EventLoopMissing) as caught:
            run(given, config)

    assert caught.value.parts == (
        "the tool 'ask' of head",
        "the tool 'close' of head",
        "the tool 'ask' of head/middle/leaf",
        "head/middle/leaf/shout",
        "head/middle/call",
    )
    assert "ainvoke" in str(caught.value)
    assert "Session" in str(caught.value)
    assert model.calls == []
    assert saver.get_tuple(config) is None


async def test_a_compiled_tree_runs_with_ainvoke(address: tuple[str, int]) -> None:
    client = Client(address)
    head, _ = three_levels(client)

    result = await head.compile().ainvoke({"messages": [("user", "go")]})
    await client.close()

    assert result["messages"][-1].text == "done"


def test_a_question_of_such_a_tool_is_answered(world: World, saver: SqliteCheckpointer) -> None:
    async def book() -> str:
        """Book a room."""
        await asyncio.sleep(0)
        return f"booked {interrupt('Which room?')}"

    model = ScriptedModel(
        {
            "head": [delegate("middle", "go"), "done"],
            "middle": [delegate("leaf", "go"), "Middle is done."],
            "leaf": [Call("book"), "Leaf is done."],
        }
    )
    middle = Agent("middle", subordinates=[Agent("leaf", tools=[book])])
    session = Session(Agent("head", model=model, subordinates=[middle]), saver)

    [question] = world.send(session, "go").questions
    assert question.path == "head/middle/leaf"
    assert world.answer(session, {question.id: "seven"}).text == "done"

    assert answers_of(session, "leaf") == ["booked seven"]
    session.close()


def test_such_a_tool_reads_context_variables_and_its_error_is_its_answer(
    saver: SqliteCheckpointer,
) -> None:
    async def read() -> str:
        """Read."""
        await asyncio.sleep(0)
        return READER.get()

    async def fail() -> str:
        """Fail."""
        await asyncio.sleep(0)
        raise TimeoutError("no line")

    token = READER.set("Ann")
    try:
        model = ScriptedModel([[Call("read"), Call("fail")], "done"])
        with Session(Agent("head", model=model, tools=[read, fail]), saver) as session:
            session.send("go").result()
            name, error = sorted(answers_of(session))
            assert (name, without_ids(error)) == ("Ann", "Error: TimeoutError: no line")
    finally:
        READER.reset(token)


def never_in_time(clock: FakeClock, monkeypatch: pytest.MonkeyPatch, ended: list[str]) -> Any:
    """Return an async function that takes longer than its agent has."""

    async def wait(task: str = "") -> str:
        """Wait for ever."""
        loop = asyncio.get_running_loop()
        with monkeypatch.context() as patch:
            # The timer has been set by the real time of the loop.
            begun = loop.time() - clock.now()
            patch.setattr(loop, "time", lambda: begun + clock.now())
            clock.advance(2)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")
        return "never"

    return wait


@pytest.mark.parametrize("kind", ["tool", "function", "runnable", "graph"])
def test_what_is_late_is_cancelled_and_the_next_best_is_asked(
    saver: SqliteCheckpointer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ended: list[str] = []
    wait = never_in_time(clock, monkeypatch, ended)

    async def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", await wait())]}

    async def slow(task: str) -> str:
        """Cooks dinner."""
        return str(await wait())

    slow_agents: dict[str, Callable[[], Any]] = {
        "tool": lambda: Agent("slow", tools=[wait]),
        "function": lambda: slow,
        "runnable": lambda: RunnableLambda(slow, name="slow"),
        "graph": lambda: build_graph(node, "slow"),
    }
    model = ScriptedModel(
        {
            "head": [delegate("slow", "cook dinner"), delegate("quick", "cook dinner"), "done"],
            "slow": [Call("wait"), "never said"],
            "quick": ["pasta"],
        }
    )
    below = [slow_agents[kind](), Agent("quick")]
    rules = DelegationPolicy(timeout=2)
    with Session(
        Agent("head", model=model, subordinates=below, delegation=rules), saver
    ) as session:
        session.send("go").result()
        late, quick = sorted(answers_of(session))

    assert late == "[unable] timeout: 'slow' has not answered within 2 s"
    assert (quick, ended) == ("pasta", ["cancelled"])


def build_graph(node: Any, name: str) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile(name=name)


def test_a_graph_with_async_nodes_answers(world: World, saver: SqliteCheckpointer) -> None:
    async def node(state: MessagesState) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"messages": [("ai", state["messages"][-1].text.upper())]}

    graph = build_graph(node, "shouter")
    model = ScriptedModel([delegate("shouter", "hello"), "done"])
    head = Agent("head", model=model, subordinates=[graph])

    with Session(head, saver) as session:
        world.send(session, "go")
        assert answers_of(session) == ["HELLO"]
    with pytest.raises(EventLoopMissing, match="head/shouter"):
        head.compile().invoke({"messages": [("user", "go")]})


@pytest.mark.parametrize("kind", ["tool", "function"])
def test_a_stop_cancels_it(saver: SqliteCheckpointer, kind: str) -> None:
    ended: list[str] = []

    async def wait(task: str = "") -> str:
        """Wait for ever."""
        threading.Thread(target=session.stop, args=("head/slow",)).start()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return "never"

    async def slow(task: str) -> str:
        """Cooks dinner."""
        return await wait()

    below = Agent("slow", tools=[wait]) if kind == "tool" else slow
    model = ScriptedModel({"head": [delegate("slow", "go"), "done"], "slow": [Call("wait"), "?"]})
    session = Session(Agent("head", model=model, subordinates=[below]), saver)

    assert session.send("go").result().text == "done"

    assert answers_of(session) == ["[unable] stopped: head/slow was told to stop"]
    assert ended == ["cancelled"]
    session.close()


def test_a_tree_within_such_a_tool_does_not_wait_for_its_own_loop(
    saver: SqliteCheckpointer,
) -> None:
    async def look() -> str:
        """Look around."""
        return "looked"

    inner = Agent("inner", model=ScriptedModel([Call("look"), "seen"]), tools=[look]).compile()

    async def ask_inner() -> str:
        """Ask another tree, and block the loop."""
        return str(inner.invoke({"messages": [("user", "go")]})["messages"][-1].text)

    model = ScriptedModel([Call("ask_inner"), "done"])
    with Session(Agent("head", model=model, tools=[ask_inner]), saver) as session:
        session.send("go").result()
        [answer] = answers_of(session)

    assert answer.startswith("Error: EventLoopMissing")
    assert "the tool 'look' of inner" in answer


def test_a_session_that_is_dropped_ends_its_loop() -> None:
    async def look() -> str:
        """Look around."""
        return "looked"

    saver = SqliteCheckpointer(":memory:")
    session = Session(Agent("head", model=ScriptedModel([Call("look"), "x"]), tools=[look]), saver)
    session.send("go").result()
    [thread] = [each for each in threading.enumerate() if each.name == "echelons-loop"]
    del session
    gc.collect()
    thread.join(120)

    assert not thread.is_alive()
    saver.close()
