"""Tool calls of other people's graphs that wait for a human's decision, at the third level."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from echelons import Agent, Decision, Question, Session, SqliteCheckpointer
from echelons.errors import WrongAnswer
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import without_told

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

MAIL, DROP = Call("mail", {"to": "bob"}), Call("drop", {"path": "/x"})
EDIT_MAIL = {"type": "edit", "edited_action": {"name": "mail", "args": {"to": "eve"}}}


class Clerk:
    """A graph of ``create_agent`` whose tools wait for a decision, and what they have done."""

    def __init__(self, *calls: Call, mode: str = "batched", **rules: list[str]) -> None:
        self.done: list[str] = []

        def mail(to: str) -> str:
            """Send a mail."""
            self.done.append(f"mail to {to}")
            return self.done[-1]

        def drop(path: str) -> str:
            """Delete a file."""
            self.done.append(f"drop {path}")
            return self.done[-1]

        waits: Any = {name: {"allowed_decisions": rules.get(name)} for name in ("mail", "drop")}
        for name in waits.keys() - rules.keys():
            waits[name] = True
        model = ScriptedModel({"*": [list(calls), "the clerk is done"]})
        middleware: Any = HumanInTheLoopMiddleware(waits, interrupt_mode=mode)  # type: ignore[arg-type]
        self.graph = create_agent(model, [mail, drop], name="clerk", middleware=[middleware])


def boss(graph: Any) -> Agent:
    """Return a tree of three levels, the lowest the graph."""
    model = ScriptedModel(
        {
            "head": [delegate("mid", "go"), "over"],
            "mid": [delegate(graph.name, "go"), "done"],
        }
    )
    return Agent("head", model=model, subordinates=[Agent("mid", subordinates=[graph])])


@pytest.fixture
def asked(world: World, saver: SqliteCheckpointer) -> Callable[[Any], tuple[Session, Question]]:
    def ask(graph: Any) -> tuple[Session, Question]:
        session = Session(boss(graph), saver)
        [question, *_] = world.send(session, "go").questions
        return session, question

    return ask


Asked = Callable[[Any], tuple[Session, Question]]


def read(session: Session) -> str:
    """Return what the graph's superior was told."""
    [mid] = [each for each in session.trace().walk() if each.agent == "mid"]
    messages = session.thread_store.get(mid.thread_id).messages
    return next(str(each.text) for each in messages if each.type == "tool")


def test_a_question_shows_the_tools_and_their_arguments(asked: Asked) -> None:
    _, question = asked(Clerk(MAIL, DROP, drop=["approve", "reject"]).graph)

    mail, drop = question.reviewed_calls
    assert question.path == "head/mid/clerk"
    assert (mail.tool, mail.arguments) == ("mail", {"to": "bob"})
    assert mail.allowed == ("approve", "edit", "reject", "respond")
    assert (drop.tool, drop.arguments, drop.allowed) == (
        "drop",
        {"path": "/x"},
        ("approve", "reject"),
    )


@pytest.mark.parametrize(
    ("given", "done"),
    [
        ("approve", ["mail to bob", "drop /x"]),
        ("reject", []),
        (Decision("approve"), ["mail to bob", "drop /x"]),
        ({"type": "reject", "message": "not today"}, []),
        (["approve", "reject"], ["mail to bob"]),
        ([Decision("reject"), {"type": "approve"}], ["drop /x"]),
        ([EDIT_MAIL, "reject"], ["mail to eve"]),
        (
            [Decision("edit", edited_action={"name": "mail", "args": {"to": "eve"}}), "approve"],
            ["mail to eve", "drop /x"],
        ),
        ([Decision("respond", "sent it myself"), "approve"], ["drop /x"]),
        ({"decisions": [{"type": "approve"}, {"type": "reject"}]}, ["mail to bob"]),
        ({"decisions": [Decision("reject"), "approve"]}, ["drop /x"]),
    ],
    ids=str,
)
def test_several_calls_take_a_decision_each_or_one_for_all(
    world: World, asked: Asked, given: Any, done: list[str]
) -> None:
    clerk = Clerk(MAIL, DROP)
    session, question = asked(clerk.graph)

    assert world.answer(session, {question.id: given}).text == "over"
    assert sorted(clerk.done) == sorted(done)
    assert without_told(read(session)) == "the clerk is done"


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(
    ("given", "done"),
    [
        ("approve", ["mail to bob"]),
        (Decision("reject", "no mails"), []),
        (EDIT_MAIL, ["mail to eve"]),
        (Decision("respond", "it is sent"), []),
        ([Decision("approve")], ["mail to bob"]),
    ],
    ids=str,
)
def test_one_call_takes_a_decision_in_both_modes(
    world: World, asked: Asked, mode: str, given: Any, done: list[str]
) -> None:
    clerk = Clerk(MAIL, mode=mode)
    session, question = asked(clerk.graph)

    assert world.answer(session, {question.id: given}).text == "over"
    assert clerk.done == done


