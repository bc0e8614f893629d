"""A run that is left stands still, and can be left anywhere, in threads and in an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from echelons import Agent, AsyncRun, Run, Session, SqliteCheckpointer, subordinate
from echelons.checkpoints.ledger import build_key
from echelons.errors import NothingToResume, StorageError, ThreadBusy, UnfinishedTurn
from echelons.testing import Call, ScriptedModel, delegate
from tests.fork_server import ForkServer

CALLS = ["head", "middle", "leaf", "leaf", "middle", "head"]


class Tree:
    """A tree of three levels, with a tool at the lowest, and what they have done."""

    def __init__(self) -> None:
        self.looked = 0
        self.model = ScriptedModel(
            {
                "head": [delegate("middle", "go"), "done"],
                "middle": [delegate("leaf", "go"), "done"],
                "leaf": [Call("look", {}), "done"],
            }
        )
        leaf = Agent("leaf", tools=[self.look])
        middle = Agent("middle", subordinates=[leaf])
        self.head = Agent("head", model=self.model, subordinates=[middle])

    def look(self) -> str:
        """Look around."""
        self.looked += 1
        return "nothing"

    @property
    def steps(self) -> tuple[int, int]:
        return len(self.model.calls), self.looked

    def check_whole(self) -> None:
        """Check that all was done, and nothing twice."""
        assert sorted(str(each.agent) for each in self.model.calls) == sorted(CALLS)
        assert self.model.repeated_calls == []
        assert self.looked == 1


def count_events() -> int:
    with Session(Tree().head, ":memory:") as session:
        return len(list(session.send("go")))


PLACES = range(1, count_events())


def leave(run: Run, at: int) -> None:
    """Take so many events of a run, and leave it."""
    for place, _ in enumerate(run, start=1):
        if place == at:
            break


async def aleave(run: AsyncRun, at: int) -> None:
    place = 0
    async for _ in run:
        place += 1
        if place == at:
            break


# No step begins before the events before it have been taken


@pytest.mark.parametrize("at", PLACES)
def test_a_run_in_threads_begins_nothing_from_the_moment_it_is_left(at: int) -> None:
    tree = Tree()
    with Session(tree.head, ":memory:") as session:
        run = session.send("go")
        leave(run, at)
        seen = tree.steps

        run.close()

        assert tree.steps == seen
        result = run.result() if run.result().finished else session.resume().result()
        assert result.text == "done"
    tree.check_whole()


@pytest.mark.parametrize("at", PLACES)
async def test_a_run_in_an_event_loop_begins_nothing_from_the_moment_it_is_left(at: int) -> None:
    tree = Tree()
    async with Session(tree.head, ":memory:") as session:
        run = await session.asend("go")
        await aleave(run, at)
        seen = tree.steps
        for _ in range(100):
            await asyncio.sleep(0)
        assert tree.steps == seen

        await run.close()

        assert tree.steps == seen
        result = await run.result()
        if not result.finished:
            result = await (await session.aresume()).result()
        assert result.text == "done"
    tree.check_whole()


class Foreign:
    """A tree with a foreign graph of three steps, and the steps that it has begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        building = StateGraph(MessagesState)
        names = ["first", "second", "third"]
        for name in names:
            building.add_node(name, partial(self.step, name))
        for before, after in pairwise([START, *names]):
            building.add_edge(before, after)
        graph = subordinate(building.compile(), name="graph", description="Walks")
        self.model = ScriptedModel([delegate("graph", "go"), "done"])
        self.head = Agent("head", model=self.model, subordinates=[graph])

    def step(self, name: str, state: MessagesState) -> dict[str, list[AIMessage]]:
        self.begun.append(name)
        return {"messages": [AIMessage(name)]}


FOREIGN_PLACES = range(1, 9)


@pytest.mark.parametrize("at", FOREIGN_PLACES)
def test_the_steps_of_a_foreign_graph_are_held_back_in_threads(at: int) -> None:
    tree = Foreign()
    with Session(tree.head, ":memory:") as session:
        run = session.send("go")
        leave(run, at)
        seen = list(tree.begun)

        run.close()

        assert tree.begun == seen
        result = run.result() if run.result().finished else session.resume().result()
    assert (result.text, tree.begun) == ("done", ["first", "second", "third"])


@pytest.mark.parametrize("at", FOREIGN_PLACES)
async def test_the_steps_of_a_foreign_graph_are_held_back_in_an_event_loop(at: int) -> None:
    tree = Foreign()
    async with Session(tree.head, ":memory:") as session:
        run = await session.asend("go")
        await aleave(run, at)
        seen = list(tree.begun)
        for _ in range(100):
            await asyncio.sleep(0)

        await run.close()

        assert tree.begun == seen
        result = await run.result()
        if not result.finished:
            result = await (await session.aresume()).result()
    assert (result.text, tree.begun) == ("done", ["first", "second", "third"])


