"""Every failure is logged once and stored with its thread; its secrets are seen nowhere."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

from echelons import (
    Agent,
    Result,
    Run,
    RunEvent,
    Session,
    SqliteCheckpointer,
    ThreadStore,
    redact_secrets,
)
from echelons.checkpoints.coordination.journal import MAX_KEPT_FAILURES
from echelons.identity.failures import LoggedFailure
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.fork_server import ForkServer

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

Logs = pytest.LogCaptureFixture


@pytest.fixture(autouse=True)
def quiet(caplog: Logs) -> None:
    caplog.set_level(logging.WARNING, "echelons.identity.failures")


def boom(city: str = "Rome") -> str:
    """Look for a room."""
    hidden = "local hunter2"
    raise ValueError(f"no room in {city}\nof {len(hidden)} hotels")


def ask(what: str = "it") -> str:
    """Ask a human."""
    return f"they said {interrupt(what)}"


def fail(task: str) -> str:
    """Fail at a task."""
    raise LookupError(f"nothing for {task}")


def trip(saver: Any, **options: Any) -> Session:
    """Return a session of three levels in which a tool, a model and a function fail."""
    model = ScriptedModel(
        {
            "head": [Call("boom"), delegate("guide", "plan"), "over"],
            "guide": [Call("boom"), [delegate("scout", "look"), delegate("fail", "it")], "planned"],
            "scout": [Call("boom"), ConnectionError("the line is down")],
        }
    )
    scout = Agent("scout", tools=[boom])
    guide = Agent("guide", tools=[boom], subordinates=[scout, fail])
    head = Agent("head", model=model, tools=[boom], subordinates=[guide])
    return Session(head, saver, **options)


def read_failures(session: Session) -> tuple[LoggedFailure, ...]:
    return session.thread_store.failures(session.thread_id)


def run_turn(world: World, session: Session, turn_id: str) -> Result:
    """Run a turn with an id of its caller to its end."""
    run = world.do(session, "send", "go", turn_id=turn_id)
    return run.result() if isinstance(run, Run) else world.do(Driven(run), "result")


class Driven:
    """An asynchronous run, whose `result` has the name of an asynchronous version."""

    def __init__(self, run: Any) -> None:
        self.aresult = run.result


def read_texts(session: Session) -> list[str]:
    """Return what the models of all agents have read."""
    store = session.thread_store
    threads = [store.get(each.thread_id, session.thread_id) for each in session.trace().walk()]
    return [str(message.text) for thread in threads for message in thread.messages]


def test_failure_is_logged_once_stored_and_shown_with_its_id(
    world: World, saver: SqliteCheckpointer, caplog: Logs
) -> None:
    session = trip(saver)

    result = world.send(session, "go")
    assert result.text == "over" and result.response

    failures = read_failures(session)
    assert sorted((each.path, each.tool, each.error) for each in failures) == [
        ("head", "boom", "ValueError: no room in Rome"),
        ("head/guide", "boom", "ValueError: no room in Rome"),
        ("head/guide/fail", "", "LookupError: nothing for it"),
        ("head/guide/scout", "", "ConnectionError: the line is down"),
        ("head/guide/scout", "boom", "ValueError: no room in Rome"),
    ]
    told = "\n".join(read_texts(session))
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == len(failures)
    paths = {each.thread_id: each for each in session.trace().walk()}
    for failure in failures:
        [entry] = [each for each in logged if failure.id in each]
        assert told.count(f"{failure.error} (failure {failure.id})") == 1
        for part in (failure.path, failure.thread_id, f"request {failure.request_id}:"):
            assert part in entry
        assert failure.traceback in entry
        traced = paths[failure.thread_id]
        # The request of a root is its turn.
        sent = [each.sent.id for each in traced.requests] or [result.response.request_id]
        assert sent == [failure.request_id]


def test_a_traceback_has_every_line_and_no_value_of_a_variable(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = trip(saver)
    world.send(session, "go")

    found = next(each for each in read_failures(session) if each.tool)
    assert found.traceback.startswith("Traceback (most recent call last):")
    assert found.traceback.endswith("ValueError: no room in Rome\nof 13 hotels")
    assert "in boom" in found.traceback
    assert "city = " not in found.traceback


def test_a_long_traceback_has_64_kib_at_most(world: World, saver: SqliteCheckpointer) -> None:
    def shout() -> str:
        """Shout."""
        raise ExceptionGroup("é" * 200_000, [ValueError("ü" * 200_000)] * 3)

    model = ScriptedModel([Call("shout"), "over"])
    session = Session(Agent("head", model=model, tools=[shout]), saver)

    world.send(session, "go")

    [failure] = read_failures(session)
    assert 60_000 < len(failure.traceback.encode()) <= 64 * 1024
    assert "the middle was left out" in failure.traceback


def test_a_turn_that_is_replayed_or_resumed_logs_nothing_again(
    world: World, saver: SqliteCheckpointer, caplog: Logs
) -> None:
    model = ScriptedModel(
        {
            "head": [[Call("boom"), delegate("guide", "plan"), delegate("fail", "it")], "over"],
            "guide": [[Call("boom"), Call("ask")], "planned"],
        }
    )
    guide = Agent("guide", tools=[boom, ask])
    head = Agent("head", model=model, tools=[boom], subordinates=[guide, fail])
    session = Session(head, saver)

    result = run_turn(world, session, "t1")
    before = read_failures(session)
    assert len(before) == len(caplog.records) == 3

    [question] = result.questions
    assert world.answer(session, {question.id: "yes"}).text == "over"
    again = run_turn(world, session, "t1")

    assert again.replayed
    assert read_failures(session) == before
    assert len(caplog.records) == 3


def test_each_candidate_that_fails_is_a_failure_of_its_own(
    world: World, saver: SqliteCheckpointer, caplog: Logs
) -> None:
    down = ConnectionError("down")  # the same object each time
    model = ScriptedModel(
        {
            "head": [Call("call_subordinate", {"message": "cook dinner"}), "over"],
            "eat": [down],
            "chef": [down],
            "cook": ["pizza"],
        }
    )
    able = {"eat": 0.9, "chef": 0.8, "cook": 0.7}
    subordinates = [Agent(name, capabilities={"cook dinner": each}) for name, each in able.items()]
    session = Session(Agent("head", model=model, subordinates=subordinates), saver)

    world.send(session, "go")

    assert [each.path for each in read_failures(session)] == ["head/eat", "head/chef"]
    assert len(caplog.records) == 2


def test_an_interrupt_is_no_failure(world: World, saver: SqliteCheckpointer, caplog: Logs) -> None:
    model = ScriptedModel(
        {
            "head": [[Call("ask"), delegate("guide", "plan")], "over"],
            "guide": [Call("ask"), "planned"],
        }
    )
    guide = Agent("guide", tools=[ask])
    session = Session(Agent("head", model=model, tools=[ask], subordinates=[guide]), saver)

    questions = world.send(session, "go").questions
    result = world.answer(session, {each.id: "yes" for each in questions})

    assert (result.text, len(questions)) == ("over", 2)
    assert read_failures(session) == ()
    assert caplog.records == []


async def test_a_cancellation_is_no_failure(saver: SqliteCheckpointer, caplog: Logs) -> None:
    started = asyncio.Event()

    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel({"head": [delegate("guide", "plan")], "guide": [Call("hang")]})
    head = Agent("head", model=model, subordinates=[Agent("guide", tools=[hang])])
    graph = head.compile(saver)
    config: Any = {"configurable": {"thread_id": "1"}}

    task = asyncio.create_task(graph.ainvoke({"messages": [("user", "go")]}, config))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert caplog.records == []


def test_a_call_that_does_not_fit_is_no_failure_but_an_invalid_value_in_the_tool_is(
    world: World, saver: SqliteCheckpointer, caplog: Logs
) -> None:
    class Room(BaseModel):
        beds: int

    def parse(beds: int) -> str:
        """Parse a room."""
        return str(Room.model_validate({"beds": "many"}))

    calls = [Call("parse", {"beds": "three"}), Call("parse", {"beds": 3})]
    model = ScriptedModel([*calls, "over"])
    session = Session(Agent("head", model=model, tools=[parse]), saver)

    world.send(session, "go")

    _, _, refused, _, failed, _ = read_texts(session)
    [failure] = read_failures(session)
    assert refused.startswith("Error: not run: ")
    assert failed == f"Error: ValidationError: 1 validation error for Room (failure {failure.id})"
    assert "Input should be a valid integer" in failure.traceback
    assert len(caplog.records) == 1


def test_a_tools_own_words_to_the_model_stay_whole(world: World, saver: SqliteCheckpointer) -> None:
    def book() -> str:
        """Book."""
        raise ToolException("No room.\nTry Oslo with password=hunter2 instead.")

    model = ScriptedModel([Call("book"), "over"])
    session = Session(Agent("head", model=model, tools=[book]), saver)

    world.send(session, "go")

    [failure] = read_failures(session)
    text = "Error: No room.\nTry Oslo with password=[redacted] instead."
    assert read_texts(session)[2] == f"{text} (failure {failure.id})"


def test_what_a_tool_makes_of_its_own_exception_is_redacted(
    world: World, saver: SqliteCheckpointer
) -> None:
    @tool
    def book() -> str:
        """Book."""
        raise ToolException("api_key: hunter2")

    book.handle_tool_error = True
    session = Session(
        Agent("head", model=ScriptedModel([Call("book"), "over"]), tools=[book]), saver
    )

    world.send(session, "go")

    assert read_texts(session)[2] == "api_key: [redacted]"


def test_a_root_that_fails_is_logged_each_time_and_its_caller_gets_the_exception(
    world: World, saver: SqliteCheckpointer, caplog: Logs
) -> None:
    error = ConnectionError("password=hunter2")
    replies: list[Any] = [error, error, "over"]
    session = Session(Agent("head", model=ScriptedModel(lambda _: replies.pop(0))), saver)

    with pytest.raises(ConnectionError, match="password=h"):
        world.send(session, "go", turn_id="T7")
    with pytest.raises(ConnectionError):
        world.resume(session)
    assert world.resume(session).text == "over"

    failures = read_failures(session)
    assert [(each.path, each.request_id) for each in failures] == [("head", "T7")] * 2
    assert len(caplog.records) == 2
    assert "hunter2" not in str(failures) + caplog.text


def test_a_tree_within_a_graph_within_a_tree_logs_its_failure_once(
    world: World, saver: SqliteCheckpointer, caplog: Logs
) -> None:
    inner = Agent("inner", model=ScriptedModel([ConnectionError("down")])).compile()
    builder = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    builder.add_edge("inner", END)
    foreign = builder.compile(name="foreign")
    model = ScriptedModel([delegate("foreign", "go"), "over"])
    session = Session(Agent("head", model=model, subordinates=[foreign]), saver)

    assert world.send(session, "go").text == "over"

    [failure] = read_failures(session)
    assert failure.path == "head/foreign/inner"
    assert len(caplog.records) == 1
    assert f"(failure {failure.id})" in read_texts(session)[2]


def test_another_redactor_takes_the_place_of_the_default(
    world: World, saver: SqliteCheckpointer, caplog: Logs
) -> None:
    def redact(text: str) -> str:
        return redact_secrets(text).replace("Rome", "[city]").replace("line", "[wire]")

    session = trip(saver, redactor=redact)

    world.send(session, "go")

    seen = "\n".join([*read_texts(session), str(read_failures(session)), caplog.text])
    assert "Rome" not in seen and "line is down" not in seen
    assert "no room in [city] (failure " in seen and "the [wire] is down" in seen
    with saver.cursor() as cursor:
        rows = cursor.execute("SELECT value FROM writes WHERE channel = '__error__'").fetchall()
    assert rows and all(b"line is down" not in value for (value,) in rows)


def test_a_redactor_that_keeps_everything_and_one_that_fails(world: World, caplog: Logs) -> None:
    def explode(text: str) -> str:
        raise ValueError(text)

    def leak() -> str:
        """Leak."""
        raise ValueError("password=hunter2")

    for redactor, shown in ((str, "password=hunter2"), (explode, "[removed: the redactor failed]")):
        caplog.clear()
        model = ScriptedModel([Call("leak"), "over"])
        graph = Agent("head", model=model, tools=[leak]).compile(redactor=redactor)
        result = world.invoke(graph, {"messages": [("user", "go")]})

        assert shown in result["messages"][2].text
        assert ("hunter2" in caplog.text) is (redactor is str)


def test_a_redactor_that_is_no_function_is_refused() -> None:
    wrong: Any = "password"
    with raises_code("invalid_option", match="no function from text to text"):
        Agent("head").compile(redactor=wrong)
    with raises_code("invalid_option", match="redactor"):
        Session(Agent("head"), ":memory:", redactor=wrong)


def test_an_event_of_an_error_has_no_secret(saver: SqliteCheckpointer) -> None:
    model = ScriptedModel(
        {"head": [delegate("guide", "x"), "over"], "guide": [ValueError("password=hunter2")]}
    )
    session = Session(Agent("head", model=model, subordinates=[Agent("guide")]), saver)

    events: list[RunEvent] = list(session.send("go"))

    [error] = [each for each in events if each.kind == "error"]
    assert error.content == "password=[redacted]"


def test_a_thread_keeps_its_latest_failures_and_no_more(saver: SqliteCheckpointer) -> None:
    count = MAX_KEPT_FAILURES + 7

    def number(which: int) -> str:
        """Fail."""
        raise ValueError(f"number {which}")

    calls = [Call("number", {"which": each}, f"c{each}") for each in range(count)]
    session = Session(Agent("head", model=ScriptedModel([*calls, "over"]), tools=[number]), saver)

    session.send("go").result()

    kept = [each.error for each in read_failures(session)]
    assert kept == [f"ValueError: number {each}" for each in range(7, count)]


def test_failures_survive_a_fork_are_copied_and_go_with_their_thread(
    saver: SqliteCheckpointer,
) -> None:
    session = trip(saver)
    session.send("go").result()
    before = read_failures(session)

    first = list(session.graph.get_state_history(session.config))[-1]
    session.graph.update_state(first.config, {"messages": [("user", "once more")]})
    assert read_failures(session) == before

    saver.copy_thread(session.thread_id, "copy")
    copied = session.thread_store.failures("copy")
    assert [each.id for each in copied] == [each.id for each in before]
    assert {each.thread_id for each in copied if each.path == "head"} == {"copy"}

    saver.delete_thread(session.thread_id)
    assert read_failures(session) == ()
    saver.delete_thread("copy")
    with saver.cursor() as cursor:
        [left] = cursor.execute(
            "SELECT count(*) FROM ledger_values WHERE key LIKE 'thread/%'"
        ).fetchone()
    assert left == 0


FALLING = """
from echelons import Agent, Session
from echelons.testing import Call, ScriptedModel, delegate
from echelons.testing.crash import die


