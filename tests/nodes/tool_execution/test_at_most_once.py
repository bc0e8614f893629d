"""Each state of a call: what a resumed run does with it, on our saver and on LangGraph's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Literal, cast

import pytest
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ValidationError

from echelons import Agent, Session, SqliteCheckpointer, effect, idempotency_key
from echelons.checkpoints.coordination.journal import LedgerJournal
from echelons.checkpoints.ledger import get_ledger
from echelons.testing import Call, ScriptedModel, Step, delegate
from tests.error_codes import raises_code
from tests.failure_ids import without_ids

CONFIG: RunnableConfig = {"configurable": {"thread_id": "1"}}
Saver = BaseCheckpointSaver[Any]


class Died(BaseException):
    """Stands for a process that ends where it is raised."""


@pytest.fixture
def saver(any_saver: Saver) -> Saver:
    return any_saver


def graph_of(saver: Saver | None, tools: list[Any], *steps: Step) -> Any:
    """Return a graph of two levels, the lower of which makes some calls."""
    model = ScriptedModel({"head": [delegate("scout", "go"), "over"], "scout": [*steps, "done"]})
    agent = Agent("head", model=model, subordinates=[Agent("scout", tools=tools)])
    return agent.compile(checkpointer=saver)


def start(graph: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", graph.invoke({"messages": [("user", "go")]}, CONFIG))


def go_on(graph: Any, given: Any = None) -> dict[str, Any]:
    return cast("dict[str, Any]", graph.invoke(given, CONFIG))


def asked(result: dict[str, Any]) -> list[Any]:
    return [each.value for each in result.get("__interrupt__", ())]


def answers_to(graph: Any, call_id: str) -> str:
    """Return what the model was told of a call, from the thread's stored messages."""
    found: list[BaseMessage] = []
    for saved in graph.checkpointer.list(CONFIG):
        for _, channel, value in saved.pending_writes or ():
            if channel == "messages":
                found += value if isinstance(value, list) else [value]
    told = [each for each in found if isinstance(each, ToolMessage)]
    [text] = {str(each.text) for each in told if each.tool_call_id == call_id}
    return text


def entries(saver: Saver) -> list[str]:
    return [name for name in get_ledger(saver).list_keys("") if "/effect/" in name]


class Booking:
    """A tool that dies on purpose, and says how often it was run."""

    def __init__(self, deaths: int = 1) -> None:
        self.keys: list[str] = []
        self._deaths = deaths

    def run(self, key: str) -> str:
        self.keys.append(key)
        if len(self.keys) <= self._deaths:
            raise Died
        return f"booked at attempt {len(self.keys)}"

    def tool(self, **declared: bool) -> BaseTool:
        @effect(**declared)
        @tool
        def book(city: str, runtime: ToolRuntime) -> str:
            """Book a room."""
            return self.run(idempotency_key(runtime))

        return book


BOOK = Call("book", {"city": "Rome"}, "b")


def test_a_human_is_asked_about_a_call_that_was_cut_short(saver: Saver) -> None:
    booking = Booking()
    graph = graph_of(saver, [booking.tool()], BOOK)
    with pytest.raises(Died):
        start(graph)

    [question] = asked(go_on(graph))

    assert booking.keys == booking.keys[:1]
    assert question["kind"] == "outcome_unknown"
    assert (question["tool"], question["arguments"]) == ("book", {"city": "Rome"})
    assert (question["agent_path"], question["happened"]) == ("head/scout", False)
    assert question["idempotency_key"] == booking.keys[0]
    assert question["question"].startswith("book was started at 2")


@pytest.mark.parametrize(
    ("said", "told", "runs"),
    [
        ({"outcome": "happened", "result": "by hand"}, "by hand", 1),
        ({"outcome": "not_happened"}, "Error: the call was cut short and did not happen", 1),
        ("not_happened", "Error: the call was cut short and did not happen", 1),
        ({"outcome": "run_again"}, "booked at attempt 2", 2),
        ("run_again", "booked at attempt 2", 2),
    ],
    ids=repr,
)
def test_a_human_decides_what_becomes_of_it(saver: Saver, said: Any, told: str, runs: int) -> None:
    booking = Booking()
    graph = graph_of(saver, [booking.tool()], BOOK)
    with pytest.raises(Died):
        start(graph)
    go_on(graph)

    result = go_on(graph, Command(resume=said))

    assert result["messages"][-1].text == "over"
    assert answers_to(graph, "b").startswith(told)
    assert len(booking.keys) == runs
    assert len(set(booking.keys)) == 1