SCRIPT = """
import asyncio, sys
from echelons import Session
from tests.echelons.runtime.test_leaving import Tree, aleave, leave
tree, at, database, how = Tree(), int(sys.argv[1]), sys.argv[2], sys.argv[3]
session = Session(tree.head, database)
if how == "sync":
    run = session.send("go")
    leave(run, at)
else:
    kept = []
    async def main():
        run = await session.asend("go")
        if how == "async, kept":
            kept.append(run)
        await aleave(run, at)
    asyncio.run(main())
print(*tree.steps, flush=True)
import atexit
atexit.register(lambda: print(*tree.steps))
"""


@pytest.mark.parametrize(
    ("at", "how"),
    [
        (1, "sync"),
        (len(PLACES) // 2, "sync"),
        (1, "async, kept"),
        (len(PLACES) // 2, "async, dropped"),
    ],
)
def test_a_process_ends_with_a_run_that_was_left_and_another_resumes_it(
    at: int, how: str, tmp_path: Path, fork_server: ForkServer
) -> None:
    database = tmp_path / "t.sqlite"

    ended = fork_server.run("-c", SCRIPT, str(at), str(database), how)

    assert (ended.returncode, ended.stderr) == (0, "")
    at_leaving, at_exit = ended.stdout.splitlines()
    assert at_leaving == at_exit
    tree = Tree()
    with Session(tree.head, database) as session:
        assert session.resume().result().text == "done"
    calls, looked = map(int, at_exit.split())
    assert (calls + len(tree.model.calls), looked + tree.looked) == (len(CALLS), 1)


def wide(fail: Callable[[], str]) -> Agent:
    """A tree whose head does both at once: a call that may fail, and a long delegation."""
    model = ScriptedModel(
        {
            "head": [[Call("fail", {}), delegate("leaf", "go")], "done"],
            "leaf": [Call("look", {}), Call("look", {}), "done"],
        }
    )
    return Agent(
        "head", model=model, tools=[fail], subordinates=[Agent("leaf", tools=[Tree().look])]
    )


def test_an_error_beside_a_step_that_is_held_back_ends_the_run() -> None:
    def fail() -> str:
        """Fail with an error that no agent is told."""
        raise SystemExit("enough")

    with Session(wide(fail), ":memory:") as session:
        with pytest.raises(SystemExit, match="enough"):
            session.send("go").result()


# The session ends what it has handed out


@pytest.mark.parametrize("at", [1, len(PLACES) // 2])
@pytest.mark.parametrize("how", ["with", "close", "error"])
def test_a_session_ends_the_runs_that_it_has_handed_out(at: int, how: str, tmp_path: Path) -> None:
    tree, runs = Tree(), []
    session = Session(tree.head, tmp_path / "t.sqlite")
    if how == "close":
        runs.append(session.send("go"))
        leave(runs[0], at)
        session.close()
    elif how == "with":
        with session:
            runs.append(session.send("go"))
            leave(runs[0], at)
    else:
        with pytest.raises(LookupError), session:
            runs.append(session.send("go"))
            leave(runs[0], at)
            raise LookupError

    with Session(tree.head, tmp_path / "t.sqlite") as other:
        assert other.resume().result().text == "done"
    assert list(runs[0]) == []
    tree.check_whole()


@pytest.mark.parametrize("how", ["with", "aclose"])
async def test_an_async_session_ends_the_runs_that_it_has_handed_out(
    how: str, tmp_path: Path
) -> None:
    tree, runs = Tree(), []
    session = Session(tree.head, tmp_path / "t.sqlite")
    if how == "aclose":
        runs.append(await session.asend("go"))
        await aleave(runs[0], 3)
        await session.aclose()
    else:
        async with session:
            runs.append(await session.asend("go"))
            await aleave(runs[0], 3)

    async with Session(tree.head, tmp_path / "t.sqlite") as other:
        assert (await (await other.aresume()).result()).text == "done"
    assert [each async for each in runs[0]] == []
    tree.check_whole()


def test_a_session_waits_for_a_run_that_another_thread_drives(tmp_path: Path) -> None:
    tree, results = Tree(), []
    session = Session(tree.head, tmp_path / "t.sqlite")
    run = session.send("go")
    next(iter(run))
    driving = Thread(target=lambda: results.append(run.result()))
    driving.start()
    session.close()
    driving.join()

    with Session(tree.head, tmp_path / "t.sqlite") as other:
        if not results[0].finished:
            assert other.resume().result().text == "done"
    tree.check_whole()


def test_a_tool_that_closes_the_session_of_its_run_does_not_wait_for_itself(
    tmp_path: Path,
) -> None:
    sessions: list[Session] = []

    def shut() -> str:
        """Shut the session."""
        sessions[0].close()
        return "shut"

    model = ScriptedModel([Call("shut", {}), "done"])
    sessions.append(Session(Agent("head", model=model, tools=[shut]), tmp_path / "t.sqlite"))
    run = sessions[0].send("go")

    with pytest.raises(StorageError):
        run.result()


# A new request ends a run that was left


def test_a_resume_ends_the_run_that_its_thread_has_left() -> None:
    tree = Tree()
    with Session(tree.head, ":memory:") as session:
        left = session.send("go")
        leave(left, 3)

        assert session.resume().result().text == "done"

        assert list(left) == []
    tree.check_whole()


def test_a_send_ends_the_run_that_its_thread_has_left_and_says_what_is_open() -> None:
    tree = Tree()
    with Session(tree.head, ":memory:") as session:
        left = session.send("go", turn_id="1")
        leave(left, 3)
        with pytest.raises(UnfinishedTurn):
            session.send("more")

        left = session.send("go", turn_id="1")
        leave(left, 1)
        assert session.send("go", turn_id="1").result().text == "done"

        with pytest.raises(NothingToResume):
            session.resume()
    tree.check_whole()


def test_a_run_that_another_thread_has_left_is_busy() -> None:
    tree = Tree()
    with Session(tree.head, ":memory:") as session:
        left = session.send("go")
        leaving = Thread(target=leave, args=(left, 3))
        leaving.start()
        leaving.join()

        refusals: list[Callable[[], object]] = [lambda: session.send("more"), session.resume]
        for refused in refusals:
            with pytest.raises(ThreadBusy):
                refused()

        assert left.result().text == "done"
    tree.check_whole()


async def test_a_resume_ends_the_run_that_its_task_has_left_and_no_other() -> None:
    tree = Tree()
    async with Session(tree.head, ":memory:") as session:
        left = await session.asend("go")
        await asyncio.create_task(aleave(left, 3))
        refusals: list[Callable[[], Awaitable[object]]] = [
            lambda: session.asend("more"),
            session.aresume,
        ]
        for refused in refusals:
            with pytest.raises(ThreadBusy):
                await refused()

        await anext(aiter(left))
        assert (await (await session.aresume()).result()).text == "done"
        assert [each async for each in left] == []
    tree.check_whole()


def test_an_answer_is_left_to_the_run_that_was_left() -> None:
    def ask() -> str:
        """Ask a human."""
        return str(interrupt("Sure?"))

    def look() -> str:
        """Look around until the question has arrived."""
        while not session.inbox():
            pass
        return "there it is"

    model = ScriptedModel(
        {
            "head": [[delegate("one", "go"), delegate("two", "go")], "done"],
            "one": [Call("ask", {}), "one"],
            "two": [Call("look", {}), "two"],
        }
    )
    below = [Agent("one", tools=[ask]), Agent("two", tools=[look])]
    with Session(Agent("head", model=model, subordinates=below), ":memory:") as session:
        left = session.send("go")
        assert any(each.content == "there it is" for each in left)

        assert session.answer(session.inbox()[0].id, "yes").result().queued

        assert left.result().text == "done"
    assert model.repeated_calls == []


async def test_a_run_that_is_cancelled_in_any_round_of_its_loop_frees_its_thread_at_once() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        for rounds in range(1, 10_000):
            agent = Agent("head", model=ScriptedModel(["done"]))
            session = Session(agent, saver, thread=f"thread {rounds}")
            run = await session.asend("go")
            driving = asyncio.create_task(run.result())
            for _ in range(rounds):
                await asyncio.sleep(0)
            if driving.done():
                assert (await driving).text == "done"
                return
            driving.cancel()
            with suppress(asyncio.CancelledError):
                await driving
            assert saver.ledger.get_holder(build_key(session.thread_id)) is None, rounds
    pytest.fail("no run has come to its end")


async def test_the_events_of_a_run_are_taken_in_one_task() -> None:
    begun: list[str] = []

    def create(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        begun.append(work.cr_code.co_filename)
        return asyncio.Task(work, loop=loop, **options)

    async with Session(Tree().head, ":memory:") as session:
        run = await session.asend("go")
        loop = asyncio.get_running_loop()
        loop.set_task_factory(create)
        try:
            events = [each async for each in run]
        finally:
            loop.set_task_factory(None)

    assert len(events) > len(PLACES)
    home = inspect.getfile(AsyncRun)
    assert [path for path in begun if path == home] == [home]


async def test_a_run_in_a_loop_that_ends_its_step_with_an_error_raises_it_once() -> None:
    model = ScriptedModel([ConnectionError("no line")])
    async with Session(Agent("head", model=model), ":memory:") as session:
        run = await session.asend("go")

        with pytest.raises(ConnectionError, match="no line"):
            await run.result()

        assert [each async for each in run] == []
        assert not (await run.result()).finished


async def test_an_error_that_is_no_exception_reaches_the_consumer_and_not_the_event_loop() -> None:
    class Died(BaseException):
        pass

    class Dying(SqliteCheckpointer):
        def put_writes(self, *args: Any, **kwargs: Any) -> None:
            raise Died

    tasks: list[asyncio.Task[Any]] = []

    def create(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        if inspect.iscoroutine(work) and work.cr_code.co_filename == inspect.getfile(AsyncRun):
            tasks.append(task)
        return task

    asyncio.get_running_loop().set_task_factory(create)
    with Dying(":memory:") as saver:
        async with Session(Tree().head, saver) as session:
            with pytest.raises(Died):
                await (await session.asend("go")).result()

    # The loop would log what a task has raised and no caller has read.
    assert [task.exception() for task in tasks] == [None]
