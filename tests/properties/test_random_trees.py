"""Whatever agents of whatever tree do, its threads, links, events and views say the same."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.types import interrupt

from echelons import Agent, Result, Session, SqliteCheckpointer
from echelons.checkpoints.storage.event_rows import load_event_data
from echelons.checkpoints.threads.trace import Thread
from echelons.delegation.policy import DelegationPolicy
from echelons.guards.circuit_breaker import BreakerPolicy
from echelons.testing import Call, ScriptedModel, delegate, report
from tests.failure_ids import without_ids
from tests.proof import sample

DEPTH = 4


@dataclass(frozen=True)
class Delegate:
    """Calls of subordinates, each by its place and with or without a reset."""

    calls: tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class Say:
    """A report with a status, or a plain answer."""

    status: str | None


Move = Delegate | Say | str
"""What an agent does in one message: also ``ask``, ``note``, ``wrong`` and ``fail``."""


@dataclass(frozen=True)
class Shape:
    """A tree to be: what its first agent does in each segment, and who is below it."""

    moves: tuple[Move, ...]
    below: tuple[Shape, ...]


CALLS = st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=3).map(tuple)
STATUSES = st.sampled_from(["fulfilled", "partial", "unable", "needs_input", None])
MOVES = st.one_of(
    st.builds(Delegate, CALLS),
    st.builds(Say, STATUSES),
    st.sampled_from(["ask", "note", "wrong", "fail"]),
)


@st.composite
def shapes(draw: st.DrawFn, depth: int) -> Shape:
    """Draw a tree; who has subordinates delegates first, so that the lower ones have work too."""
    # Two of three superiors between have two subordinates; a strategy would rather have none.
    width = draw(st.sampled_from([0, 1] if depth == 2 else [1, 2, 2])) if depth > 1 else 0
    below = tuple(draw(shapes(depth - 1)) for _ in range(width))
    first = (Delegate(draw(CALLS)),) if below else (draw(MOVES),)
    return Shape((*first, *draw(st.lists(MOVES, max_size=2))), below)


class Watching(SqliteCheckpointer):
    """A database that looks, at a thread's first row, whether the call of it is written down."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.unannounced: list[str] = []

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        told = config["metadata"]
        if told["superior_thread_id"] and not self._announced(told["agent_thread_id"]):
            self.unannounced.append(told["agent_path"])
        return super().put(config, checkpoint, metadata, new_versions)

    def _announced(self, thread_id: str) -> bool:
        return any(each["sub_agent_thread_id"] == thread_id for each in rows(self, "delegations"))