def boom():
    'Fail.'
    raise ValueError("no room")


def fall():
    'Fall, with the whole process.'
    die()


calls = {"head": [delegate("guide", "go")], "guide": [Call("boom"), Call("fall")]}
guide = Agent("guide", tools=[boom, fall])
head = Agent("head", model=ScriptedModel(calls), subordinates=[guide])
Session(head, "trip.sqlite").send("go").result()
"""


def test_a_failure_is_stored_before_its_process_is_killed(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    ended = fork_server.run("-c", FALLING, cwd=tmp_path)

    assert ended.returncode == -signal.SIGKILL
    with Session(Agent("head"), tmp_path / "trip.sqlite") as session:
        [failure] = read_failures(session)
    assert (failure.path, failure.tool) == ("head/guide", "boom")
    assert failure.id in ended.stderr


def test_on_another_saver_failures_live_as_long_as_the_saver(world: World) -> None:
    saver = InMemorySaver()
    head = Agent("head", model=ScriptedModel([Call("boom"), "over"]), tools=[boom])
    config: Any = {"configurable": {"thread_id": "1"}}

    world.invoke(head.compile(saver), {"messages": [("user", "go")]}, config)

    [failure] = world.do(ThreadStore(saver), "failures", "1")
    assert (failure.path, failure.tool) == ("head", "boom")


def test_a_late_failure_of_a_tool_is_logged_once(saver: SqliteCheckpointer, caplog: Logs) -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    class Done(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            ended.set()

    def slow() -> str:
        """Fail, late."""
        begun.set()
        assert go.wait(120)
        raise ValueError("too late")

    model = ScriptedModel([Call("slow", id="s"), "over"])
    graph = Agent("head", model=model, tools=[slow]).compile(saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    handler = Done()
    logging.getLogger("echelons.identity.failures").addHandler(handler)

    async def run() -> None:
        task = asyncio.create_task(graph.ainvoke({"messages": [("user", "go")]}, config))
        await asyncio.to_thread(begun.wait, 120)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        assert await asyncio.to_thread(ended.wait, 120)

    asyncio.run(run())
    logging.getLogger("echelons.identity.failures").removeHandler(handler)

    assert len(caplog.records) == 1
    assert "tool slow" in caplog.text
