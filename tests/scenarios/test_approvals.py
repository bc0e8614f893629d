"""Calls of tools and subordinates that wait for an approval, wherever they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from echelons import (
    Agent,
    Decision,
    Limits,
    Permissions,
    Session,
    SqliteCheckpointer,
    effect,
)
from echelons.checkpoints.coordination.journal import LedgerJournal
from echelons.errors import NoQuestionPending, QuestionClosed, ThreadBusy, WrongAnswer
from echelons.nodes.subordinate import MAX_NODES
from echelons.testing import Call, Reply, ScriptedModel, delegate, delegate_many
from tests.told_lines import list_notices

if TYPE_CHECKING:
    from echelons.testing.scripts import Step
    from tests.scenarios.conftest import World

MAIL = Call("mail", {"to": "bob"})


def edit(**arguments: Any) -> Decision:
    return Decision("edit", edited_action={"name": "mail", "args": arguments})


class Office:
    """A tree of three levels whose clerk has two tools, and what they have done."""

    def __init__(
        self, *steps: Step, rules: Mapping[str, Any] | None = None, steps_limit: int = 1000
    ) -> None:
        self.done: list[str] = []

        def mail(to: str, copies: int = 1) -> str:
            """Send a mail."""
            self.done.append(f"mail to {to} x{copies}")
            return self.done[-1]

        def note(text: str) -> str:
            """Ask, and write down what is answered."""
            self.done.append(f"{text}: {interrupt(text)}")
            return self.done[-1]

        self.tools = [mail, note]
        self.model = ScriptedModel(
            {
                "head": [delegate("mid", "go"), "over"] * 3,
                "mid": [delegate("clerk", "go"), "done"] * 3,
                "clerk": [*(steps or (MAIL,)), "written"] * 3,
            }
        )
        self.rules: Mapping[str, Any] = {"mail": "ask"} if rules is None else rules
        self.limits = Limits(steps=steps_limit)

    def tree(self) -> Agent:
        clerk = Agent("clerk", tools=self.tools)
        mid = Agent("mid", subordinates=[clerk])
        permissions = Permissions(approvals=self.rules)
        return Agent(
            "head",
            model=self.model,
            subordinates=[mid],
            limits=self.limits,
            permissions=permissions,
        )


def read_answers(session: Session, agent: str = "clerk") -> list[str]:
    """Return what the model of an agent has read of its calls."""
    threads = [each.thread_id for each in session.trace().walk() if each.agent == agent]
    messages = [each for key in threads for each in session.thread_store.get(key).messages]
    return [str(each.text) for each in messages if isinstance(each, ToolMessage)]


def read_notices(session: Session, agent: str = "clerk") -> list[list[str]]:
    """Return what the library says beside the results of an agent's calls."""
    threads = [each.thread_id for each in session.trace().walk() if each.agent == agent]
    return list_notices([m for key in threads for m in session.thread_store.get(key).messages])


def count_calls(model: ScriptedModel) -> dict[str, int]:
    """Return how often each agent's model was called."""
    return dict(Counter(str(each.agent) for each in model.calls))


def test_a_call_waits_until_it_is_approved(world: World, saver: SqliteCheckpointer) -> None:
    office = Office()
    session = Session(office.tree(), saver)

    result = world.send(session, "go")

    [question] = result.questions
    [call] = question.reviewed_calls
    assert (result.status, office.done) == ("asking", [])
    assert question.path == "head/mid/clerk"
    assert (call.tool, call.arguments) == ("mail", {"to": "bob"})
    assert call.allowed == ("approve", "edit", "reject")
    assert world.answer(session, {question.id: "approve"}).text == "over"
    assert office.done == ["mail to bob x1"]
    assert read_answers(session) == ["mail to bob x1"]
    assert count_calls(office.model) == {"head": 2, "mid": 2, "clerk": 2}


@pytest.mark.parametrize("given", [Decision("reject", "not today"), "reject"])
def test_the_model_reads_why_a_call_was_rejected(
    world: World, saver: SqliteCheckpointer, given: Any
) -> None:
    office = Office()
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    assert world.answer(session, {question.id: given}).text == "over"

    assert office.done == []
    why = ": not today" if isinstance(given, Decision) else ""
    assert read_answers(session) == [f"Error: not run: rejected by a human{why}"]


