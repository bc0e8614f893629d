"""A session runs a tree on one thread of one database, and says no by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from echelons import Agent, Question, Result, Session, SqliteCheckpointer
from echelons.errors import (
    CheckpointTampered,
    ForeignSaverWarning,
    InterventionPending,
    NoQuestionPending,
    NothingToResume,
    QuestionClosed,
    QuestionError,
    StorageError,
    ThreadNotFound,
    UnfinishedTurn,
)
from echelons.testing import Call, ScriptedModel, Step, delegate
from tests.error_codes import raises_code


@tool
def ask(question: str) -> str:
    """Ask a human."""
    return f"they said {interrupt(question)}"


def plain() -> Agent:
    model = ScriptedModel(lambda messages: f"{len(messages)} messages")
    return Agent("head", guidance="", model=model)


def asking(*names: str) -> Agent:
    """Return a tree whose subordinates each ask one question."""
    each = [Call("ask", {"question": "Sure?"}), "thanks"]
    scripts: dict[str, Any] = dict.fromkeys(names or ("eat",), each)
    head: list[Step] = [[delegate(name, "go") for name in scripts], "planned"]
    model = ScriptedModel({"head": head, **scripts})
    below = [Agent(name, tools=[ask]) for name in scripts]
    return Agent("head", model=model, subordinates=below)


class Ways:
    """What a session does, in one of the two worlds."""

    def __init__(self, session: Session, async_: bool) -> None:
        self._session = session
        self._async = async_

    async def _done(self, name: str, *given: Any) -> Any:
        if self._async:
            return await getattr(self._session, f"a{name}")(*given)
        return getattr(self._session, name)(*given)

    async def _result(self, name: str, *given: Any) -> Result:
        run = await self._done(name, *given)
        return await run.result() if self._async else run.result()  # type: ignore[no-any-return]

    async def send(self, task: Any) -> Result:
        return await self._result("send", task)

    async def answer(self, *given: Any) -> Result:
        return await self._result("answer", *given)

    async def resume(self) -> Result:
        return await self._result("resume")

    async def inbox(self) -> list[Question]:
        return await self._done("inbox")  # type: ignore[no-any-return]

    async def read(self, name: str) -> Any:
        return await self._done(name)

    async def break_off(self) -> None:
        """Send a task and leave after the first event."""
        run = await self._done("send", "plan")
        if self._async:
            async with run:
                await anext(aiter(run))
        else:
            with run:
                next(iter(run))


@pytest.fixture(params=["sync", "async"])
def ways(request: pytest.FixtureRequest) -> Callable[[Session], Ways]:
    """Each world in turn."""
    return lambda session: Ways(session, request.param == "async")


In = Callable[[Session], Ways]


# Turns


async def test_a_thread_remembers_its_turns(ways: In) -> None:
    with Session(plain(), ":memory:") as session:
        texts = [(await ways(session).send("go")).text for _ in range(3)]

    assert texts == ["1 messages", "3 messages", "5 messages"]


async def test_an_answer_goes_on_at_once(ways: In) -> None:
    with Session(asking(), ":memory:") as session:
        stopped = await ways(session).send("plan")
        result = await ways(session).answer(stopped.questions[0].id, "yes")

        assert (result.text, result.finished) == ("planned", True)
        assert await ways(session).inbox() == []


async def test_several_questions_are_answered_at_once_or_one_by_one(ways: In) -> None:
    for at_once in (True, False):
        with Session(asking("eat", "walk"), ":memory:") as session:
            first, second = (await ways(session).send("plan")).questions
            if at_once:
                result = await ways(session).answer({first.id: "yes", second.id: "no"})
            else:
                left = await ways(session).answer(second.id, "no")
                assert [each.id for each in left.questions] == [first.id]
                result = await ways(session).answer(first.id, "yes")
            heard = {
                session.thread_store.get(each.thread_id).agent: session.thread_store.get(
                    each.thread_id
                )
                .messages[2]
                .text
                for each in (first, second)
            }

        assert result.text == "planned"
        assert heard == {"eat": "they said yes", "walk": "they said no"}


async def test_inbox_shows_askers_and_questions(ways: In) -> None:
    with Session(asking("eat", "walk"), ":memory:") as session:
        await ways(session).send("plan")

        inbox = await ways(session).inbox()

    assert [(each.path, each.value) for each in inbox] == [
        ("head/eat", "Sure?"),
        ("head/walk", "Sure?"),
    ]


async def test_an_answer_may_be_any_value(ways: In) -> None:
    for value in (None, "", False, {"a": [1]}):
        with Session(asking(), ":memory:") as session:
            [question] = (await ways(session).send("plan")).questions
            result = await ways(session).answer(question.id, value)
            heard = session.thread_store.get(question.thread_id).messages[2].text

        assert result.finished
        assert heard == f"they said {value}"


async def test_a_turn_that_was_broken_off_is_resumed(ways: In) -> None:
    with Session(asking(), ":memory:") as session:
        await ways(session).break_off()

        assert [each.value for each in (await ways(session).resume()).questions] == ["Sure?"]


async def test_the_trace_and_the_threads_are_those_of_the_database(ways: In) -> None:
    with Session(asking(), ":memory:", thread="Rome") as session:
        await ways(session).send("plan")

        trace, roots = await ways(session).read("trace"), await ways(session).read("threads")

    assert [each.agent for each in trace.walk()] == ["head", "eat"]
    assert trace.thread_id == session.thread_id
    assert [(each.name, each.id) for each in roots] == [("Rome", session.thread_id)]


# Refusals


@pytest.mark.parametrize("task", ["", "  \n", None, 5, b"plan", ["plan"], {"messages": []}])
async def test_a_task_without_words_is_refused_and_stores_nothing(ways: In, task: Any) -> None:
    with Session(plain(), ":memory:") as session:
        with raises_code("invalid_task") as refused:
            await ways(session).send(task)

        assert refused.value.task == task
        assert repr(task) in str(refused.value)
        assert session.threads() == []


async def test_a_task_for_a_thread_that_waits_is_refused(ways: In) -> None:
    with Session(asking(), ":memory:", thread="Rome") as session:
        [question] = (await ways(session).send("plan")).questions

        for refusing in (ways(session).send("more"), ways(session).resume()):
            with pytest.raises(InterventionPending) as refused:
                await refusing
            assert (refused.value.thread, refused.value.pending) == ("Rome", (question.id,))
            for part in ("'Rome'", question.id, "answer first"):
                assert part in str(refused.value)

        assert (await ways(session).answer(question.id, "yes")).finished


async def test_an_unfinished_turn_takes_no_new_task(ways: In) -> None:
    with Session(asking(), ":memory:", thread="Rome") as session:
        await ways(session).break_off()

        with pytest.raises(UnfinishedTurn) as refused:
            await ways(session).send("more")

        assert refused.value.thread == "Rome"
        for part in ("'Rome'", "Session.resume()", "another thread"):
            assert part in str(refused.value)


@pytest.mark.parametrize("given", [("nothing", "yes"), ({"nothing": "yes"},)])
async def test_answer_without_question_is_refused(ways: In, given: Any) -> None:
    with Session(asking(), ":memory:") as session:
        [question] = (await ways(session).send("plan")).questions

        with raises_code("unknown_question") as refused:
            await ways(session).answer(*given)

        assert refused.value.pending == (question.id,)
        for part in (repr(refused.value.id), question.id):
            assert part in str(refused.value)
        assert await ways(session).inbox() == [question]


async def test_of_several_answers_none_is_taken_when_one_is_wrong(ways: In) -> None:
    with Session(asking("eat", "walk"), ":memory:") as session:
        questions = (await ways(session).send("plan")).questions

        with raises_code("unknown_question"):
            await ways(session).answer({questions[0].id: "yes", "nothing": "yes"})

        assert await ways(session).inbox() == list(questions)


async def test_an_answer_is_taken_once(ways: In) -> None:
    with Session(asking("eat", "walk"), ":memory:") as session:
        first, second = (await ways(session).send("plan")).questions
        await ways(session).answer(first.id, "yes")

        with raises_code("question_closed"):
            await ways(session).answer(first.id, "no")

        assert [each.id for each in await ways(session).inbox()] == [second.id]


@pytest.mark.parametrize("ran", [False, True])
async def test_an_answer_where_nothing_is_asked_is_refused(ways: In, ran: bool) -> None:
    with Session(plain(), ":memory:", thread="Rome") as session:
        if ran:
            await ways(session).send("go")

        with pytest.raises(NoQuestionPending) as refused:
            await ways(session).answer("x", "yes")

        assert refused.value.thread == "Rome"
        assert "'Rome'" in str(refused.value)
        assert isinstance(refused.value, QuestionError)


async def test_a_finished_turn_is_not_resumed(ways: In) -> None:
    with Session(plain(), ":memory:", thread="Rome") as session:
        await ways(session).send("go")

        with pytest.raises(NothingToResume) as refused:
            await ways(session).resume()

        assert refused.value.thread == "Rome"
        assert "'Rome'" in str(refused.value)
        assert (await ways(session).send("more")).finished


@pytest.mark.parametrize("name", ["resume", "trace", "stop", "pause"])
async def test_a_thread_that_never_ran_has_nothing_to_resume_or_show(ways: In, name: str) -> None:
    with Session(plain(), ":memory:", thread="Rome") as session:
        with pytest.raises(ThreadNotFound) as refused:
            await ways(session).read(name)

        assert refused.value.thread == "Rome"
        assert await ways(session).inbox() == []
        assert await ways(session).read("threads") == []


# Threads and databases


@pytest.mark.parametrize("thread", ["", "  ", None, 5, b"trip", "half \ud83d"])
def test_what_cannot_be_a_threads_name_is_refused(thread: Any) -> None:
    with raises_code("invalid_thread") as refused:
        Session(plain(), ":memory:", thread=thread)

    assert refused.value.thread == thread
    assert repr(thread) in str(refused.value)


@pytest.mark.parametrize("thread", ["Rome", "a/b:c d", "日本", "x" * 500])
def test_any_text_is_a_threads_name(thread: str) -> None:
    with Session(plain(), ":memory:", thread=thread) as session:
        session.send("go").result()

        assert [each.name for each in session.threads()] == [thread]


def test_a_name_that_is_a_uuid_is_the_threads_id() -> None:
    name = str(uuid4())

    with Session(plain(), ":memory:", thread=name) as session:
        session.send("go").result()

        assert session.thread_id == name
        assert session.graph.get_state({"configurable": {"thread_id": name}}).values["messages"]


@pytest.mark.parametrize("database", [None, 5, True, object()])
def test_what_is_no_database_is_refused(database: Any) -> None:
    with raises_code("invalid_database") as refused:
        Session(plain(), database)

    assert refused.value.given is database
    assert repr(database) in str(refused.value)


def test_a_database_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        Session(plain(), tmp_path / "missing" / "trip.sqlite")


def test_a_thread_goes_on_in_another_session_of_its_database(tmp_path: Path) -> None:
    for count in (1, 3, 5):
        with Session(plain(), tmp_path / "trip.sqlite", thread="Rome") as session:
            assert session.send("go").result().text == f"{count} messages"


def test_two_sessions_on_one_database_keep_their_threads_apart(tmp_path: Path) -> None:
    path = tmp_path / "trip.sqlite"
    with (
        Session(plain(), path, thread="Rome") as rome,
        Session(plain(), path, thread="Oslo") as oslo,
    ):
        running = iter(rome.send("go"))
        next(running)
        assert oslo.send("go").result().text == "1 messages"
        assert list(running)

        assert {each.name for each in rome.threads()} == {"Rome", "Oslo"}
        assert rome.send("go").result().text == oslo.send("go").result().text == "3 messages"


def test_two_sessions_on_one_thread_see_the_same(tmp_path: Path) -> None:
    path = tmp_path / "trip.sqlite"
    with Session(asking(), path) as one, Session(asking(), path) as other:
        [question] = one.send("plan").result().questions

        assert other.inbox() == [question]
        with pytest.raises(InterventionPending):
            other.send("more")
        assert other.answer(question.id, "yes").result().text == "planned"
        with pytest.raises(QuestionClosed):
            one.answer(question.id, "no")


async def test_a_session_closes_what_it_has_opened(tmp_path: Path) -> None:
    with Session(plain(), tmp_path / "one.sqlite") as one:
        pass
    async with Session(plain(), tmp_path / "two.sqlite") as two:
        pass

    for session in (one, two):
        for use in (session.inbox, lambda: session.send("Hello"), session.trace):  # noqa: B023
            with raises_code("database_closed", match="is closed; use the session or the saver"):
                use()


def test_a_saver_that_was_passed_in_is_left_open() -> None:
    with SqliteCheckpointer(":memory:") as saver:
        with Session(plain(), saver) as session:
            session.send("go").result()

        assert saver.get_tuple(session.config) is not None


async def test_any_saver_is_a_database(ways: In) -> None:
    with (
        pytest.warns(ForeignSaverWarning),
        Session(asking(), InMemorySaver(), thread="Rome") as session,
    ):
        [question] = (await ways(session).send("plan")).questions

        assert (await ways(session).answer(question.id, "yes")).text == "planned"
        assert [each.name for each in await ways(session).read("threads")] == ["Rome"]


def test_a_saver_of_others_warns_once_of_what_is_not_guaranteed() -> None:
    saver = InMemorySaver()
    with pytest.warns(ForeignSaverWarning) as warned:
        Session(plain(), saver, thread="Rome")
        Session(plain(), saver, thread="Oslo")

    [warning] = warned
    words = str(warning.message)
    assert "InMemorySaver" in words
    assert "second process" in words and "crash" in words
    assert "docs/guarantees.md" in words
    assert warning.filename == __file__


def test_each_saver_of_others_warns() -> None:
    for _ in range(2):
        with pytest.warns(ForeignSaverWarning):
            Session(plain(), InMemorySaver())


def test_a_warning_that_is_an_error_is_raised_again() -> None:
    saver = InMemorySaver()
    for _ in range(2):
        with pytest.raises(ForeignSaverWarning):  # here, all warnings are errors
            Session(plain(), saver)


def test_a_database_of_ours_does_not_warn(tmp_path: Path) -> None:
    for database in (":memory:", tmp_path / "one.sqlite"):
        Session(plain(), database).close()
    with SqliteCheckpointer(":memory:") as saver:
        Session(plain(), saver)


def test_a_session_that_cannot_read_its_thread_leaves_the_database_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with SqliteCheckpointer(path) as saver:
        plain().compile(saver).invoke(
            {"messages": [("user", "go")]}, {"configurable": {"thread_id": "main"}}
        )
        saver.conn.execute("UPDATE checkpoints SET checkpoint = x'00'")
        saver.conn.commit()

    with pytest.raises(CheckpointTampered):
        Session(plain(), path)

    # Whoever closes a database last takes its log away.
    assert [each.name for each in tmp_path.iterdir() if "-wal" in each.name] == []


def test_a_message_finds_what_has_happened_on_its_thread_since_it_was_sent(tmp_path: Path) -> None:
    def ask() -> str:
        """Ask a human."""
        return str(interrupt("Sure?"))

    def reply(messages: Any) -> Call | str:
        return Call("ask") if messages[-1].text == "plan first" else "hello"

    agent = Agent("head", model=ScriptedModel({"head": reply}), tools=[ask])
    with Session(agent, tmp_path / "t.sqlite") as session:
        session.send("hello").result()
        late = session.send("plan")
        [question] = session.send("plan first").result().questions
        with pytest.raises(InterventionPending) as refused:
            late.result()

    assert list(refused.value.pending) == [question.id]
