"""No answer is lost, none is given twice, and who answers wrongly is told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.ledger import build_key, get_ledger
from echelons.checkpoints.queries import run_plan
from echelons.checkpoints.threads import answer_outbox
from echelons.checkpoints.threads.thread_status import read_thread_status
from echelons.errors import InterventionPending, QuestionClosed, UnfinishedTurn
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code

# Many of these sessions are on a saver whose ledger is in memory, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::echelons.errors.ForeignSaverWarning")


def ask(question: str) -> str:
    """Ask a human.

    Args:
        question: What to ask.
    """
    return f"they said {interrupt(question)}"


def team() -> Agent:
    """Return a tree of three levels whose lowest asks."""
    model = ScriptedModel(
        {
            "head": [delegate("north", "go"), "done", "again"],
            "north": [delegate("scout", "go"), "there"],
            "scout": [Call("ask", {"question": "Sure?"}), "there"],
        }
    )
    north = Agent("north", subordinates=[Agent("scout", tools=[ask])])
    return Agent("head", model=model, subordinates=[north])


def heard(session: Session) -> list[str]:
    """Return what the lowest was told by its tool."""
    scout = next(each for each in session.trace().walk() if each.agent == "scout")
    messages = session.thread_store.get(scout.thread_id).messages
    return [str(each.text) for each in messages if each.type == "tool"]


@pytest.fixture(params=["ours", "memory"])
def saver(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return SqliteCheckpointer(tmp_path / "t.sqlite") if request.param == "ours" else InMemorySaver()


# A question can be answered from its event on


def asking_beside_work() -> Agent:
    """Return a tree whose lowest asks while two agents beside it work."""
    model = ScriptedModel(
        {
            "head": [[delegate("north", "go"), delegate("south", "go")], "done"],
            "north": [[delegate("scout", "go"), delegate("guide", "go")], "there"],
            "south": ["there"],
            "scout": [Call("ask", {"question": "Sure?"}), "there"],
            "guide": [Call("walk", {}), "there"],
        }
    )

    def walk() -> str:
        """Walk on."""
        return "walked"

    guide = Agent("guide", tools=[walk])
    north = Agent("north", subordinates=[Agent("scout", tools=[ask]), guide])
    return Agent("head", model=model, subordinates=[north, Agent("south")])


@pytest.mark.parametrize("make", [team, asking_beside_work])
def test_a_question_can_be_answered_as_soon_as_its_event_is_there(saver: Any, make: Any) -> None:
    with Session(make(), saver) as session, session.send("plan") as run:
        for event in run:
            if event.kind == "question":
                assert [each.id for each in session.inbox()] == [event.data["id"]]
                assert session.answer(event.data["id"], "yes").result().queued

        assert run.result().text == "done"
        assert heard(session) == ["they said yes"]


@pytest.mark.parametrize("make", [team, asking_beside_work])
async def test_a_question_can_be_answered_as_soon_as_its_event_is_there_in_an_event_loop(
    saver: Any, make: Any
) -> None:
    async with Session(make(), saver) as session, await session.asend("plan") as run:
        async for event in run:
            if event.kind == "question":
                assert [each.id for each in await session.ainbox()] == [event.data["id"]]
                assert (await (await session.aanswer(event.data["id"], "yes")).result()).queued

        assert (await run.result()).text == "done"
        assert heard(session) == ["they said yes"]


# None is lost


def test_an_answer_that_a_paused_run_has_not_delivered_is_delivered_by_a_resume(
    saver: Any,
) -> None:
    session = Session(team(), saver)
    [question] = session.send("plan").result().questions
    run = session.answer(question.id, "yes")
    run.pause()
    run.result()

    assert session.inbox() == []
    with pytest.raises(QuestionClosed):
        session.answer(question.id, "no")
    assert session.resume().result().text == "done"
    assert heard(session) == ["they said yes"]


def test_a_new_task_waits_for_an_answer_that_is_not_delivered_yet(saver: Any) -> None:
    session = Session(team(), saver)
    [question] = session.send("plan").result().questions
    with pytest.raises(InterventionPending):
        session.send("more")
    run = session.answer(question.id, "yes")
    run.pause()
    run.result()

    # Nobody is left to answer: only going on helps.
    with pytest.raises(UnfinishedTurn):
        session.send("more")

    assert session.resume().result().finished


def test_an_answer_waits_for_a_run_that_has_just_begun(
    saver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end at once, at a clash, and then nobody would deliver what was left to it."""
    session = Session(team(), saver)
    [question] = session.send("plan").result().questions
    begun = get_ledger(saver).lease(build_key(session.thread_id))
    monkeypatch.setattr("echelons.runtime.turn_engine.time.sleep", lambda _: begun.release())

    result = session.answer(question.id, "yes").result()

    assert (result.queued, result.text) == (False, "done")