@pytest.mark.parametrize("said", ["perhaps", {"outcome": "happened"}, 7, {"outcome": "no"}, []])
def test_an_answer_that_says_nothing_is_asked_for_again_and_changes_nothing(
    saver: Saver, said: Any
) -> None:
    booking = Booking()
    graph = graph_of(saver, [booking.tool()], BOOK)
    with pytest.raises(Died):
        start(graph)
    first = go_on(graph)["__interrupt__"]

    again = go_on(graph, Command(resume=said))["__interrupt__"]
    by_id = go_on(graph, Command(resume={again[0].id: said}))["__interrupt__"]

    assert first == again == by_id
    assert len(booking.keys) == 1
    assert go_on(graph, Command(resume="run_again"))["messages"][-1].text == "over"
    assert len(booking.keys) == 2


def test_a_call_that_dies_again_is_asked_about_again(saver: Saver) -> None:
    booking = Booking(deaths=3)
    graph = graph_of(saver, [booking.tool()], BOOK)
    with pytest.raises(Died):
        start(graph)
    ids = set()
    for _ in range(2):
        [question] = go_on(graph)["__interrupt__"]
        ids.add(question.id)
        with pytest.raises(Died):
            go_on(graph, Command(resume={question.id: "run_again"}))
    [question] = go_on(graph)["__interrupt__"]
    ids.add(question.id)

    assert len(ids) == 3
    assert len(booking.keys) == 3
    assert go_on(graph, Command(resume="run_again"))["messages"][-1].text == "over"


def test_idempotent_tool_runs_again_with_same_key_without_question(
    saver: Saver,
) -> None:
    booking = Booking(deaths=2)
    graph = graph_of(saver, [booking.tool(idempotent=True)], BOOK)
    for given in ({"messages": [("user", "go")]}, None):
        with pytest.raises(Died):
            graph.invoke(given, CONFIG)

    result = go_on(graph)

    assert result["messages"][-1].text == "over"
    assert len(booking.keys) == 3
    assert len(set(booking.keys)) == 1


def test_a_tool_that_only_reads_has_no_entry_and_is_made_again(saver: Saver) -> None:
    booking = Booking()
    graph = graph_of(saver, [booking.tool(reads_only=True)], BOOK)
    with pytest.raises(Died):
        start(graph)

    assert entries(saver) == []
    assert go_on(graph)["messages"][-1].text == "over"


