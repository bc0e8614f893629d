"""A turn that is submitted again is a replay, and a thread has one run at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.ledger import build_key, get_ledger
from echelons.errors import (
    LeaseLost,
    NoQuestionPending,
    QuestionClosed,
    StorageError,
    ThreadBusy,
    WrongAnswer,
)
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.fork_server import ForkServer

# Many of these sessions are on a saver whose ledger is in memory, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")


class Died(BaseException):
    """Stands for a process that ends where it is raised."""


def die(*_: Any, **__: Any) -> None:
    raise Died


def ask(question: str) -> str:
    """Ask a human.

    Args:
        question: What to ask.
    """
    return f"they said {interrupt(question)}"


def counting() -> Agent:
    """Return a root that says how many messages it was shown."""
    return Agent(
        "head", guidance="", model=ScriptedModel(lambda messages: f"{len(messages)} messages")
    )


def asking() -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(
        {
            "head": [delegate("north", "go"), "done", "again"],
            "north": [delegate("scout", "go"), "there"],
            "scout": [Call("ask", {"question": "Sure?"}), "thanks"],
        }
    )
    north = Agent("north", subordinates=[Agent("scout", tools=[ask])])
    return Agent("head", guidance="", model=model, subordinates=[north]), model


@pytest.fixture(params=["ours", "memory"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return SqliteCheckpointer(tmp_path / "t.sqlite") if request.param == "ours" else InMemorySaver()


# Turns


def test_a_finished_turn_that_is_submitted_again_gives_its_answer_and_runs_nothing(
    saver: Any,
) -> None:
    session = Session(counting(), saver)
    first = session.send("go", turn_id="1").result()
    second = session.send("go on", turn_id="2").result()

    again = session.send("go", turn_id="1")

    assert list(again) == []
    assert (again.result().text, again.result().replayed) == (first.text, True)
    assert (first.replayed, second.text) == (False, "3 messages")
    assert session.send("more").result().text == "5 messages"


async def test_a_turn_is_replayed_in_an_event_loop_too(saver: Any) -> None:
    session = Session(counting(), saver)
    texts = [
        (await (await session.asend("go", turn_id="1")).result()).text,
        (await (await session.asend("go", turn_id="1")).result()).text,
    ]

    assert texts == ["1 messages"] * 2


def test_a_turn_that_waits_is_submitted_again_without_asking_anew(saver: Any) -> None:
    agent, model = asking()
    session = Session(agent, saver)
    [question] = session.send("plan", turn_id="1").result().questions

    again = session.send("plan", turn_id="1").result()

    assert ([each.id for each in again.questions], again.replayed) == ([question.id], True)
    assert session.answer(question.id, "yes").result().text == "done"
    assert session.send("plan", turn_id="1").result().text == "done"
    assert model.repeated_calls == []


def test_a_turn_that_was_cut_short_goes_on_when_it_is_submitted_again(saver: Any) -> None:
    agent, model = asking()
    session = Session(agent, saver)
    with session.send("plan", turn_id="1") as run:
        next(iter(run))

    result = session.send("plan", turn_id="1").result()

    assert (len(result.questions), result.replayed) == (1, False)
    assert model.repeated_calls == []


def test_a_turn_of_another_task_is_refused(saver: Any) -> None:
    session = Session(counting(), saver, thread="Rome")
    session.send("go", turn_id="1").result()

    with raises_code("turn_reused") as refused:
        session.send("come back", turn_id="1")

    assert (refused.value.turn_id, refused.value.thread) == ("1", "Rome")
    assert "'1'" in str(refused.value)
    assert "'Rome'" in str(refused.value)


@pytest.mark.parametrize("turn", ["", "a b", "a/b", "x" * 129, 1.5, b"1"])
def test_what_cannot_be_a_turns_id_is_refused(turn: Any) -> None:
    with Session(counting(), ":memory:") as session:
        with raises_code("invalid_id"):
            session.send("go", turn_id=turn)
        assert session.threads() == []


def test_a_turn_is_known_in_another_process_and_after_pruning(tmp_path: Path) -> None:
    database = tmp_path / "t.sqlite"
    with Session(counting(), database) as session:
        first = session.send("go", turn_id="1").result()
        session.send("go").result()
    with SqliteCheckpointer(database) as saver:
        saver.prune([session.thread_id])

    with Session(counting(), database) as session:
        assert session.send("go", turn_id="1").result().text == first.text


def test_a_turn_whose_end_was_not_written_down_is_replayed_from_the_thread(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(counting(), saver)
    with monkeypatch.context() as dying:
        dying.setattr("echelons.checkpoints.coordination.turns.finish_turn", die)
        with pytest.raises(Died):
            session.send("go", turn_id="1").result()

    again = session.send("go", turn_id="1").result()
    later = session.send("go on", turn_id="2").result()

    assert (again.text, again.replayed) == ("1 messages", True)
    assert later.text == "3 messages"
    assert session.send("go", turn_id="1").result().text == "1 messages"


def test_a_turn_whose_end_was_not_written_down_is_found_behind_a_turn_of_a_graph(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(counting(), saver)
    with monkeypatch.context() as dying:
        dying.setattr("echelons.checkpoints.coordination.turns.finish_turn", die)
        with pytest.raises(Died):
            session.send("go", turn_id="1").result()

    session.graph.invoke({"messages": [("user", "go on")]}, session.config)

    assert session.send("go", turn_id="1").result().text == "1 messages"


def test_a_turn_is_known_exactly_when_its_task_is_stored(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        session = Session(counting(), saver)
        saver.conn.execute(
            "CREATE TRIGGER full BEFORE INSERT ON checkpoints"
            " BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        )
        with pytest.raises(StorageError):
            session.send("go", turn_id="1").result()
        assert get_ledger(saver).list_keys(build_key(session.thread_id, "turn")) == []

        saver.conn.execute("DROP TRIGGER full")
        assert not session.send("go", turn_id="1").result().replayed
        assert get_ledger(saver).list_keys(build_key(session.thread_id, "turn")) != []


class OutOfReach(InMemorySaver):
    """A saver whose first write fails."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = [ConnectionError("no line")]

    def put(self, *args: Any, **kwargs: Any) -> Any:
        """Fail once."""
        if self.failures:
            raise self.failures.pop()
        return super().put(*args, **kwargs)