def test_call_runs_with_arguments_changed_by_human_and_model_reads_so(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office()
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    assert world.answer(session, {question.id: edit(to="eve", copies=2)}).text == "over"

    assert office.done == ["mail to eve x2"]
    [[notice]] = read_notices(session)
    assert read_answers(session) == ["mail to eve x2"]
    assert notice == (
        'A human has changed the arguments of this call to {"to": "eve", "copies": 2}'
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"to": "eve", "copies": "many"}, "'many' is not of type 'integer'"),
        ({"to": "eve", "copys": 2}, "'copys' was unexpected"),
    ],
)
def test_an_edit_that_the_schema_refuses_is_named_and_changes_nothing(
    world: World, saver: SqliteCheckpointer, arguments: dict[str, Any], why: str
) -> None:
    office = Office()
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    with pytest.raises(WrongAnswer, match=why):
        world.answer(session, {question.id: edit(**arguments)})

    assert [each.id for each in world.do(session, "inbox")] == [question.id]
    assert world.answer(session, {question.id: "approve"}).text == "over"
    assert office.done == ["mail to bob x1"]


@pytest.mark.parametrize(
    "given",
    ["respond", {"type": "approve", "reason": "so"}],
    ids=str,
)
def test_what_is_no_decision_is_refused(
    world: World, saver: SqliteCheckpointer, given: Any
) -> None:
    office = Office()
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    with pytest.raises(WrongAnswer):
        world.answer(session, {question.id: given})

    assert office.done == []