def test_a_recorded_result_that_steers_is_answered_with_an_error_and_not_run_again(
    saver: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking, end = Booking(deaths=0), LedgerJournal.end

    def end_as_before(journal: LedgerJournal, call: Any, entry: Any, _: Any, config: Any) -> None:
        end(journal, call, entry, [Command(graph=Command.PARENT, goto="refuse")], config)
        raise Died

    graph = graph_of(saver, [booking.tool()], BOOK)
    monkeypatch.setattr(LedgerJournal, "end", end_as_before)
    with pytest.raises(Died):
        start(graph)
    monkeypatch.undo()

    assert go_on(graph)["messages"][-1].text == "over"
    assert answers_to(graph, "b").startswith("Error: the tool has run, and its result is lost")
    assert len(booking.keys) == 1


def test_a_fork_makes_the_call_again_on_purpose_with_a_key_of_its_own(saver: Saver) -> None:
    booking = Booking(deaths=0)
    graph = graph_of(saver, [booking.tool()], BOOK)
    start(graph)
    before = next(state for state in graph.get_state_history(CONFIG) if state.next == ("delegate",))

    graph.invoke(None, before.config)

    assert len(booking.keys) == 2
    assert len(set(booking.keys)) == 2


def test_without_a_saver_a_tool_still_has_its_key() -> None:
    booking = Booking(deaths=0)

    graph_of(None, [booking.tool()], BOOK).invoke({"messages": [("user", "go")]})

    [key] = booking.keys
    assert len(key) == 36


def test_a_run_that_keeps_only_its_end_keeps_no_journal(saver: Saver) -> None:
    booking = Booking(deaths=0)
    graph = graph_of(saver, [booking.tool()], BOOK)

    graph.invoke({"messages": [("user", "go")]}, CONFIG, durability="exit")

    assert entries(saver) == []


@pytest.mark.parametrize("given", [None, {}, {"configurable": {}}, 7])
def test_a_key_is_asked_of_a_call_and_of_nothing_else(given: Any) -> None:
    with raises_code("no_call") as refused:
        idempotency_key(given)

    assert refused.value.given == repr(given)


def test_of_three_calls_side_by_side_each_is_treated_by_its_own_state(saver: Saver) -> None:
    runs: list[str] = []
    alive = threading.Event()

    @tool
    def done() -> str:
        """End."""
        runs.append("done")
        return "was done"

    @tool
    def ask() -> str:
        """Ask."""
        runs.append("ask")
        answer = interrupt("Sure?")
        runs.append("sure")
        return f"they said {answer}"

    @tool
    def die() -> str:
        """Die."""
        runs.append("die")
        if not alive.is_set():
            alive.set()
            raise Died
        return "was run again"

    calls = [Call("done", {}, "1"), Call("ask", {}, "2"), Call("die", {}, "3")]
    graph = graph_of(saver, [done, ask, die], calls)
    with pytest.raises(Died):
        start(graph)
    runs_before = sorted(runs)

    stopped = go_on(graph)
    by_kind = {
        each.value if isinstance(each.value, str) else each.value["tool"]: each.id
        for each in stopped["__interrupt__"]
    }
    half = go_on(graph, Command(resume={by_kind["die"]: {"outcome": "run_again"}}))
    over = go_on(graph, Command(resume="yes"))

    assert set(runs_before) <= {"done", "ask", "die"}
    assert by_kind.keys() == {"Sure?", "die"}
    assert asked(half) == ["Sure?"]
    assert over["messages"][-1].text == "over"
    assert runs.count("done") == 1
    assert runs.count("die") == 2
    assert runs.count("sure") == 1
    assert runs.count("ask") >= 3
    assert [answers_to(graph, each) for each in "123"] == [
        "was done",
        "they said yes",
        "was run again",
    ]


def test_a_tool_that_waits_is_never_taken_for_one_that_was_cut_short(saver: Saver) -> None:
    @tool
    def ask(what: str) -> str:
        """Ask."""
        return f"{what} {interrupt(what)}"

    calls = [Call("ask", {"what": each}, each) for each in "abcd"]
    graph = graph_of(saver, [ask], calls)
    waiting = {each.value: each.id for each in start(graph)["__interrupt__"]}

    for left in ("bcd", "cd", "d"):
        answered = ({*waiting} - {*left}).pop()
        result = go_on(graph, Command(resume={waiting.pop(answered): "yes"}))
        assert sorted(asked(result)) == [*left]

    assert go_on(graph, Command(resume={waiting["d"]: "yes"}))["messages"][-1].text == "over"


def test_a_tool_that_dies_on_its_way_back_to_its_question_just_asks_it(saver: Saver) -> None:
    ways: list[str] = []

    @tool
    def ask(what: str) -> str:
        """Ask."""
        ways.append(what)
        if ways.count("b") == 2:
            ways.append("b")
            raise Died
        return f"{what} {interrupt(what)}"

    calls = [Call("ask", {"what": each}, each) for each in "ab"]
    graph = graph_of(saver, [ask], calls)
    waiting = {each.value: each.id for each in start(graph)["__interrupt__"]}
    with pytest.raises(Died):
        go_on(graph, Command(resume={waiting["a"]: "yes"}))

    assert {"b"} <= set(asked(go_on(graph))) <= {"a", "b"}


def test_an_answer_of_the_wrong_type_leaves_the_tool_waiting(saver: Saver) -> None:
    class Decision(BaseModel):
        approve: bool

    @tool
    def ask() -> str:
        """Ask."""
        return f"approved: {interrupt('Sure?', response_schema=Decision).approve}"

    model = ScriptedModel([Call("ask", {}, "a"), "over"])
    graph = Agent("head", model=model, tools=[ask]).compile(checkpointer=saver)
    [question] = start(graph)["__interrupt__"]

    with pytest.raises(ValidationError):
        go_on(graph, Command(resume={question.id: "nonsense"}))
    over = go_on(graph, Command(resume={question.id: {"approve": True}}))

    assert asked(over) == []
    assert answers_to(graph, "a") == "approved: True"


class FailingOnce(SqliteCheckpointer):
    """A checkpointer that cannot store what some calls came to, the first time."""

    fails = True

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if self.fails and "kept" in str(writes):
            FailingOnce.fails = False
            raise Died
        super().put_writes(config, writes, task_id, task_path)


@pytest.mark.parametrize("form", ["text", "command", "error", "artifact"])
def test_what_a_done_call_returned_is_returned_again_without_running_it(form: str) -> None:
    runs: list[int] = []
    response: Literal["content_and_artifact", "content"] = (
        "content_and_artifact" if form == "artifact" else "content"
    )

    @tool(response_format=response)
    def book(runtime: ToolRuntime) -> Any:
        """Book."""
        runs.append(1)
        if form == "command":
            told = ToolMessage("kept", tool_call_id=runtime.tool_call_id)
            return Command(update={"messages": [told]})
        if form == "error":
            raise ValueError("kept")
        return ("kept", {"room": 7}) if form == "artifact" else "kept"

    FailingOnce.fails = True
    with FailingOnce(":memory:") as saver:
        graph = graph_of(saver, [book], Call("book", {}, "b"))
        with pytest.raises(Died):
            start(graph)
        assert len(entries(saver)) == 1

        result = go_on(graph)

        assert result["messages"][-1].text == "over"
        answer = answers_to(graph, "b")
        if form == "error":
            assert without_ids(answer) == "Error: ValueError: kept"
        else:
            assert answer == "kept"
        assert runs == [1]
        assert entries(saver) == []


def test_artifact_that_cannot_be_stored_is_left_out_of_its_result() -> None:
    class Room:
        pass

    runs: list[int] = []

    @tool(response_format="content_and_artifact")
    def book() -> Any:
        """Book."""
        runs.append(1)
        return "booked", Room()

    with SqliteCheckpointer(":memory:") as saver:
        graph = graph_of(saver, [book], Call("book", {}, "b"))
        assert start(graph)["messages"][-1].text == "over"

        assert answers_to(graph, "b") == "booked"
        assert runs == [1]


async def test_what_a_thread_does_after_its_run_was_cancelled_is_not_lost(saver: Saver) -> None:
    begun, go = threading.Event(), threading.Event()
    runs: list[int] = []

    @tool
    def book() -> str:
        """Book, slowly."""
        runs.append(1)
        begun.set()
        assert go.wait(120)
        return "booked late"

    graph = graph_of(saver, [book], Call("book", {}, "b"))
    running = asyncio.create_task(graph.ainvoke({"messages": [("user", "go")]}, CONFIG))
    await asyncio.to_thread(begun.wait, 120)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    unknown = _state(saver)
    go.set()
    await _until(lambda: _state(saver) == ["done"])

    result = await graph.ainvoke(None, CONFIG)

    assert unknown == ["started"]
    assert asked(result) == []
    assert result["messages"][-1].text == "over"
    assert runs == [1]


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():
            await asyncio.to_thread(threading.Event().wait, 0.005)


def _state(saver: Saver) -> list[str]:
    found = [get_ledger(saver).get(name) for name in entries(saver)]
    return [each.value["state"] for each in found if each]


async def test_an_async_tool_that_was_cancelled_is_asked_about(saver: Saver) -> None:
    begun = asyncio.Event()

    @tool
    async def book() -> str:
        """Book for ever."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    graph = graph_of(saver, [book], Call("book", {}, "b"))
    running = asyncio.create_task(graph.ainvoke({"messages": [("user", "go")]}, CONFIG))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    [question] = asked(await graph.ainvoke(None, CONFIG))

    assert question["tool"] == "book"


def test_a_session_sees_the_question_and_answers_it() -> None:
    booking = Booking()
    model = ScriptedModel([BOOK, "over"])
    agent = Agent("head", model=model, tools=[booking.tool()])
    with SqliteCheckpointer(":memory:") as saver:
        session = Session(agent, saver)
        with pytest.raises(Died):
            session.send("go").result()
        session.resume().result()

        [question] = session.inbox()
        result = session.answer(question.id, {"outcome": "not_happened"}).result()

    assert question.value["kind"] == "outcome_unknown"
    assert question.path == "head"
    assert result.text == "over"