@pytest.mark.parametrize("turns_before", [0, 1])
def test_a_turn_of_which_nothing_could_be_stored_begins_when_it_is_submitted_again(
    turns_before: int,
) -> None:
    saver = OutOfReach()
    [failure] = saver.failures
    saver.failures = []
    session = Session(counting(), saver)
    for _ in range(turns_before):
        session.send("first").result()
    saver.failures = [failure]
    with pytest.raises(ConnectionError):
        session.send("go", turn_id="1").result()

    again = session.send("go", turn_id="1").result()
    once_more = session.send("go", turn_id="1").result()

    assert (again.text, again.replayed) == (f"{1 + 2 * turns_before} messages", False)
    assert (once_more.text, once_more.replayed) == (again.text, True)


# One run at a time


def run_in_thread(work: Callable[[], object]) -> object:
    with ThreadPoolExecutor() as pool:
        return pool.submit(work).result()


def test_running_thread_is_busy_for_others(tmp_path: Path) -> None:
    database = tmp_path / "t.sqlite"
    with Session(counting(), database, thread="Rome") as one:
        running = iter(one.send("go"))
        next(running)
        with Session(counting(), database, thread="Rome") as other:
            refusals: list[Callable[[], object]] = [
                lambda: other.send("more"),
                other.resume,
                lambda: run_in_thread(lambda: one.send("more")),
            ]
            for refusing in refusals:
                with pytest.raises(ThreadBusy) as refused:
                    refusing()
                assert refused.value.thread == "Rome"

            assert list(running)
            assert other.send("more").result().text == "3 messages"


async def test_run_that_begins_second_is_refused_as_busy(
    tmp_path: Path,
) -> None:
    with Session(counting(), tmp_path / "t.sqlite") as session:
        one, other = await session.asend("go"), await session.asend("go")
        first = aiter(one)
        await anext(first)

        with pytest.raises(ThreadBusy):
            await other.result()

        assert [each async for each in first]
        assert (await one.result()).text == "1 messages"


def test_a_run_that_is_dropped_lets_the_thread_go(saver: Any) -> None:
    session = Session(counting(), saver)
    for _ in session.send("go"):
        break

    assert session.resume().result().text == "1 messages"


def test_a_run_that_fails_lets_the_thread_go(saver: Any) -> None:
    down = Session(Agent("head", model=ScriptedModel([ConnectionError("down")])), saver)
    with pytest.raises(ConnectionError):
        down.send("go").result()

    assert Session(counting(), saver).resume().result().text == "1 messages"


def test_a_killed_process_lets_the_thread_go(tmp_path: Path, fork_server: ForkServer) -> None:
    script = f"""
import os, signal
from echelons import Agent, Session
from echelons.testing import ScriptedModel
def reply(messages):
    os.kill(os.getpid(), signal.SIGKILL)
agent = Agent("head", guidance="", model=ScriptedModel(reply))
Session(agent, {str(tmp_path / "t.sqlite")!r}).send("go", turn_id="1").result()
"""
    killed = fork_server.run("-c", script)

    assert killed.returncode == -9
    with Session(counting(), tmp_path / "t.sqlite") as session:
        result = session.send("go", turn_id="1").result()
        assert (result.text, result.replayed) == ("1 messages", False)