def test_calls_that_ask_one_by_one_are_decided_one_by_one(
    world: World, saver: SqliteCheckpointer
) -> None:
    clerk = Clerk(MAIL, DROP, mode="per_call", drop=["approve", "reject"])
    session = Session(boss(clerk.graph), saver)
    mail, drop = world.send(session, "go").questions
    assert [each.tool for each in (*mail.reviewed_calls, *drop.reviewed_calls)] == ["mail", "drop"]
    assert drop.reviewed_calls[0].allowed == ("approve", "reject")

    [left] = world.answer(session, {drop.id: "reject"}).questions
    assert left.id == mail.id
    assert world.answer(session, {mail.id: "approve"}).text == "over"
    assert clerk.done == ["mail to bob"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_what_is_no_decision_is_refused_and_changes_nothing(
    world: World, asked: Asked, mode: str
) -> None:
    clerk = Clerk(DROP, mode=mode, drop=["approve", "reject"])
    session, question = asked(clerk.graph)

    for given in ("yes", "edit", None, {"type": "approve", "reason": "so"}, [], ["approve"] * 2):
        with pytest.raises(WrongAnswer):
            world.answer(session, {question.id: given})

    assert [each.id for each in world.do(session, "inbox")] == [question.id]
    assert world.answer(session, {question.id: "approve"}).text == "over"
    assert clerk.done == ["drop /x"]


def test_an_edit_that_does_not_fit_the_tool_is_refused_where_its_schema_is_known(
    asked: Asked, world: World
) -> None:
    clerk = Clerk(MAIL, mode="per_call")
    session, question = asked(clerk.graph)

    with pytest.raises(WrongAnswer, match="'to' is a required property"):
        world.answer(
            session, {question.id: Decision("edit", edited_action={"name": "mail", "args": {}})}
        )


def test_a_decision_reaches_a_run_of_another_session(
    world: World, saver: SqliteCheckpointer
) -> None:
    clerk = Clerk(MAIL)
    first = Session(boss(clerk.graph), saver)
    [question] = world.send(first, "go").questions

    again = Session(boss(clerk.graph), saver)
    assert world.answer(again, {question.id: "approve"}).text == "over"
    assert clerk.done == ["mail to bob"]


def test_a_decision_that_a_paused_run_has_not_delivered_is_delivered_by_a_resume(
    saver: SqliteCheckpointer,
) -> None:
    clerk = Clerk(MAIL)
    session = Session(boss(clerk.graph), saver)
    [question] = session.send("go").result().questions
    run = session.answer(question.id, Decision("approve"))
    run.pause()
    run.result()
    assert (session.inbox(), clerk.done) == ([], [])

    assert Session(boss(clerk.graph), saver).resume().result().text == "over"
    assert clerk.done == ["mail to bob"]


def test_a_decision_is_left_to_a_run_that_is_under_way(saver: SqliteCheckpointer) -> None:
    clerk = Clerk(MAIL)
    queued: list[bool] = []

    def decide(task: str) -> str:
        """Decide beside the run that asks, as another process would."""
        while not (inbox := session.inbox()):
            pass
        queued.append(session.answer(inbox[0].id, EDIT_MAIL).result().queued)
        return "decided"

    model = ScriptedModel({"head": [[delegate("clerk", "go"), delegate("decide", "now")], "over"]})
    session = Session(Agent("head", model=model, subordinates=[clerk.graph, decide]), saver)

    assert session.send("go").result().text == "over"
    assert queued == [True]
    assert clerk.done == ["mail to eve"]


# The form of ``langgraph.prebuilt``


def old_graph(heard: list[Any], *, listed: bool = True, **allowed: bool) -> Any:
    """Return a graph that asks with ``HumanInterrupt``, and notes what it is answered."""

    def ask(state: MessagesState) -> dict[str, Any]:
        request = {
            "action_request": {"action": "mail", "args": {"to": "bob"}},
            "config": {
                "allow_ignore": True,
                "allow_respond": True,
                "allow_edit": True,
                "allow_accept": True,
                **allowed,
            },
            "description": "Look at this mail",
        }
        heard.append(interrupt([request] if listed else request))
        return {"messages": [AIMessage("the old one is done")]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    return builder.compile(name="clerk")


@pytest.mark.parametrize("listed", [True, False], ids=["a list", "alone"])
@pytest.mark.parametrize(
    ("given", "response"),
    [
        ("approve", {"type": "accept", "args": None}),
        ("reject", {"type": "ignore", "args": None}),
        (EDIT_MAIL, {"type": "edit", "args": {"action": "mail", "args": {"to": "eve"}}}),
        (Decision("respond", "later"), {"type": "response", "args": "later"}),
    ],
    ids=str,
)
def test_the_older_form_takes_the_same_decisions(
    world: World, asked: Asked, given: Any, response: Any, listed: bool
) -> None:
    heard: list[Any] = []
    session, question = asked(old_graph(heard, listed=listed))
    [call] = question.reviewed_calls
    assert (call.tool, call.arguments) == ("mail", {"to": "bob"})
    assert call.description == "Look at this mail"

    assert world.answer(session, {question.id: given}).text == "over"
    assert heard == [[response]]


def test_any_other_question_takes_what_it_took(world: World, saver: SqliteCheckpointer) -> None:
    heard: list[Any] = []

    def ask() -> str:
        """Ask."""
        heard.append(interrupt({"type": "tool_approval"}))
        return "asked"

    head = Agent("head", model=ScriptedModel([Call("ask"), "over"]), tools=[ask])
    session = Session(head, saver)
    [question] = world.send(session, "go").questions
    assert question.reviewed_calls == ()

    world.answer(session, {question.id: Decision("approve")})
    assert heard == [{"type": "approve"}]
