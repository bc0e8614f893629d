"""A person is a subordinate like any other: named, routed to, one of several, timed, stopped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from echelons import (
    Agent,
    DelegationPolicy,
    Human,
    Permissions,
    Session,
    SqliteCheckpointer,
    subordinate,
)
from echelons.delegation import DelegationResponse, Status
from echelons.errors import QuestionClosed, WrongAnswer
from echelons.guards.circuit_breaker import BreakerPolicy
from echelons.testing import Call, ScriptedModel, delegate, delegate_many, report
from tests.error_codes import raises_code
from tests.fork_server import ForkServer
from tests.scenarios.drivers.forks import Forks
from tests.scenarios.drivers.people import ask_and_end, build_ladder

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
UNABLE = {"status": "unable", "reason": "on holiday"}


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


def team(*below: Any, calls: Any = None, replies: Any = (), **head: Any) -> Agent:
    """Return a head that makes calls and ends with their results, over some subordinates."""
    calls = calls or [delegate(each.name, "Sign it") for each in below]
    agents: dict[str, Any] = {each.name: ["ok"] for each in below if isinstance(each, Agent)}
    model = ScriptedModel({"head": ask_and_end(*calls), **agents, **dict(replies)})
    return Agent("head", model=model, subordinates=below, **head)


def responses(session: Session) -> list[DelegationResponse]:
    """Return the responses that the root has got, in order."""
    found = session.thread_store.get(session.thread_id).messages
    tools = [each for each in found if isinstance(each, ToolMessage)]
    return [DelegationResponse.load(each.artifact) for each in tools]


def ask(session: Session, world: World) -> Any:
    """Send a task, and return the one question that comes of it."""
    [question] = world.send(session, "Have it signed").questions
    return question


# A turn of a person


def test_the_turn_of_a_human_is_a_question_and_its_answer_a_response(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(team(Human("anna", "Signs", capabilities={"signing": 0.7})), saver)

    question = ask(session, world)
    assert (question.value, question.path) == ("Sign it", "head/anna")
    assert (question.addressee, question.asker, question.deadline) == ("anna", "head", None)
    assert world.answer(session, {question.id: "signed"}).text == "signed"

    [response] = responses(session)
    assert (response.agent, response.status, response.confidence) == (
        "anna",
        Status.FULFILLED,
        0.7,
    )
    assert response.usage.model_calls == 0
    [root, human] = session.trace().walk()
    assert (root.agent, human.agent) == ("head", "anna")
    thread = session.thread_store.get(question.thread_id)
    assert [(each.type, each.text) for each in thread.messages] == [
        ("human", "Sign it"),
        ("ai", "signed"),
    ]


@pytest.mark.parametrize(
    ("answer", "status", "said", "confidence"),
    [
        (UNABLE, Status.UNABLE, "[unable] on holiday", 0.0),
        ({"status": "unable"}, Status.UNABLE, "[unable]", 0.0),
        ({"status": "partial", "result": "half"}, Status.PARTIAL, "[partial]\nhalf", 1.0),
        ({"status": "fulfilled", "result": "yes", "confidence": 0.2}, Status.FULFILLED, "yes", 0.2),
    ],
)
def test_a_human_reports_a_status_as_an_agent_does(
    world: World,
    saver: SqliteCheckpointer,
    answer: Any,
    status: Status,
    said: str,
    confidence: float,
) -> None:
    session = Session(team(Human("anna")), saver)

    assert world.answer(session, {ask(session, world).id: answer}).text == said
    [response] = responses(session)
    assert (response.status, response.confidence, response.failed) == (status, confidence, False)


def test_a_human_asks_back_and_goes_on_with_the_answer(
    world: World, saver: SqliteCheckpointer
) -> None:
    def head(messages: Any) -> Any:
        last = messages[-1]
        if "asks:" in last.text:
            return delegate("anna", "The blue one")
        if last.type == "human":
            return delegate("anna", "Sign it", context={"sum": 700})
        return last.text

    session = Session(team(Human("anna"), replies={"head": head}), saver)
    first = ask(session, world)
    assert first.value == "Sign it\n\nsum: 700"

    back = {"status": "needs_input", "result": "Which one?"}
    [second] = world.answer(session, {first.id: back}).questions

    assert second.thread_id == first.thread_id
    assert second.value.splitlines() == [
        "The blue one",
        "",
        "Earlier in this conversation:",
        "head: sum: 700",
        "head: Sign it",
        "anna: Which one?",
    ]
    assert world.answer(session, {second.id: "signed"}).text == "signed"
    [asked, _] = responses(session)
    assert [(each.text, each.path) for each in asked.questions] == [("Which one?", "head/anna")]


@pytest.fixture(scope="module")
def people(fork_server: ForkServer) -> Iterator[Forks]:
    """Does each thing in a process of its own."""
    forks = Forks(fork_server, "tests.scenarios.drivers.people")
    yield forks
    forks.end()


def test_a_human_on_the_third_level_answers_in_another_process(
    tmp_path: Path, people: Forks
) -> None:
    database = str(tmp_path / "t.sqlite")

    asking = people.run(database, "send", '"go"').returned
    [question] = asking["asked"]
    ended = people.run(database, "answer", f'{{"{question}": "signed"}}').returned

    assert asking["asked"] == {question: "Sign it\n\nsum: 700"}
    assert (ended["status"], ended["text"]) == ("finished", "signed")


def test_two_humans_are_asked_at_once_and_answer_in_any_order(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(team(Human("anna"), Human("bert")), saver)

    asked = {each.addressee: each.id for each in world.send(session, "go").questions}
    assert asked.keys() == {"anna", "bert"}
    left = world.answer(session, {asked["bert"]: "by bert"})
    assert [each.addressee for each in left.questions] == ["anna"]

    assert world.answer(session, {asked["anna"]: "by anna"}).text == "by anna | by bert"


def test_a_question_for_a_human_is_an_event_with_its_name(saver: SqliteCheckpointer) -> None:
    session = Session(team(Human("anna", timeout=60)), saver)

    events = [each for each in session.send("go") if each.kind == "question"]

    [(path, data)] = [(each.path, each.data) for each in events]
    [question] = session.inbox()
    assert (path, data["addressee"], data["id"]) == ("head/anna", "anna", question.id)
    assert data["deadline"] == question.deadline


def test_langgraphs_drawing_of_a_tree_has_a_human(saver: SqliteCheckpointer) -> None:
    nodes = team(Human("anna")).compile(saver).get_graph(xray=True).nodes

    assert [name for name in nodes if name.endswith("anna:run")]


def test_a_human_among_very_many_subordinates_is_asked_too(
    world: World, saver: SqliteCheckpointer
) -> None:
    crowd = [Agent(f"a{number}") for number in range(300)]
    agent = team(*crowd, Human("anna", timeout=60), calls=[delegate("anna", "Sign it")])
    session = Session(agent, saver)

    question = ask(session, world)
    assert question.deadline is not None
    assert world.answer(session, {question.id: "signed"}).text == "signed"


# One of several


@pytest.mark.parametrize(("join", "n"), [("first", None), ("quorum", 2)])
def test_a_race_that_others_have_won_withdraws_the_question(
    world: World, saver: SqliteCheckpointer, join: str, n: int | None
) -> None:
    below: list[Any] = [Human("anna"), Agent("one"), Agent("two")]
    call = delegate_many(*(delegate(each.name, "Sign it") for each in below), join=join, n=n)
    session = Session(team(*below, calls=[call]), saver)

    result = world.send(session, "go")

    assert result.finished
    assert session.inbox() == []
    assert "ok" in result.text


@pytest.mark.parametrize(("join", "n"), [("first", None), ("quorum", 2)])
def test_a_join_that_the_others_do_not_decide_waits_for_the_human(
    world: World, saver: SqliteCheckpointer, join: str, n: int | None
) -> None:
    below: list[Any] = [Human("anna"), Agent("one"), Agent("two")]
    call = delegate_many(*(delegate(each.name, "Sign it") for each in below), join=join, n=n)
    unable = [report("unable", "")]
    agent = team(*below, calls=[call], replies={"one": ["ok"] if n else unable, "two": unable})
    session = Session(agent, saver)

    question = ask(session, world)
    result = world.answer(session, {question.id: "by anna"})

    assert result.finished
    assert "by anna" in result.text


def routed(*below: Any, **policy: Any) -> Agent:
    """Return a head that has routing find out who signs."""
    rules = DelegationPolicy(splitting=False, **policy)
    return team(
        *below,
        calls=[delegate(None, "signing")],
        delegation=rules,
        replies={each.name: [report("unable", "")] for each in below[:-1]},
    )


def test_a_human_is_the_last_fallback_of_a_routed_task(
    world: World, saver: SqliteCheckpointer
) -> None:
    robot = Agent("robot", capabilities={"signing": 0.9})
    agent = routed(robot, Human("anna", capabilities={"signing": 0.8}))
    session = Session(agent, saver)

    question = ask(session, world)
    assert question.path == "head/anna"
    assert world.answer(session, {question.id: "by anna"}).text == "by anna"

    [response] = responses(session)
    assert [each.agent for each in response.subordinate_responses] == ["robot", "anna"]


def test_a_task_is_routed_to_a_human_further_down(world: World, saver: SqliteCheckpointer) -> None:
    lead = Agent("lead", subordinates=[Human("anna", capabilities={"signing": 0.8})])
    session = Session(routed(lead), saver)

    question = ask(session, world)
    assert question.path == "head/lead/anna"
    assert (question.asker, question.addressee) == ("lead", "anna")

    assert world.answer(session, {question.id: "by anna"}).text == "by anna"


# Deadlines


@pytest.mark.parametrize("given", [None, Command(resume="late")])
async def test_passed_deadline_holds_in_compiled_tree(
    timed: SqliteCheckpointer, noon: Noon, given: Any
) -> None:
    asking = Call("ask", {"question": "Which?", "deadline_seconds": 60, "default": "north"})
    model = ScriptedModel({"head": [delegate("leaf", "go"), "done"], "leaf": [asking, "seen"]})
    leaf = Agent("leaf", permissions=Permissions(contact_user=True))
    graph = Agent("head", model=model, subordinates=[leaf]).compile(timed)
    threads: Any = [{"configurable": {"thread_id": thread}} for thread in ("one", "two", "three")]
    for config in threads:
        graph.invoke({"messages": [("user", "go")]}, config)

    noon.advance(59)
    graph.invoke(Command(resume="south"), threads[0])
    noon.advance(2)
    graph.invoke(given, threads[1])
    result = await graph.ainvoke(given, threads[2])

    heard = [
        str(message.text)
        for call in model.calls
        for message in call.messages[-1:]
        if call.agent == "leaf" and isinstance(message, ToolMessage)
    ]
    assert "south" in heard[0]
    assert ["instead: north" in text for text in heard] == [False, True, True]
    assert not any("late" in text for text in heard)
    assert result["messages"][-1].text == "done"


def test_the_next_candidate_is_asked_when_the_deadline_of_a_human_passes(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    anna = Human("anna", capabilities={"signing": 0.9}, timeout=60)
    bert = Human("bert", capabilities={"signing": 0.8}, timeout=600)
    session = Session(team(anna, bert, calls=[delegate(None, "signing")]), timed)
    first = ask(session, world)
    assert first.deadline == (NOON + timedelta(seconds=60)).isoformat()
    noon.advance(61)
    assert session.inbox() == []
    with pytest.raises(QuestionClosed):
        world.answer(session, {first.id: "late"})

    [second] = world.resume(session).questions
    assert (second.addressee, second.deadline) == (
        "bert",
        (NOON + timedelta(seconds=661)).isoformat(),
    )
    assert world.answer(session, {second.id: "by bert"}).text == "by bert"

    [response] = responses(session)
    late, _ = response.subordinate_responses
    assert (late.status, late.failed) == (Status.UNABLE, True)
    assert late.reason == f"timeout: 'anna' has not answered by {first.deadline}"


def test_the_deadline_of_a_human_stays_when_others_have_answered(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    session = Session(team(Human("anna", timeout=60), Human("bert")), timed)
    asked = {each.addressee: each for each in world.send(session, "go").questions}
    noon.advance(30)

    [left] = world.answer(session, {asked["bert"].id: "by bert"}).questions
    assert left.deadline == asked["anna"].deadline
    noon.advance(31)

    result = world.resume(session)
    assert result.finished
    assert result.text == (
        f"[unable] timeout: 'anna' has not answered by {left.deadline} | by bert"
    )


def test_the_last_fallback_that_does_not_answer_in_time_leaves_the_task_undone(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    robot = Agent("robot", capabilities={"signing": 0.9})
    anna = Human("anna", capabilities={"signing": 0.8}, timeout=60)
    session = Session(routed(robot, anna), timed)
    ask(session, world)
    noon.advance(61)

    assert world.resume(session).finished
    [response] = responses(session)
    assert response.status is Status.UNABLE
    assert "timeout: 'anna' has not answered by" in response.reason


@pytest.mark.parametrize("to", [None, "head/lead/anna"])
def test_late_human_is_reported_to_every_superior_on_the_way(
    world: World, timed: SqliteCheckpointer, noon: Noon, to: str | None
) -> None:
    anna = Human("anna", capabilities={"signing": 0.8}, timeout=60)
    lead = Agent("lead", model=ScriptedModel(ask_and_end()), subordinates=[anna])
    session = Session(routed(lead), timed)
    [question] = world.send(session, "Have it signed", to=to).questions
    assert question.deadline == (NOON + timedelta(seconds=60)).isoformat()
    noon.advance(61)
    assert session.inbox() == []

    result = world.resume(session)
    assert result.finished
    why = f"timeout: 'anna' has not answered by {question.deadline}"
    assert why in result.text
    [low] = [each for each in session.trace().walk() if each.agent == "anna"]
    assert (low.status, low.requests[-1].reason) == ("unable", why)


def test_the_time_of_a_routed_task_is_that_of_a_human_too(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    rules = DelegationPolicy(request_timeout=100, timeout=5)
    below = [Human(name, capabilities={"signing": 0.9}, timeout=70) for name in ("anna", "bert")]
    call = delegate(None, "signing")
    session = Session(team(*below, calls=[call], delegation=rules), timed)
    first = ask(session, world)
    assert first.deadline == (NOON + timedelta(seconds=70)).isoformat()
    noon.advance(70)

    [second] = world.resume(session).questions
    assert second.deadline is not None
    left = datetime.fromisoformat(second.deadline) - noon.now
    assert left.total_seconds() == pytest.approx(30, abs=20)


@pytest.mark.parametrize(("join", "n"), [("first", None), ("quorum", 2)])
def test_a_join_goes_on_without_a_human_whose_deadline_has_passed(
    world: World, timed: SqliteCheckpointer, noon: Noon, join: str, n: int | None
) -> None:
    below = [Human("anna", timeout=60), Human("bert"), Human("cleo")]
    call = delegate_many(*(delegate(each.name, "Sign it") for each in below), join=join, n=n)
    session = Session(team(*below, calls=[call]), timed)
    asked = {each.addressee: each.id for each in world.send(session, "go").questions}
    noon.advance(61)
    left = {each.addressee for each in world.resume(session).questions}
    assert left == {"bert", "cleo"}

    result = world.answer(session, {asked["bert"]: "by bert"})
    if n:
        result = world.answer(session, {asked["cleo"]: "by cleo"})

    assert result.finished
    assert session.inbox() == []
    assert "by bert" in result.text


def test_a_running_session_goes_on_without_a_human_before_the_siblings_have_finished(
    timed: SqliteCheckpointer, noon: Noon
) -> None:
    asked, fallen_back = Event(), Event()
    went_on: list[bool] = []

    def work() -> str:
        """Work until the deadline has passed, and then until the next candidate was asked."""
        if not went_on:
            went_on.append(asked.wait(120))
            noon.advance(61)
        else:
            went_on.append(fallen_back.wait(120))
        return "worked"

    def sign(task: str) -> str:
        """Sign."""
        fallen_back.set()
        return "by machine"

    below = [
        Human("anna", capabilities={"signing": 0.9}, timeout=60),
        subordinate(sign, capabilities={"signing": 0.8}),
        Agent("dig", tools=[work]),
    ]
    calls = [delegate(None, "signing"), delegate("dig", "x")]
    digging = [Call("work"), Call("work"), "dug"]
    agent = team(*below, calls=calls, replies={"dig": digging})
    session, ended = Session(agent, timed), list[Any]()
    running = Thread(target=lambda: ended.append(session.send("go").result()))
    running.start()
    outside = Session(agent, timed)
    while not outside.inbox():
        assert running.is_alive()
    asked.set()
    running.join(120)

    assert [each.text for each in ended] == ["by machine | dug"]
    assert went_on == [True, True]


def test_without_a_timeout_of_its_own_a_human_has_any_time(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    session = Session(team(Human("anna"), delegation=DelegationPolicy(timeout=5)), timed)
    question = ask(session, world)
    assert question.deadline is None
    noon.advance(1e6)

    assert world.answer(session, {question.id: "signed"}).text == "signed"


def test_a_timeout_counts_as_a_failure_and_an_honest_unable_does_not(
    world: World, timed: SqliteCheckpointer, noon: Noon
) -> None:
    rules = DelegationPolicy(breaker=BreakerPolicy(failures=1))
    session = Session(team(Human("anna", timeout=60), delegation=rules), timed)

    assert world.answer(session, {ask(session, world).id: UNABLE}).text == "[unable] on holiday"
    ask(session, world)
    noon.advance(61)
    world.resume(session)

    assert "circuit_open: 'anna' failed 1 times in a row" in world.send(session, "go").text


# Stopped


def test_stopping_a_human_withdraws_its_question(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(build_ladder(), saver)
    question = ask(session, world)
    assert question.path == "head/lead/anna"

    session.stop("head/lead/anna")

    assert session.inbox() == []
    with pytest.raises(QuestionClosed):
        world.answer(session, {question.id: "signed"})
    result = world.resume(session)
    assert result.finished
    assert "stopped" in result.text


def test_a_human_is_sent_no_messages(saver: SqliteCheckpointer) -> None:
    session = Session(build_ladder(), saver)

    with raises_code("message_refused"):
        session.send_message("head/lead/anna", "Hurry up")


# Answers that are none


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "should be non-empty"),
        (" \n", "does not match"),
        (None, "is not of type"),
        (3, "is not of type"),
        (["signed"], "is not of type"),
        ({"signed": True}, "'status' is a required property"),
        ({"status": "done", "result": "yes"}, "is not one of"),
        ({"status": "fulfilled"}, "'result' is a required property"),
        ({"status": "partial", "result": ""}, "should be non-empty"),
        ({"status": "unable", "confidence": 2}, "greater than the maximum"),
        ({"status": "unable", "why": "no"}, "Additional properties are not allowed"),
    ],
)
def test_an_answer_of_the_wrong_form_is_refused_and_the_question_stays(
    world: World, saver: SqliteCheckpointer, answer: Any, why: str
) -> None:
    session = Session(team(Human("anna")), saver)
    question = ask(session, world)

    with pytest.raises(WrongAnswer, match=why):
        world.answer(session, {question.id: answer})

    assert [each.id for each in session.inbox()] == [question.id]


def test_an_answer_that_is_too_large_is_refused(world: World, saver: SqliteCheckpointer) -> None:
    session = Session(team(Human("anna")), saver)
    question = ask(session, world)

    with raises_code("input_too_large"):
        world.answer(session, {question.id: "x" * 5_000_000})

    assert [each.id for each in session.inbox()] == [question.id]


def test_langgraphs_own_resume_asks_again_until_the_answer_fits(
    world: World, saver: SqliteCheckpointer
) -> None:
    graph = team(Human("anna")).compile(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    world.invoke(graph, {"messages": [("human", "go")]}, config)

    again = world.invoke(graph, Command(resume={"kind": "missed_answer"}), config)
    assert again["__interrupt__"]
    assert world.invoke(graph, Command(resume="signed"), config)["messages"][-1].text == "signed"


def test_a_run_of_which_nothing_is_stored_cannot_ask_a_human(world: World) -> None:
    graph = team(Human("anna")).compile()

    result = world.invoke(graph, {"messages": [("human", "go")]})

    [answer] = [each for each in result["messages"] if isinstance(each, ToolMessage)]
    assert answer.text.startswith("[unable] no_checkpointer: ")