def test_a_run_that_was_taken_over_writes_nothing_any_more(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        session = Session(asking()[0], saver)
        running = iter(session.send("plan"))
        next(running)
        taken = saver.ledger.take_over(build_key(session.thread_id))
        before = saver.conn.total_changes

        with pytest.raises(LeaseLost):
            list(running)

        assert saver.conn.total_changes == before
        taken.release()
        assert session.resume().result().questions


def test_a_thread_that_is_deleted_while_it_is_at_work_stays_deleted(tmp_path: Path) -> None:
    with SqliteCheckpointer(tmp_path / "t.sqlite") as saver:
        session = Session(asking()[0], saver)
        running = iter(session.send("plan", turn_id="1"))
        next(running)
        saver.delete_thread(session.thread_id)

        with pytest.raises(LeaseLost):
            list(running)

        assert (session.threads(), session.inbox()) == ([], [])
        again = session.send("plan", turn_id="1").result()
        assert (again.replayed, len(again.questions)) == (False, 1)


# Answers


def test_an_answer_that_was_taken_is_refused_by_name(saver: Any) -> None:
    session = Session(asking()[0], saver)
    [question] = session.send("plan").result().questions
    session.answer(question.id, "yes").result()

    with pytest.raises(QuestionClosed) as refused:
        session.answer(question.id, "no")

    assert refused.value.id == question.id


def test_an_answer_that_arrives_during_a_run_is_delivered_by_it(tmp_path: Path) -> None:
    """One branch waits for a human while the other is at work."""
    saver = SqliteCheckpointer(tmp_path / "t.sqlite")
    asked, answered = threading.Event(), threading.Event()

    def work() -> str:
        """Work until the other branch has been answered."""
        asked.set()
        assert answered.wait(120)
        return "worked"

    model = ScriptedModel(
        {
            "head": [[delegate("asker", "ask"), delegate("worker", "work")], "done"],
            "asker": [Call("ask", {"question": "Sure?"}), "thanks"],
            "worker": [Call("work"), "worked"],
        }
    )
    below = [Agent("asker", tools=[ask]), Agent("worker", tools=[work])]
    agent = Agent("head", model=model, subordinates=below)
    session = Session(agent, saver)
    results: list[Any] = []
    runner = threading.Thread(target=lambda: results.append(session.send("plan").result()))
    runner.start()
    assert asked.wait(120)
    while not (inbox := session.inbox()):
        pass

    queued = session.answer(inbox[0].id, "yes").result()
    with pytest.raises(QuestionClosed):
        session.answer(inbox[0].id, "no")
    left = session.inbox()
    answered.set()
    runner.join(120)

    assert (queued.queued, queued.finished, left) == (True, False, [])
    assert queued.status == "running"
    assert str(queued) == "queued: the run that holds the thread takes the answers"
    assert [(each.text, each.finished) for each in results] == [("done", True)]
    assert model.repeated_calls == []


def test_an_answer_that_was_written_down_and_not_delivered_is_delivered_by_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, model = asking()
    with Session(agent, tmp_path / "t.sqlite") as session:
        [question] = session.send("plan").result().questions
        with monkeypatch.context() as dying:
            dying.setattr(session.graph, "stream", die)
            with pytest.raises(Died):
                session.answer(question.id, "yes").result()

    with Session(agent, tmp_path / "t.sqlite") as session:
        assert session.inbox() == []
        assert session.resume().result().text == "done"
        scout = next(each for each in session.trace().walk() if each.agent == "scout")
        assert "they said yes" in [
            m.text for m in session.thread_store.get(scout.thread_id).messages
        ]
    assert model.repeated_calls == []


def test_an_answer_of_the_wrong_kind_is_refused_and_changes_nothing(saver: Any) -> None:
    def pick() -> str:
        """Ask for a number."""
        return f"{interrupt('How many?', response_schema={'type': 'integer', 'minimum': 1})}"

    model = ScriptedModel([Call("pick"), "thanks"])
    session = Session(Agent("head", model=model, tools=[pick]), saver)
    [question] = session.send("plan").result().questions

    for wrong in ("three", 0, None, [1]):
        with pytest.raises(WrongAnswer) as refused:
            session.answer(question.id, wrong)
        assert (refused.value.id, refused.value.value) == (question.id, wrong)
        assert "nothing was changed" in str(refused.value).lower()

    assert [each.id for each in session.inbox()] == [question.id]
    assert session.answer(question.id, 3).result().text == "thanks"


def test_a_question_that_is_asked_again_after_going_back_is_answered_again(saver: Any) -> None:
    agent, _ = asking()
    session = Session(agent, saver)
    [question] = session.send("plan").result().questions
    past = session.graph.get_state(session.config).config
    session.answer(question.id, "yes").result()

    fork = session.graph.invoke(None, past)

    assert fork["__interrupt__"]
    [again] = session.inbox()
    assert session.answer(again.id, "no").result().finished


def test_an_answer_given_past_the_session_leaves_nothing_to_deliver(saver: Any) -> None:
    agent, _ = asking()
    session = Session(agent, saver)
    [question] = session.send("plan").result().questions

    session.graph.invoke(Command(resume={question.id: "yes"}), session.config)

    # Only ours keeps what was ever asked.
    ours = isinstance(saver, SqliteCheckpointer)
    with pytest.raises(QuestionClosed if ours else NoQuestionPending):
        session.answer(question.id, "no")