def rows(saver: SqliteCheckpointer, table: str) -> list[dict[str, Any]]:
    """Return a table or view as plain rows."""
    with saver.lock:
        cursor = saver.conn.execute(f"SELECT * FROM {table}")
        names = [each[0] for each in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


PATIENT = DelegationPolicy(timeout=None, breaker=BreakerPolicy(failures=10**6, intensity=None))
"""However often somebody fails, it is asked again."""


def ask() -> str:
    """Ask the human."""
    return str(interrupt("Well?"))


def note() -> str:
    """Write a note."""
    return "noted"


def agent_of(shape: Shape, path: str = "a", scripts: dict[str, Any] | None = None) -> Agent:
    """Return the tree of a shape; only its first agent has a model, which the others inherit."""
    mine: dict[str, Any] = {} if scripts is None else scripts
    below = [agent_of(each, f"{path}{n}", mine) for n, each in enumerate(shape.below)]
    mine[path] = script(shape.moves, [each.name for each in below], root=scripts is None)
    model = ScriptedModel(mine) if scripts is None else None
    rules = PATIENT if scripts is None else None
    return Agent(path, model=model, tools=[ask, note], subordinates=below, delegation=rules)


def script(
    moves: Sequence[Move], below: Sequence[str], *, root: bool
) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return a script that makes one move after the other in each segment, and then answers."""

    tasks = count()

    def next_step(messages: Sequence[BaseMessage]) -> Any:
        done = 0
        for message in reversed(messages):
            if isinstance(message, HumanMessage):
                break
            done += isinstance(message, AIMessage)
        return step(moves[done], below, tasks, root=root) if done < len(moves) else "answer"

    return next_step


def step(move: Move, below: Sequence[str], tasks: Iterator[int], *, root: bool) -> Any:
    match move:
        case Delegate(calls) if below:
            # What is answered is not asked again, so every task is a new one.
            return [
                delegate(below[n % len(below)], f"task {next(tasks)}", reset) for n, reset in calls
            ]
        case Say(str(status)) if not root:
            return [report(status, "result"), Call("note")]
        case Say():
            return "said"
        case "fail" if not root:
            return ValueError("failed")
        case "ask":
            return [Call("ask"), Call("note"), Call("ask")]
        case "wrong":
            return [Call("nothing"), delegate("nobody", "task"), Call("report", "{")]
        case _:
            return Call("note")


def send(session: Session) -> Result:
    return session.send("go").result()


def answer(session: Session, answers: Mapping[str, str]) -> Result:
    return session.answer(answers).result()


def asend(session: Session) -> Result:
    async def result() -> Result:
        return await (await session.asend("go")).result()

    return asyncio.run(result())


def aanswer(session: Session, answers: Mapping[str, str]) -> Result:
    async def result() -> Result:
        return await (await session.aanswer(answers)).result()

    return asyncio.run(result())


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures of subordinates are logged; here they are wanted."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("begin", "go_on"), [(send, answer), (asend, aanswer)], ids=["sync", "async"]
)
@settings(
    derandomize=True,
    max_examples=sample(2, 100),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(shape=shapes(DEPTH), one_by_one=st.booleans())
def test_threads_links_events_and_views_of_a_tree_say_the_same(
    begin: Callable[[Session], Result],
    go_on: Callable[[Session, Mapping[str, str]], Result],
    shape: Shape,
    one_by_one: bool,
) -> None:
    tree = agent_of(shape)
    with Watching() as saver:
        session = Session(tree, saver)
        result, asked = begin(session), 0
        while result.questions:
            check_store(session, saver)
            questions = result.questions[:1] if one_by_one else result.questions
            result = go_on(session, {each.id: "yes" for each in questions})
            asked += len(questions)

        assert result.finished
        assert saver.unannounced == []
        threads = check_store(session, saver)
        check_segments(saver, threads)
        for thread in threads:
            check_answers(thread.messages)
            check_reasons(thread.messages)
            assert kept(thread, saver) == told(thread)
        for kind in ("question", "answer"):
            assert asked == len([each for each in rows(saver, "events") if each["kind"] == kind])
    assert isinstance(tree.model, ScriptedModel)
    assert tree.model.repeated_calls == []


def check_store(session: Session, saver: SqliteCheckpointer) -> list[Thread]:
    """Check that everything that can be read says the same, and return all threads."""
    threads = all_threads(session)
    for thread in threads.values():
        check_place(thread, threads)
        # Answers of a delegation that has more to do are written down before they come up.
        ahead = kept(thread, saver)
        assert told(thread) == {key: ahead[key] for key in told(thread)}
    check_views(saver, threads)
    return list(threads.values())


def all_threads(session: Session) -> dict[str, Thread]:
    """Return all threads that calls lead to."""
    links = session.thread_store.verify(session.thread_id)
    assert {str(link.state) for link in links} <= {"ok"}
    ids = [session.thread_id, *(link.sub_agent_thread_id for link in links)]
    assert len(set(ids)) == len(ids)
    return {each: session.thread_store.get(each, session.thread_id) for each in ids}


def check_place(thread: Thread, threads: Mapping[str, Thread]) -> None:
    """Check that a thread stands below its superior's, and nobody below himself."""
    assert len(set(thread.path.parts)) == len(thread.path.parts) <= DEPTH
    assert thread.path.parts[-1] == thread.agent
    if thread.superior_thread_id:
        assert threads[thread.superior_thread_id].path == thread.path.parent
    else:
        assert len(thread.path.parts) == 1


def check_answers(messages: Sequence[BaseMessage]) -> None:
    """Check that each call is answered once, before the next message that is no answer."""
    open_calls: Counter[str] = Counter()
    for message in [*messages, HumanMessage("the end")]:
        if isinstance(message, ToolMessage):
            open_calls[message.tool_call_id] -= 1
            continue
        assert not any(open_calls.values())
        if isinstance(message, AIMessage):
            calls = [*message.tool_calls, *message.invalid_tool_calls]
            open_calls = Counter(str(call["id"]) for call in calls)
            assert all(count == 1 for count in open_calls.values())


def check_reasons(messages: Sequence[BaseMessage]) -> None:
    """Check that nobody failed but who was told to."""
    told = [each.artifact for each in messages if isinstance(each, ToolMessage) and each.artifact]
    reasons = [each.get("reason", "") for each in told]
    assert {without_ids(each) for each in reasons if each} <= {"ValueError: failed"}


def told(thread: Thread) -> dict[tuple[str, str], Any]:
    """Return what a thread says of itself."""
    return {
        (str(event.kind), event.key): json.loads(json.dumps(event.data, default=str))
        for event in thread.events
    }


def kept(thread: Thread, saver: SqliteCheckpointer) -> dict[tuple[str, str], Any]:
    """Return what the table of events says of a thread."""
    return {
        (row["kind"], row["key"]): load_event_data(row["data"])
        for row in rows(saver, "events")
        if row["agent_thread_id"] == thread.id and row["kind"] not in ("question", "answer")
    }


def check_views(saver: SqliteCheckpointer, threads: Mapping[str, Thread]) -> None:
    """Check that the views show the threads and the calls that lead to them."""
    shown = {
        (row["agent_thread_id"], row["agent"], row["agent_path"], row["superior_thread_id"])
        for row in rows(saver, "threads")
    }
    assert shown == {
        (each.id, each.agent, each.path, each.superior_thread_id) for each in threads.values()
    }
    called = {
        (row["superior_thread_id"], row["sub_agent_thread_id"], row["subordinate"])
        for row in rows(saver, "delegations")
    }
    assert called == {
        (each.superior_thread_id, each.id, each.agent)
        for each in threads.values()
        if each.superior_thread_id
    }


def check_segments(saver: SqliteCheckpointer, threads: Sequence[Thread]) -> None:
    """Check that every call has become a segment of its thread."""
    calls = Counter(row["sub_agent_thread_id"] for row in rows(saver, "delegations"))
    assert calls == {each.id: each.segments for each in threads if each.superior_thread_id}
