"""An agent that may contact the user asks past its superior, who is told; deadlines pass."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage

from echelons import Agent, Permissions, Session, SqliteCheckpointer
from echelons.delegation import DelegationResponse, Status
from echelons.errors import QuestionClosed, WrongAnswer
from echelons.testing import Call, ScriptedModel, delegate
from tests.scenarios.drivers.counsel import QUESTION
from tests.told_lines import list_notices

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Noon:
    """A clock that begins at noon, and goes on when it is told to."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def noon() -> Noon:
    return Noon()


@pytest.fixture
def timed(tmp_path: Path, noon: Noon) -> Iterator[SqliteCheckpointer]:
    """A database whose clock the test moves."""
    with SqliteCheckpointer(tmp_path / "t.sqlite", clock=noon) as saver:
        yield saver


def ask_user(question: str, **more: Any) -> Call:
    return Call("ask_user", {"question": question, **more})


def tree(*steps: Any, head: Any = None, below: Any = ()) -> Agent:
    """Return a tree whose second agent may contact the user, and follows a script."""
    script: Any = steps[0] if callable(steps[0]) else [*steps]
    model = ScriptedModel({"head": head or [delegate("eat", "dinner"), "end"], "eat": script})
    eat = Agent("eat", permissions=Permissions(contact_user=True))
    return Agent("head", guidance="", model=model, subordinates=[eat, *below])


def results(session: Session, agent: str = "") -> list[ToolMessage]:
    """Return the tool messages of the root's thread, or of that of its subordinate."""
    thread = session.thread_id
    if agent:
        [thread] = session.thread_store.subordinates(thread)
    found = session.thread_store.get(thread).messages
    return [each for each in found if isinstance(each, ToolMessage)]


def test_user_answers_past_the_superior_which_reads_it(world: World) -> None:
    agent = tree(ask_user("Which city?", choices=["Rome", "Oslo"], urgent=True), "pizza")
    with Session(agent, ":memory:") as session:
        [question] = world.send(session, "plan").questions
        assert (question.value, question.path) == ("Which city?", "head/eat")
        assert (question.urgent, question.asker) == (True, "eat")
        with pytest.raises(WrongAnswer):
            world.answer(session, {question.id: "Paris"})

        assert world.answer(session, {question.id: "Rome"}).text == "end"
        [own], [answer] = results(session, "eat"), results(session)

    assert own.text == "Rome"
    assert answer.text == "pizza"
    assert list_notices([answer]) == [['eat asked the user: "Which city?" The answer was: "Rome"']]
    response = DelegationResponse.load(answer.artifact)
    assert response.result == "pizza"
    assert [(each.question, each.answer) for each in response.user_answers] == [
        ("Which city?", "Rome")
    ]


def test_an_agent_without_the_permission_is_not_offered_the_tool(world: World) -> None:
    model = ScriptedModel({"head": [delegate("eat", "go"), "end"], "eat": [ask_user("?"), "fed"]})
    with Session(Agent("head", model=model, subordinates=[Agent("eat")]), ":memory:") as session:
        assert world.send(session, "plan").text == "end"
        [own] = results(session, "eat")

    assert own.status == "error"
    assert "there is no such tool" in own.text
    assert model.calls[1].tools == ("ask",)


def test_the_urgent_question_comes_first_in_the_inbox(world: World) -> None:
    scripts: dict[str, Any] = {"head": [[delegate("eat", "x"), delegate("sleep", "x")], "end"]}
    scripts["eat"] = [ask_user("Which city?"), "fed"]
    scripts["sleep"] = [ask_user("Now?", urgent=True), "rested"]
    model = ScriptedModel(scripts)
    below = [Agent(name, permissions=Permissions(contact_user=True)) for name in ("eat", "sleep")]
    with Session(Agent("head", model=model, subordinates=below), ":memory:") as session:
        result = world.send(session, "plan")

        assert [each.value for each in result.questions] == ["Now?", "Which city?"]
        assert [each.value for each in session.inbox()] == ["Now?", "Which city?"]


# Deadlines