class ReadLog(SqliteCheckpointer):
    """A checkpointer that notes which namespaces are read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.namespaces: list[str] = []

    def get_tuple(self, config: Any) -> Any:
        self.namespaces.append(config["configurable"].get("checkpoint_ns", ""))
        return super().get_tuple(config)


def test_the_open_tasks_are_walked_once_unless_the_database_has_changed(tmp_path: Path) -> None:
    saver = ReadLog(tmp_path / "t.sqlite")

    def count_reads_of_the_asker(*, thread: str, write: bool) -> int:
        with Session(team(), saver, thread=thread) as session:
            [question] = session.send("plan").result().questions
            saver.namespaces.clear()
            run = session.answer(question.id, "yes")
            if write:
                get_ledger(saver).append("elsewhere", {})
            assert run.result().finished
        deepest = max(saver.namespaces, key=lambda each: each.count("|"))
        return saver.namespaces.count(deepest)

    quiet = count_reads_of_the_asker(thread="quiet", write=False)
    busy = count_reads_of_the_asker(thread="busy", write=True)

    assert busy == quiet + 1


def test_an_answer_to_an_agent_that_another_process_has_stopped_meanwhile_is_refused(
    tmp_path: Path,
) -> None:
    with Session(team(), tmp_path / "t.sqlite") as session:
        [question] = session.send("plan").result().questions
        run = session.answer(question.id, "yes")
        with Session(team(), tmp_path / "t.sqlite") as elsewhere:
            elsewhere.stop("head/north/scout")

        with pytest.raises(QuestionClosed):
            run.result()


# None is given twice


def test_an_answer_that_was_delivered_since_it_was_checked_is_not_written_over(
    saver: Any,
) -> None:
    session = Session(team(), saver)
    [question] = session.send("plan").result().questions
    given = {question.id: "late"}
    before = run_plan(saver, answer_outbox.read_answer_versions(session.thread_id, given))
    status = run_plan(saver, read_thread_status(session.thread_id))
    session.answer(question.id, "yes").result()

    with pytest.raises(QuestionClosed):
        get_ledger(saver).commit(
            lambda open_: answer_outbox.store_answers(
                open_, session.thread_id, given, status, "Ann", before
            )
        )


# Wrong ones are named


def test_a_question_without_an_answer_is_refused(saver: Any) -> None:
    session = Session(team(), saver)
    [question] = session.send("plan").result().questions

    with raises_code("answer_missing") as refused:
        session.answer(question.id)
    with raises_code("answer_missing"):
        session.answer({})

    assert refused.value.id == question.id
    assert "None" in str(refused.value)
    assert [each.id for each in session.inbox()] == [question.id]
    assert session.answer(question.id, None).result().finished
    assert heard(session) == ["they said None"]


def test_a_value_beside_answers_by_id_is_refused_and_none_of_them_is_taken(saver: Any) -> None:
    session = Session(team(), saver)
    [question] = session.send("plan").result().questions

    with raises_code("answer_unnamed") as refused:
        session.answer({question.id: "yes"}, 2)
    with raises_code("answer_unnamed"):
        session.answer({}, None)

    assert (refused.value.value, refused.value.named) == (2, (question.id,))
    assert f"beside answers to '{question.id}'; nothing" in str(refused.value)
    assert [each.id for each in session.inbox()] == [question.id]


@pytest.mark.parametrize("question", ["", "a/b", "x" * 5000, "\ud800", "é", "a\0b"])
def test_what_was_never_asked_is_unknown_whatever_it_is_called(saver: Any, question: str) -> None:
    session = Session(team(), saver)
    [asked] = session.send("plan").result().questions

    with raises_code("unknown_question") as refused:
        session.answer(question, "yes")

    assert refused.value.pending == (asked.id,)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("question", [1, None, [], {1: "yes"}, {None: "yes"}])
def test_what_is_no_text_names_no_question(saver: Any, question: Any) -> None:
    session = Session(team(), saver)
    session.send("plan").result()

    with raises_code("invalid_id"):
        session.answer(question, "yes")