def test_denied_call_is_answered_without_a_question(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office(rules={"mail": "deny"})
    session = Session(office.tree(), saver)

    assert world.send(session, "go").text == "over"

    assert office.done == []
    assert read_answers(session) == [
        "Error: not run: denied: the permissions of this team forbid it"
    ]


def test_the_strictest_rule_on_the_path_holds(world: World, saver: SqliteCheckpointer) -> None:
    office = Office()
    clerk = Agent("clerk", tools=office.tools, permissions=Permissions(approvals={"mail": "deny"}))
    mid = Agent("mid", subordinates=[clerk], permissions=Permissions(approvals={"mail": "ask"}))
    rules = Permissions(approvals={"mail": lambda arguments: "allow"})
    tree = Agent("head", model=office.model, subordinates=[mid], permissions=rules)
    session = Session(tree, saver)

    assert world.send(session, "go").text == "over"
    assert read_answers(session)[0].startswith("Error: not run: denied")


def test_a_predicate_decides_by_the_arguments(world: World, saver: SqliteCheckpointer) -> None:
    def rule(arguments: Mapping[str, Any]) -> Any:
        return {"ann": "allow", "bob": "ask", "eve": "deny"}[arguments["to"]]

    calls = [Call("mail", {"to": name}) for name in ("ann", "bob", "eve")]
    office = Office(Reply(calls=calls), rules={"mail": rule})
    session = Session(office.tree(), saver)

    [question] = world.send(session, "go").questions

    assert question.reviewed_calls[0].arguments == {"to": "bob"}
    assert office.done == ["mail to ann x1"]
    assert world.answer(session, {question.id: "approve"}).text == "over"
    assert office.done == ["mail to ann x1", "mail to bob x1"]


def test_an_edit_leads_to_no_call_that_is_denied(world: World, saver: SqliteCheckpointer) -> None:
    office = Office(rules={"mail": lambda arguments: "ask" if arguments["to"] == "bob" else "deny"})
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    assert world.answer(session, {question.id: edit(to="eve")}).text == "over"

    assert office.done == []
    assert "denied" in read_answers(session)[0]


async def wait() -> str:
    return "allow"


@pytest.mark.parametrize(
    "rule",
    [
        lambda arguments: arguments["nothing"],
        lambda arguments: True,
        lambda arguments: wait(),
    ],
    ids=["raises", "True", "waits"],
)
def test_a_predicate_that_fails_or_returns_nonsense_asks(
    world: World, saver: SqliteCheckpointer, rule: Any
) -> None:
    office = Office(rules={"mail": rule})
    session = Session(office.tree(), saver)

    [question] = world.send(session, "go").questions

    assert world.answer(session, {question.id: "approve"}).text == "over"
    assert office.done == ["mail to bob x1"]


def test_several_calls_wait_at_once_and_what_has_ended_never_runs_again(
    world: World, saver: SqliteCheckpointer
) -> None:
    done: list[str] = []

    def mail(to: str) -> str:
        """Send a mail."""
        done.append(to)
        return f"mailed {to}"

    def look(text: str) -> str:
        """Look."""
        done.append(text)
        return text

    names = ("x", "y", "quick")
    scripts: dict[str, Any] = {
        "head": [Reply(calls=[delegate(name, f"ask {name}") for name in names]), "over"],
        **{
            name: [
                Reply(calls=[Call("look", {"text": name}), Call("mail", {"to": f"{name}1"})]),
                f"{name} done",
            ]
            for name in ("x", "y")
        },
        "quick": [Call("look", {"text": "quick"}), "quick done"],
    }
    model = ScriptedModel(scripts)
    tree = Agent(
        "head",
        model=model,
        subordinates=[Agent(name, tools=[mail, look]) for name in names],
        permissions=Permissions(approvals={"mail": "ask"}),
    )
    session = Session(tree, saver)
    x, y = world.send(session, "go").questions
    assert sorted(done) == ["quick", "x", "y"]

    [left] = world.answer(session, {y.id: "approve"}).questions
    assert (left.id, sorted(done)) == (x.id, ["quick", "x", "y", "y1"])
    assert world.answer(session, {x.id: "reject"}).text == "over"

    assert sorted(done) == ["quick", "x", "y", "y1"]
    assert count_calls(model) == {"head": 2, "x": 2, "y": 2, "quick": 2}


@pytest.mark.parametrize("reads_only", [False, True])
@pytest.mark.parametrize("rule", ["ask", lambda arguments: "allow"], ids=["ask", "allow"])
def test_the_questions_of_a_tool_come_after_its_approval(
    world: World, saver: SqliteCheckpointer, rule: Any, reads_only: bool
) -> None:
    office = Office(Call("note", {"text": "colour"}), rules={"note": rule})
    office.tools = [effect(reads_only=reads_only)(each) for each in office.tools]
    session = Session(office.tree(), saver)
    result = world.send(session, "go")
    if rule == "ask":
        [approval] = result.questions
        changed = Decision("edit", edited_action={"name": "note", "args": {"text": "size"}})
        result = world.answer(session, {approval.id: changed})

    [question] = result.questions

    assert question.value == ("size" if rule == "ask" else "colour")
    # An answer that looks like a decision is the tool's, too.
    assert world.answer(session, {question.id: {"type": "reject"}}).text == "over"
    assert office.done == [f"{question.value}: {{'type': 'reject'}}"]


def test_an_approval_counts_as_no_step(world: World, saver: SqliteCheckpointer) -> None:
    # Six model calls, a tool, two subordinates; these two go on once more with the last answer.
    office = Office(rules={"mail": "ask", "mid": "ask"}, steps_limit=11)
    session = Session(office.tree(), saver)
    result = world.send(session, "go")
    asked = 0
    while result.questions:
        result = world.answer(session, {result.questions[0].id: "approve"})
        asked += 1

    assert (asked, result.status, result.text) == (2, "finished", "over")


@pytest.mark.parametrize("left", [{}, {"note": "ask"}], ids=["none", "others"])
@pytest.mark.parametrize("by", ["session", "graph"])
@pytest.mark.parametrize(
    ("said", "done"),
    [("approve", ["mail to bob x1"]), ("reject", []), (edit(to="eve"), ["mail to eve x1"])],
    ids=["approve", "reject", "edit"],
)
def test_an_answer_holds_although_its_rule_was_removed(
    world: World, saver: SqliteCheckpointer, said: Any, done: list[str], by: str, left: Any
) -> None:
    office = Office()
    [question] = world.send(Session(office.tree(), saver), "go").questions
    office.rules = left
    session = Session(office.tree(), saver)

    if by == "session":
        world.answer(session, {question.id: said})
    else:
        given = said.to_json() if isinstance(said, Decision) else said
        world.invoke(session.graph, Command(resume={question.id: given}), session.config)

    assert office.done == done
    assert len(read_answers(session)) == 1


def test_a_tool_gets_no_approval_whose_rule_was_removed(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office(Call("note", {"text": "colour"}), rules={"note": "ask"})
    [approval] = world.send(Session(office.tree(), saver), "go").questions
    office.rules = {}
    session = Session(office.tree(), saver)

    [question] = world.answer(session, {approval.id: "approve"}).questions
    assert question.value == "colour"
    # Nor is an answer that looks like a decision taken for one.
    assert world.answer(session, {question.id: {"type": "reject"}}).text == "over"
    assert office.done == ["colour: {'type': 'reject'}"]


# Subordinates: whoever would do the work, however the request comes to it.


def find(task: str) -> Call:
    """Return a call that names nobody."""
    return Call("call_subordinate", {"message": task})


def build_chain(model: ScriptedModel, **rules: Any) -> Agent:
    """Return head → a → b → c, which can cook."""
    c = Agent("c", capabilities={"cook dinner": 0.9})
    b = Agent("b", subordinates=[c], capabilities={"cook": 0.1})
    a = Agent("a", subordinates=[b], capabilities={"cook": 0.1})
    other = Agent("other", capabilities={"singing": 0.9})
    permissions = Permissions(approvals=rules)
    return Agent("head", model=model, subordinates=[a, other], permissions=permissions)


def test_a_subordinate_waits_before_its_first_model_call(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office(rules={"mid": "ask"})
    session = Session(office.tree(), saver)

    [question] = world.send(session, "go").questions

    [call] = question.reviewed_calls
    assert question.path == "head"
    assert (call.tool, call.arguments) == ("mid", {"message": "go", "context": {}})
    assert call.allowed == ("approve", "reject")
    assert count_calls(office.model) == {"head": 1}
    assert world.answer(session, {question.id: "approve"}).text == "over"
    assert count_calls(office.model) == {"head": 2, "mid": 2, "clerk": 2}


@pytest.mark.parametrize("stopped", ["head/mid/clerk", "head/mid"])
def test_stopped_agent_withdraws_the_question_about_its_task(
    world: World, saver: SqliteCheckpointer, stopped: str
) -> None:
    office = Office(rules={"clerk": "ask"})
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    world.do(session, "stop", stopped)

    assert session.inbox() == []
    with pytest.raises(QuestionClosed):
        world.answer(session, {question.id: "approve"})
    assert world.resume(session).text == "over"
    reader = "mid" if stopped == "head/mid/clerk" else "head"
    [read] = read_answers(session, reader)
    assert f"stopped: {stopped}" in read
    assert office.done == []


def test_a_stopped_root_is_not_asked_about_its_calls(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office()
    permissions = Permissions(approvals={"mail": "ask"})
    model = ScriptedModel({"head": [MAIL, "over"]})
    agent = Agent("head", model=model, tools=office.tools, permissions=permissions)
    session = Session(agent, saver)
    assert world.send(session, "go").questions

    world.do(session, "stop")

    assert session.inbox() == []
    result = world.resume(session)
    assert (result.status, result.questions) == ("stopped", ())
    assert result.reason == "stopped: head was told to stop"
    assert office.done == []


@pytest.mark.parametrize("rule", ["deny", "ask"])
def test_a_request_that_may_not_be_made_is_answered_with_unable(
    world: World, saver: SqliteCheckpointer, rule: Any
) -> None:
    office = Office(rules={"mid": rule})
    session = Session(office.tree(), saver)
    result = world.send(session, "go")
    if rule == "ask":
        reject = Decision("reject", "too dear")
        result = world.answer(session, {result.questions[0].id: reject})

    assert result.text == "over"
    why = (
        "rejected by a human: too dear"
        if rule == "ask"
        else "denied: the permissions of this team forbid it"
    )
    assert read_answers(session, "head") == [f"[unable] {why}"]
    assert count_calls(office.model) == {"head": 2}


@pytest.mark.parametrize("said", ["approve", "reject"])
def test_an_answer_about_a_task_holds_although_its_rule_was_removed(
    world: World, saver: SqliteCheckpointer, said: str
) -> None:
    office = Office(rules={"clerk": "ask"})
    [question] = world.send(Session(office.tree(), saver), "go").questions
    office.rules = {}
    session = Session(office.tree(), saver)

    assert world.answer(session, {question.id: said}).text == "over"

    assert office.done == (["mail to bob x1"] if said == "approve" else [])
    [read] = read_answers(session, "mid")
    assert ("rejected by a human" in read) == (said == "reject")


def test_a_routed_request_is_relayed_to_the_agent_that_is_asked_about(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel({"head": [find("Cook the dinner"), "done"], "c": ["soup"]})
    session = Session(build_chain(model, a="ask", c="ask"), saver)

    [question] = world.send(session, "go").questions

    assert (question.path, question.value["name"]) == ("head/a/b", "c")
    assert count_calls(model) == {"head": 1}
    assert world.answer(session, {question.id: "approve"}).text == "done"
    assert count_calls(model) == {"head": 2, "c": 1}
    # The head has made the request, and the agent that relays it is its subordinate.
    line = 'a/b asked the user: "May c be given a task?" The answer was: "approve"'
    assert read_answers(session, "head") == ["soup"]
    assert list_notices(session.thread_store.get(session.thread_id).messages) == [[line]]


@pytest.mark.parametrize(("denied", "others"), [("a", set()), ("b", {"a"}), ("c", {"a"})])
def test_a_denied_agent_is_neither_reached_nor_passed(
    world: World, saver: SqliteCheckpointer, denied: str, others: set[str]
) -> None:
    model = ScriptedModel({"head": [find("Cook the dinner"), "done"], "*": ["soup"]})
    session = Session(build_chain(model, **{denied: "deny"}), saver)

    assert world.send(session, "go").text == "done"

    # The next candidate gets the task.
    assert count_calls(model).keys() == {"head", *others}


@pytest.mark.parametrize("rule", ["deny", "ask"])
def test_the_next_candidate_gets_what_the_best_may_not_have(
    world: World, saver: SqliteCheckpointer, rule: Any
) -> None:
    model = ScriptedModel({"head": [find("Bake bread"), "done"], "*": ["a loaf"]})
    bakers = [
        Agent(name, capabilities={"bake bread": fit}) for name, fit in (("p", 0.9), ("q", 0.5))
    ]
    permissions = Permissions(approvals={"p": rule})
    tree = Agent("head", model=model, subordinates=bakers, permissions=permissions)
    session = Session(tree, saver)
    result = world.send(session, "go")
    if rule == "ask":
        [question] = result.questions
        assert question.value["name"] == "p"
        result = world.answer(session, {question.id: "reject"})

    assert result.text == "done"
    assert count_calls(model) == {"head": 2, "q": 1}
    assert "a loaf" in read_answers(session, "head")[0]


def test_the_next_candidate_is_asked_about_like_the_first(
    world: World, saver: SqliteCheckpointer
) -> None:
    model = ScriptedModel({"head": [find("Bake bread"), "done"], "*": ["a loaf"]})
    bakers = [
        Agent(name, capabilities={"bake bread": fit}) for name, fit in (("p", 0.9), ("q", 0.5))
    ]
    permissions = Permissions(approvals={"p": "deny", "q": "ask"})
    session = Session(
        Agent("head", model=model, subordinates=bakers, permissions=permissions), saver
    )

    [question] = world.send(session, "go").questions

    assert question.value["name"] == "q"
    assert world.answer(session, {question.id: "approve"}).text == "done"
    assert count_calls(model) == {"head": 2, "q": 1}


def test_each_part_of_a_call_is_asked_about(world: World, saver: SqliteCheckpointer) -> None:
    many = delegate_many(*(delegate(name, f"Ask {name}") for name in "xyz"))
    model = ScriptedModel({"head": [many, "done"], "*": ["found"]})
    permissions = Permissions(approvals={"x": "ask", "y": "deny", "z": "allow"})
    agents = [Agent(name) for name in "xyz"]
    session = Session(
        Agent("head", model=model, subordinates=agents, permissions=permissions), saver
    )

    [question] = world.send(session, "go").questions

    assert count_calls(model) == {"head": 1, "z": 1}
    assert world.answer(session, {question.id: "approve"}).text == "done"
    assert count_calls(model) == {"head": 2, "x": 1, "z": 1}
    assert "denied" in read_answers(session, "head")[0]


def test_a_race_that_others_have_won_needs_no_approval(
    world: World, saver: SqliteCheckpointer
) -> None:
    many = delegate_many(*(delegate(name, "Ask") for name in "xy"), join="first")
    model = ScriptedModel({"head": [many, "done"], "*": ["found"]})
    permissions = Permissions(approvals={"x": "ask"})
    agents = [Agent(name) for name in "xy"]
    session = Session(
        Agent("head", model=model, subordinates=agents, permissions=permissions), saver
    )

    result = world.send(session, "go")

    assert (result.text, result.questions) == ("done", ())
    assert count_calls(model) == {"head": 2, "y": 1}


def test_a_function_waits_like_an_agent(world: World, saver: SqliteCheckpointer) -> None:
    done: list[str] = []

    def money(task: str) -> str:
        """Convert."""
        done.append(task)
        return "10 EUR"

    model = ScriptedModel({"head": [delegate("money", "9 USD"), "done"]})
    permissions = Permissions(approvals={"money": lambda arguments: "ask"})
    session = Session(
        Agent("head", model=model, subordinates=[money], permissions=permissions), saver
    )

    [question] = world.send(session, "go").questions

    assert done == []
    assert world.answer(session, {question.id: "approve"}).text == "done"
    assert done == ["9 USD"]


def test_a_subordinate_that_has_begun_is_not_asked_about_again(
    world: World, saver: SqliteCheckpointer
) -> None:
    verdicts = ["allow"]

    def rule(arguments: Mapping[str, Any]) -> Any:
        return verdicts[-1]

    office = Office(Call("note", {"text": "colour"}), rules={"clerk": rule})
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions
    assert question.value == "colour"

    verdicts.append("deny")

    assert world.answer(session, {question.id: "red"}).text == "over"
    assert office.done == ["colour: red"]
    assert count_calls(office.model) == {"head": 2, "mid": 2, "clerk": 2}


def test_an_approved_subordinate_asks_questions_of_its_own(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office(Call("note", {"text": "colour"}), rules={"mid": "ask", "clerk": "ask"})
    session = Session(office.tree(), saver)
    asked = []
    result = world.send(session, "go")
    while result.questions:
        [question] = result.questions
        asked.append(question.path)
        given = "red" if question.value == "colour" else "approve"
        # Whoever goes on may be another session.
        result = world.answer(Session(office.tree(), saver), {question.id: given})

    assert asked == ["head", "head/mid", "head/mid/clerk"]
    assert (result.text, office.done) == ("over", ["colour: red"])
    assert count_calls(office.model) == {"head": 2, "mid": 2, "clerk": 2}


def test_one_of_very_many_subordinates_waits(world: World, saver: SqliteCheckpointer) -> None:
    model = ScriptedModel({"head": [delegate("a7", "go"), "done"], "a7": ["found"]})
    crowd = [Agent(f"a{n}") for n in range(MAX_NODES + 1)]
    permissions = Permissions(approvals={"a7": "ask"})
    session = Session(
        Agent("head", model=model, subordinates=crowd, permissions=permissions), saver
    )

    [question] = world.send(session, "go").questions

    assert count_calls(model) == {"head": 1}
    assert world.answer(session, {question.id: "approve"}).text == "done"


# For the thread.


def approve(scope: Any = "thread") -> Decision:
    return Decision("approve", scope=scope)


TWICE = (MAIL, Call("mail", {"to": "bob"}), Call("mail", {"to": "eve"}))


def test_a_decision_for_the_thread_holds_for_the_same_call_of_the_same_agent(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office(*TWICE)
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    [other] = world.answer(session, {question.id: approve()}).questions

    assert other.reviewed_calls[0].arguments == {"to": "eve"}
    assert office.done == ["mail to bob x1"] * 2
    assert world.answer(session, {other.id: "reject"}).text == "over"
    # The next turn, in another session.
    again = Session(office.tree(), saver)
    [third] = world.send(again, "again").questions
    assert third.reviewed_calls[0].arguments == {"to": "eve"}
    assert office.done == ["mail to bob x1"] * 4


def test_without_a_scope_a_decision_is_for_one_call(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office(*TWICE)
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    [other] = world.answer(session, {question.id: "approve"}).questions

    assert other.reviewed_calls[0].arguments == {"to": "bob"}
    assert other.id != question.id


@pytest.mark.parametrize(
    ("decision", "done"),
    [
        (Decision("reject", "never", scope="thread"), []),
        (
            Decision("edit", edited_action={"name": "mail", "args": {"to": "zoe"}}, scope="thread"),
            ["mail to zoe x1"] * 2,
        ),
    ],
    ids=["reject", "edit"],
)
def test_rejections_and_edits_can_be_for_the_thread_too(
    world: World, saver: SqliteCheckpointer, decision: Decision, done: list[str]
) -> None:
    office = Office(*TWICE[:2])
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    assert world.answer(session, {question.id: decision}).text == "over"

    assert office.done == done
    first, second = read_answers(session)
    assert first == second


def test_what_a_rule_denies_stays_denied(world: World, saver: SqliteCheckpointer) -> None:
    verdicts = ["ask"]
    office = Office(rules={"mail": lambda arguments: verdicts[-1]})
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions
    world.answer(session, {question.id: approve()})
    verdicts.append("deny")

    assert world.send(session, "again").text == "over"

    assert office.done == ["mail to bob x1"]


def test_the_same_call_of_another_agent_is_asked_about(
    world: World, saver: SqliteCheckpointer
) -> None:
    done: list[str] = []

    def mail(to: str) -> str:
        """Send a mail."""
        done.append(to)
        return "sent"

    scripts: dict[str, Any] = {
        "head": [delegate("x", "go"), delegate("y", "go"), "over"],
        "*": [MAIL, "written"],
    }
    tree = Agent(
        "head",
        model=ScriptedModel(scripts),
        subordinates=[Agent("x", tools=[mail]), Agent("y", tools=[mail])],
        permissions=Permissions(approvals={"mail": "ask"}),
    )
    session = Session(tree, saver)
    [question] = world.send(session, "go").questions

    [other] = world.answer(session, {question.id: approve()}).questions

    assert (other.path, done) == ("head/y", ["bob"])


def test_a_request_can_be_approved_for_the_thread(world: World, saver: SqliteCheckpointer) -> None:
    office = Office(rules={"mid": "ask"})
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions
    assert world.answer(session, {question.id: approve()}).text == "over"

    result = world.send(session, "again")

    assert (result.text, result.questions) == ("over", ())


def test_a_copy_of_a_thread_does_not_take_over_what_was_approved(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office()
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions
    world.answer(session, {question.id: approve()})
    copy = Session(office.tree(), saver, thread="0b0c44a6-44a2-4b4b-8d4f-37f5f6f1f3a1")
    world.do(saver, "copy_thread", session.thread_id, copy.thread_id)

    assert world.send(session, "again").text == "over"
    [asked] = world.send(copy, "again").questions

    assert asked.reviewed_calls[0].arguments == {"to": "bob"}
    assert office.done == ["mail to bob x1"] * 2


def test_a_fork_of_the_past_does_not_take_over_what_was_approved(
    world: World, saver: SqliteCheckpointer
) -> None:
    office = Office(MAIL)
    graph = office.tree().compile(saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    [asked] = world.invoke(graph, {"messages": [("user", "go")]}, config)["__interrupt__"]
    waiting = world.do(graph, "get_state", config).config
    world.invoke(graph, Command(resume={asked.id: approve().to_json()}), config)
    ended = world.do(graph, "get_state", config).config
    # The line itself takes it over, also at the next turn.
    assert "__interrupt__" not in world.invoke(graph, {"messages": [("user", "b")]}, config)
    assert office.done == ["mail to bob x1"] * 2

    for past in (waiting, ended):
        given = None if past is waiting else {"messages": [("user", "c")]}
        [again] = world.invoke(graph, given, past)["__interrupt__"]
        assert again.value["args"] == {"to": "bob"}
    saver.prune(["1"])
    # Of the line in which it was approved nothing is left.
    [again] = world.invoke(graph, {"messages": [("user", "d")]}, config)["__interrupt__"]
    assert office.done == ["mail to bob x1"] * 2


# Inside a host's graph, with LangGraph's own commands.


def build_host(office: Office, saver: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("team", office.tree().compile())
    builder.add_edge(START, "team")
    builder.add_edge("team", END)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("ours", [True, False])
def test_a_call_on_the_third_level_of_a_tree_in_a_host_is_changed_and_approved(
    world: World, saver: SqliteCheckpointer, ours: bool
) -> None:
    office = Office()
    host = build_host(office, saver if ours else InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    [asked] = world.invoke(host, {"messages": [("user", "go")]}, config)["__interrupt__"]
    assert (asked.value["type"], asked.value["args"]) == ("tool_approval", {"to": "bob"})

    # Nothing checks an answer before: a wrong one is asked for again.
    wrong = edit(to="eve", copies="many").to_json()
    [again] = world.invoke(host, Command(resume={asked.id: wrong}), config)["__interrupt__"]
    assert again.id == asked.id
    assert "'many' is not of type 'integer'" in again.value["description"]
    right = edit(to="eve", copies=2).to_json()
    out = world.invoke(host, Command(resume={asked.id: right}), config)

    assert out["messages"][-1].text == "over"
    assert office.done == ["mail to eve x2"]
    assert count_calls(office.model) == {"head": 2, "mid": 2, "clerk": 2}


def test_a_plain_resume_answers_one_question(world: World, saver: SqliteCheckpointer) -> None:
    office = Office(Call("note", {"text": "colour"}), rules={"note": "ask", "mid": "ask"})
    host = build_host(office, saver)
    config: Any = {"configurable": {"thread_id": "1"}}
    given: list[Any] = [{"messages": [("user", "go")]}]
    given += [Command(resume=each) for each in ("approve", {"type": "approve"}, "red")]
    out = [world.invoke(host, each, config) for each in given]

    names = [each["__interrupt__"][0].value for each in out[:-1]]
    assert [each if isinstance(each, str) else each["name"] for each in names] == [
        "mid",
        "note",
        "colour",
    ]
    assert out[-1]["messages"][-1].text == "over"
    assert office.done == ["colour: red"]


# Two at the same moment.


def test_second_of_two_answers_is_reported(world: World, saver: SqliteCheckpointer) -> None:
    office = Office(Reply(calls=[MAIL, Call("mail", {"to": "eve"})]))
    session, other = (Session(office.tree(), saver) for _ in range(2))
    bob, eve = world.send(session, "go").questions

    world.answer(session, {bob.id: "approve"})
    with pytest.raises(QuestionClosed):
        world.answer(other, {bob.id: "reject"})

    assert world.answer(other, {eve.id: "approve"}).text == "over"
    assert sorted(office.done) == ["mail to bob x1", "mail to eve x1"]


def test_of_two_at_the_same_moment_one_decides(tmp_path: Path) -> None:
    office = Office()
    file, barrier = tmp_path / "office.sqlite", Barrier(2)
    with Session(office.tree(), file, thread="one") as session:
        [question] = session.send("go").result().questions

    def answer(_: int) -> str:
        # A saver of its own, as a process has.
        with Session(office.tree(), file, thread="one") as session:
            barrier.wait()
            try:
                return session.answer(question.id, "approve").result().status
            except (QuestionClosed, NoQuestionPending, ThreadBusy) as error:
                return type(error).__name__

    with ThreadPoolExecutor(2) as pool:
        ends = sorted(pool.map(answer, range(2)))

    assert ends.count("finished") == 1, ends
    assert office.done == ["mail to bob x1"]


class Died(BaseException):
    """Stands for a process that ends where it is raised."""


@pytest.mark.parametrize("kind", ["once", "idempotent", "reads_only"])
def test_a_call_that_was_cut_short_keeps_the_arguments_that_were_approved(
    world: World, saver: SqliteCheckpointer, kind: str
) -> None:
    deaths = [Died]
    office = Office()

    def mail(to: str) -> str:
        """Send a mail."""
        if deaths:
            raise deaths.pop()
        office.done.append(to)
        return "sent"

    office.tools = [effect(**({kind: True} if kind != "once" else {}))(mail)]
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions
    with pytest.raises(Died):
        world.answer(session, {question.id: edit(to="eve")})

    result = world.resume(Session(office.tree(), saver))

    if kind == "once":
        [asked] = result.questions
        assert (asked.value["kind"], asked.value["arguments"]) == ("outcome_unknown", {"to": "eve"})
        result = world.answer(Session(office.tree(), saver), {asked.id: "run_again"})
    assert (result.text, office.done) == ("over", ["eve"])


def test_a_run_that_ends_between_the_answer_and_the_call_is_not_asked_again(
    world: World, saver: SqliteCheckpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = Office()
    session = Session(office.tree(), saver)
    [question] = world.send(session, "go").questions

    def die(*_: Any, **__: Any) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(LedgerJournal, "begin", die)
        with pytest.raises(Died):
            world.answer(session, {question.id: edit(to="eve")})
    assert office.done == []

    assert world.resume(Session(office.tree(), saver)).text == "over"
    assert office.done == ["mail to eve x1"]


@pytest.mark.parametrize("rules", [{"pay": "ask"}, {}], ids=["rule kept", "rule removed"])
def test_a_call_that_was_cut_short_runs_again_as_it_was_approved(
    world: World, saver: SqliteCheckpointer, rules: Mapping[str, Any]
) -> None:
    paid: list[int] = []
    cuts = [Died()]

    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        if cuts:
            raise cuts.pop()
        return f"paid {amount}"

    def build(rules: Mapping[str, Any]) -> Agent:
        scripts: dict[str, Any] = {
            "head": [delegate("mid", "go"), "over"],
            "mid": [delegate("clerk", "go"), "done"],
            "clerk": [Call("pay", {"amount": 700}), "written"],
        }
        mid = Agent("mid", subordinates=[Agent("clerk", tools=[pay])])
        permissions = Permissions(approvals=rules)
        model = ScriptedModel(scripts)
        return Agent("head", model=model, subordinates=[mid], permissions=permissions)

    session = Session(build({"pay": "ask"}), saver)
    [approval] = world.send(session, "go").questions
    less = Decision("edit", edited_action={"name": "pay", "args": {"amount": 70}})
    with pytest.raises(Died):
        world.answer(session, {approval.id: less})

    session = Session(build(rules), saver)
    [outcome] = world.resume(session).questions
    assert outcome.value["arguments"] == {"amount": 70}
    assert world.answer(session, {outcome.id: "run_again"}).text == "over"

    assert paid == [70, 70]
    [[notice]] = read_notices(session)
    assert notice.startswith("A human has changed the arguments of this call to ")
    [mid] = [each.thread_id for each in session.trace().walk() if each.agent == "mid"]
    [lines] = list_notices(session.thread_store.get(mid).messages)
    assert sum("May pay run?" in each for each in lines) == 1
