"""A question that nobody waits for: its agent goes on, and is told the answer when there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage

from echelons import Agent, Permissions, Session, SqliteCheckpointer
from echelons.errors import NothingToResume, QuestionClosed, WrongAnswer
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def ask_later(question: str, **more: Any) -> Call:
    return Call("ask_later", {"question": question, **more})


def head(messages: Any) -> Any:
    """Ask once, and say what was last heard."""
    if len(messages) == 1:
        return ask_later("Which city?", choices=["Rome", "Oslo"])
    heard = [str(each.text) for each in messages if isinstance(each, HumanMessage)]
    return f"heard {heard[-1]}"


def rooted() -> Agent:
    return Agent("head", guidance="", model=ScriptedModel({"head": head}))


def told(session: Session) -> list[str]:
    messages = session.thread_store.get(session.thread_id).messages
    return [str(each.text) for each in messages if isinstance(each, HumanMessage)]


ANSWER = 'Answer of the user, after the question that you asked: "Which city?\\nRome"'


def test_the_agent_goes_on_and_the_turn_is_finished_with_its_question_open(world: World) -> None:
    with Session(rooted(), ":memory:") as session:
        assert world.send(session, "plan").status == "finished"
        [question] = session.inbox()
        assert (question.value, question.choices) == ("Which city?", ("Rome", "Oslo"))
        assert (question.path, question.asker) == ("head", "head")
        [listed] = session.thread_store.inbox()
        assert [each.id for each in listed.questions] == [question.id]

        # It blocks no task.
        assert world.send(session, "go on").finished
        assert [each.id for each in session.inbox()] == [question.id]


def test_answer_to_idle_thread_is_stored_and_read_in_next_turn(
    world: World,
) -> None:
    with Session(rooted(), ":memory:") as session:
        world.send(session, "plan")
        [question] = session.inbox()

        given = world.answer(session, {question.id: "Rome"})

        assert (given.status, given.replayed) == ("finished", True)
        assert "stored" in given.reason
        assert session.inbox() == []
        assert ANSWER not in told(session)
        assert world.send(session, "go on").text == f"heard {ANSWER}"
        assert told(session).count(ANSWER) == 1
        assert world.send(session, "and on").text == "heard and on"


def test_answer_is_read_before_next_model_call_of_the_turn(world: World) -> None:
    def eat(messages: Any) -> Any:
        if len(messages) == 1:
            return ask_later("Which city?")
        if len(messages) == 3:
            [question] = session.inbox()
            session.answer(question.id, "Rome").result()
            return Call("look", {})
        return str(messages[-1].text)

    def look() -> str:
        """Look around."""
        return "looked"

    model = ScriptedModel({"head": [delegate("eat", "x"), "end"], "eat": eat})
    below = Agent("eat", tools=[look], permissions=Permissions(contact_user=True))
    with Session(
        Agent("head", guidance="", model=model, subordinates=[below]), ":memory:"
    ) as session:
        assert world.send(session, "plan").text == "end"
        messages = session.thread_store.get(session.thread_id).messages
        [answer] = [each for each in messages if isinstance(each, ToolMessage)]

    assert answer.text == ANSWER


def test_a_wrong_answer_and_a_second_one_are_refused(world: World) -> None:
    with Session(rooted(), ":memory:") as session:
        world.send(session, "plan")
        [question] = session.inbox()
        with pytest.raises(WrongAnswer):
            world.answer(session, {question.id: "Paris"})
        assert [each.id for each in session.inbox()] == [question.id]
        world.answer(session, {question.id: "Rome"})

        with pytest.raises(QuestionClosed):
            world.answer(session, {question.id: "Oslo"})


def test_a_resume_of_a_finished_turn_names_the_question_that_can_be_answered(world: World) -> None:
    with Session(rooted(), ":memory:", thread="trip") as session:
        world.send(session, "plan")
        [question] = session.inbox()
        with pytest.raises(NothingToResume, match=f"{question.id}; answer") as refused:
            world.resume(session)
        assert refused.value.open == (question.id,)
        world.answer(session, {question.id: "Rome"})

        with pytest.raises(NothingToResume, match="'trip' has nothing to resume; send it a task"):
            world.resume(session)


def test_an_answer_that_is_too_large_is_refused_and_the_question_stays() -> None:
    model = ScriptedModel({"head": [ask_later("Which city?"), "end"]})
    with Session(Agent("head", model=model), ":memory:") as session:
        session.send("plan").result()
        [question] = session.inbox()
        with raises_code("input_too_large"):
            session.answer(question.id, "x" * 70_000)
        assert [each.id for each in session.inbox()] == [question.id]


def test_one_answer_to_each_kind_of_question_at_once(world: World) -> None:
    both = [ask_later("Which city?"), Call("ask_superior", {"question": "By day?"})]
    model = ScriptedModel({"head": [both, "end"]})
    with Session(Agent("head", model=model), ":memory:") as session:
        asking = world.send(session, "plan")
        # Only what the turn waits for is in its result.
        assert [each.value for each in asking.questions] == ["By day?"]
        ids = {each.value: each.id for each in session.inbox()}
        assert set(ids) == {"By day?", "Which city?"}

        assert world.answer(session, {ids["By day?"]: "yes", ids["Which city?"]: "Rome"}).finished
        assert session.inbox() == []
        assert told(session)[-1] == ANSWER


def test_a_fork_of_the_past_has_not_asked_what_was_asked_after_it(
    saver: SqliteCheckpointer,
) -> None:
    model = ScriptedModel({"head": ["hello", ask_later("Which city?"), "end"]})

    def script(messages: Any) -> Any:
        if messages[-1].type == "tool":
            return "end"
        return ask_later("Which city?") if messages[-1].text == "plan" else "hello"

    model = ScriptedModel({"head": script})
    session = Session(Agent("head", guidance="", model=model), saver)
    session.send("hi").result()
    graph = session.graph
    before = graph.get_state(session.config).config
    session.send("plan").result()
    assert len(session.inbox()) == 1

    graph.invoke({"messages": [("user", "bye")]}, before)
    assert session.inbox() == []
    saver.prune([session.thread_id])

    assert session.inbox() == []


def test_a_call_that_is_made_again_asks_once(world: World, saver: SqliteCheckpointer) -> None:
    class Lost(Exception):
        """The process dies between the question and the end of its call."""

    session = Session(rooted(), saver)
    put, lost = saver.put_writes, list[str]()

    def put_writes(config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        said = [each for _, value in writes if isinstance(value, list) for each in value]
        if not lost and any(getattr(each, "name", "") == "ask_later" for each in said):
            lost.append(task_id)
            raise Lost
        put(config, writes, task_id, task_path)

    saver.put_writes = put_writes  # type: ignore[method-assign]
    with pytest.raises(Lost):
        session.send("plan").result()
    saver.put_writes = put  # type: ignore[method-assign]
    assert len(session.inbox()) == 1

    assert world.resume(session).finished
    assert len(session.inbox()) == 1