def test_the_default_is_taken_when_the_deadline_has_passed(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    late = ask_user("Which city?", choices=["Rome", "Oslo"], deadline_seconds=60, default="Oslo")
    session = Session(tree(late, "pizza"), timed)
    [question] = world.send(session, "plan").questions
    assert question.deadline == (NOON + timedelta(seconds=60)).isoformat()
    assert question.default == "Oslo"
    noon.advance(59)
    assert [each.id for each in session.inbox()] == [question.id]

    noon.advance(1)
    assert session.inbox() == []
    with pytest.raises(QuestionClosed):
        world.answer(session, {question.id: "Rome"})

    assert world.resume(session).text == "end"
    [own] = results(session, "eat")
    assert own.text == f"no answer by {question.deadline}; taken instead: Oslo"


def test_without_a_default_the_superior_is_asked(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    def eat(messages: Any) -> Any:
        late = ask_user("Which city?", choices=["Rome", "Oslo"], deadline_seconds=60)
        return late if len(messages) == 1 else f"pizza in {messages[-1].text}"

    def head(messages: Any) -> Any:
        if asked := QUESTION.findall(str(messages[-1].text)):
            return Call("call_subordinate", {"message": "Rome", "answers": asked[0][1]})
        return delegate("eat", "dinner") if messages[-1].type == "human" else messages[-1].text

    session = Session(tree(eat, head=head), timed)
    world.send(session, "plan")
    noon.advance(61)

    result = world.resume(session)

    assert result.finished
    assert result.text.splitlines()[0] == "pizza in Rome"
    first = DelegationResponse.load(results(session)[0].artifact)
    assert first.status is Status.NEEDS_INPUT
    assert [(each.text, each.choices, each.deadline) for each in first.questions] == [
        ("Which city?", ("Rome", "Oslo"), None)
    ]


def test_a_root_goes_on_without_an_answer(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    model = ScriptedModel([ask_user("Which city?", deadline_seconds=60), "at home then"])
    agent = Agent("head", model=model, permissions=Permissions(contact_user=True))
    session = Session(agent, timed)
    [question] = world.send(session, "plan").questions
    noon.advance(60)

    assert world.resume(session).text == "at home then"
    assert [each.text for each in results(session)] == [f"no answer by {question.deadline}"]


def test_an_answer_before_the_deadline_counts_also_when_it_is_delivered_later(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    late = ask_user("Which city?", deadline_seconds=60, default="Oslo")
    session = Session(tree(late, "pizza"), timed)
    [question] = world.send(session, "plan").questions
    run = session.answer(question.id, "Rome")
    noon.advance(61)

    assert run.result().text == "end"
    assert results(session, "eat")[0].text == "Rome"


def test_a_running_session_takes_the_default_before_the_siblings_have_finished(
    timed: SqliteCheckpointer, noon: Noon
) -> None:
    asked, answered = Event(), Event()
    went_on: list[bool] = []

    def work() -> str:
        """Work until the deadline has passed, and then until the default was taken."""
        if not went_on:
            went_on.append(asked.wait(120))
            noon.advance(61)
        else:
            went_on.append(answered.wait(120))
        return "worked"

    def eat(messages: Any) -> Any:
        if messages[-1].type == "human":
            return ask_user("Which city?", deadline_seconds=60, default="Oslo")
        answered.set()
        return "fed"

    scripts: dict[str, Any] = {"head": [[delegate("eat", "x"), delegate("dig", "x")], "end"]}
    scripts |= {"dig": [Call("work"), Call("work"), "dug"], "eat": eat}
    model = ScriptedModel(scripts)
    below = [Agent("eat", permissions=Permissions(contact_user=True)), Agent("dig", tools=[work])]
    agent = Agent("head", model=model, subordinates=below)
    session, ended = Session(agent, timed), list[Any]()
    running = Thread(target=lambda: ended.append(session.send("plan").result()))
    running.start()
    outside = Session(agent, timed)
    while not outside.inbox():
        assert running.is_alive()
    asked.set()
    running.join(120)

    assert [each.text for each in ended] == ["end"]
    assert went_on == [True, True]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"deadline_seconds": 0}, "deadline_seconds: Input should be greater than 0"),
        ({"deadline_seconds": -5}, "deadline_seconds: Input should be greater than 0"),
        ({"deadline_seconds": 1e30}, "deadline_seconds: Input should be less than"),
        ({"default": "Rome"}, "default: it is taken at a deadline"),
        (
            {"default": "Paris", "deadline_seconds": 5, "choices": ["Rome"]},
            "default: the question does not take it: 'Paris' is not one of ['Rome']",
        ),
        (
            {"default": "Paris", "deadline_seconds": 5, "schema": {"type": "integer"}},
            "default: the question does not take it: 'Paris' is not of type 'integer'",
        ),
    ],
)
def test_a_question_with_a_deadline_that_cannot_be_is_refused_at_once(
    args: dict[str, Any], why: str
) -> None:
    with Session(tree(ask_user("Which city?", **args), "fed"), ":memory:") as session:
        assert session.send("plan").result().text == "end"
        [own] = results(session, "eat")

    assert own.status == "error"
    assert why in own.text


@pytest.mark.parametrize("tool", ["ask_user", "ask_later"])
def test_a_question_of_a_megabyte_is_refused_and_the_agent_reads_why(
    world: World, tool: str
) -> None:
    with Session(tree(Call(tool, {"question": "x" * 2**20}), "fed"), ":memory:") as session:
        assert world.send(session, "plan").text == "end"
        [own] = results(session, "eat")
        assert session.inbox() == []

    assert own.status == "error"
    assert "the question has 1048584 bytes or more, the limit is 65536" in own.text


def test_stopped_agent_withdraws_its_questions(world: World) -> None:
    both = [Call("ask_later", {"question": "Which day?"}), ask_user("Which city?")]
    with Session(tree(both, "fed"), ":memory:") as session:
        questions = {each.value: each.id for each in world.send(session, "plan").questions}
        world.do(session, "stop", "head/eat")

        assert "Which city?" not in [each.value for each in session.inbox()]
        with pytest.raises(QuestionClosed):
            world.answer(session, {questions["Which city?"]: "Rome"})
        assert world.resume(session).text == "end"
        [answer] = results(session)

    assert "stopped: head/eat" in answer.text
